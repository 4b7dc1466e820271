//! Errors of machine files, each with its place.

use toml::de::{DeTable, DeValue};

/// Why a machine file is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct MachineError {
    /// The file's name, as given.
    pub file: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// Dotted path of the field, list entries by index (`node[1].tier`); empty if no field can be named.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A fault at a field, before its line is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub field: String,
    pub message: String,
}

impl Fault {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { field: field.into(), message: message.into() }
    }
}

impl MachineError {
    pub(super) fn of_toml(file: &str, text: &str, error: &toml::de::Error) -> MachineError {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let field = error.span().map_or(String::new(), |span| text[span].trim().to_owned());
        let field = if field.lines().count() > 1 || field.len() > 60 { String::new() } else { field };
        MachineError { file: file.to_owned(), line, field, message: error.message().replace('\n', " ") }
    }

    pub(super) fn of_fault(file: &str, text: &str, fault: Fault) -> MachineError {
        let line = locate(text, &fault.field).map_or(1, |at| line_at(text, at));
        MachineError { file: file.to_owned(), line, field: fault.field, message: fault.message }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&b| b == b'\n').count()
}

/// Where the field, or the nearest thing around it that is there, begins in the text.
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
