//! Errors of machine and configuration files, with their position.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a TOML file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct FileError {
    /// The file's name, as given.
    pub file: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// Dotted path of the field, list entries by index (`node[1].tier`); empty if no field can be named.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl FileError {
    /// The parser's error about a file's text, at the field that it names.
    pub fn of_toml(file: &str, text: &str, error: &toml::de::Error) -> FileError {
        let at = error.span().map(|span| span.start);
        let line = at.map_or(1, |at| line_at(text, at));
        let root = DeTable::parse(text).ok();
        let field = at.zip(root).and_then(|(at, root)| field_at(root.get_ref(), at)).unwrap_or_default();
        FileError { file: file.to_owned(), line, field, message: plain_message(error.message()) }
    }

    /// An error about a field of a file's text, at the line of the field, or of the nearest existing element
    /// around it.
    pub fn at(file: &str, text: &str, field: impl Into<String>, message: impl Into<String>) -> FileError {
        let field = field.into();
        let line = locate(text, &field).map_or(1, |at| line_at(text, at));
        FileError { file: file.to_owned(), line, field, message: message.into() }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&b| b == b'\n').count()
}

/// The innermost field whose name or value is at a position in the text.
fn field_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        if key.span().contains(&at) {
            return Some(name.to_owned());
        }
        value_at(value, at).map(|below| format!("{name}{below}"))
    })
}

/// The rest of a value's path to the element at a position in the text.
fn value_at(value: &Spanned<DeValue<'_>>, at: usize) -> Option<String> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => field_at(table, at).map(|field| format!(".{field}")),
        DeValue::Array(list) => {
            let mut entries = list.iter().enumerate();
            entries.find_map(|(i, entry)| value_at(entry, at).map(|below| format!("[{i}]{below}")))
        }
        _ => None,
    };
    inner.or_else(|| value.span().contains(&at).then(String::new))
}

/// Maximum characters of a wrong value in a message.
const VALUE_CHARS: usize = 60;

/// The parser's message in the terms of such files instead of Rust's.
pub(crate) fn plain_message(message: &str) -> String {
    let message = message.replace('\n', " ");
    let Some((found, expected)) = message.split_once(", expected ") else { return message };
    let allowed = match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "i32" => "an integer from -2147483648 to 2147483647",
        "i64" => "an integer",
        "usize" => "an integer of at least 0",
        "u64" => "an integer of at least 0",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" => "a string in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        _ => return message,
    };
    let found = ["invalid type: ", "invalid value: "].iter().find_map(|start| found.strip_prefix(start));
    let Some(found) = found else { return message };
    // Such as `integer \`-1\`` or `string "fast"`.
    let value = match found {
        "map" => "a table",
        "sequence" => "a list",
        _ => found.find(['`', '"']).map_or(found, |at| found[at..].trim_matches('`')),
    };
    let start: String = value.chars().take(VALUE_CHARS).collect();
    let more = if start.len() < value.len() { ".." } else { "" };
    format!("invalid value {start}{more}: expected {allowed}")
}

/// Position of the field, or of the nearest existing element around it, in the text.
fn locate(text: &str, field: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((key, _)) = table.iter().find(|(key, _)| key.get_ref().as_ref() == rest) {
            return Some(key.span().start);
        }
        let (part, after) = rest.split_once('.').unwrap_or((rest, ""));
        rest = after;
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref().as_ref() == name) else { break };
        found = Some(key.span().start);
        let mut value = value;
        if let (Some(index), DeValue::Array(list)) = (index, value.get_ref()) {
            let Some(entry) = list.get(index) else { break };
            found = Some(entry.span().start);
            value = entry;
        }
        let DeValue::Table(next) = value.get_ref() else { break };
        table = next;
    }
    found
}
