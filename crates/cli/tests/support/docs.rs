//! The commands that README and docs show in `sh` and `console` blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// A `memtide` command of a page.
#[derive(Clone, Debug)]
pub struct Example {
    /// `FILE:LINE`, relative to the repository.
    pub place: String,
    /// `memtide` and its arguments, quotes removed.
    pub words: Vec<String>,
    /// File that its standard output is redirected to.
    pub output: Option<String>,
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two levels deep").into()
}

/// Every Markdown page for users, relative to [`root`], sorted.
pub fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "traces/README.md"]
            .map(PathBuf::from)
            .into();
    for folder in ["docs", "docs/policies", "docs/comparison"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of pages") {
            let name = entry.expect("an entry").file_name();
            let path = Path::new(folder).join(name);
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The commands of a page, in order; a command after another one's `--` follows it.
pub fn examples(page: &Path) -> Vec<Example> {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let mut examples = Vec::new();
    let (mut shell, mut heredoc, mut joined) = (false, None, String::new());
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            shell = matches!(language, "sh" | "console");
            continue;
        }
        if !shell || heredoc.as_deref() == Some(line) {
            heredoc = None;
            continue;
        }
        if heredoc.is_some() {
            continue;
        }
        joined += line.strip_prefix("$ ").unwrap_or(line);
        if joined.ends_with('\\') {
            joined.pop();
            continue;
        }
        let line = std::mem::take(&mut joined);
        heredoc = line.split_once("<<'").and_then(|(_, end)| end.split('\'').next()).map(str::to_owned);
        let place = format!("{}:{}", page.display(), number + 1);
        examples.extend(in_line(&place, &line));
    }
    examples
}

/// The commands of one shell line.
pub fn in_line(place: &str, line: &str) -> Vec<Example> {
    commands(line).iter().flat_map(|words| example(place, words)).collect()
}

/// The command in `words`, if it is memtide's, and the one after its `--`.
fn example(place: &str, words: &[String]) -> Vec<Example> {
    let Some(start) = words.iter().position(|word| word == "memtide") else { return Vec::new() };
    let mut words = words[start..].to_vec();
    let redirect = words.iter().position(|word| word == ">");
    let output = redirect.map(|at| words.drain(at..).nth(1).expect("a file behind >"));
    let inner = words.iter().position(|word| word == "--").map(|at| words[at + 1..].to_vec());
    let inner = inner.filter(|inner| inner.first().is_some_and(|program| program == "memtide"));
    let mut examples = vec![Example { place: place.to_owned(), words, output }];
    examples.extend(inner.into_iter().flat_map(|inner| example(place, &inner)));
    examples
}

/// The simple commands of a shell line, as words: quotes removed, `$(..)` one word, comments left out.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let (mut quote, mut depth) = (None, 0);
    for character in line.chars().chain([' ']) {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '(' | ')') => {
                depth += if character == '(' { 1 } else { -1 };
                word.get_or_insert_default().push(character);
            }
            (None, ' ' | ';' | '&' | '|') if depth == 0 => {
                commands.last_mut().expect("at least one").extend(word.take());
                if character != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}
