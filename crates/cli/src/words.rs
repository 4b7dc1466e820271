//! Tests of help texts, of the commands in the docs against the command line's definition, and of line
//! lengths.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../tests/support/docs.rs"]
#[allow(dead_code, reason = "tests/words.rs uses the rest")]
mod docs;

use crate::cli::definition;

/// Longest line of a help text, so that it fits a terminal of 80 columns behind its indent.
const HELP_COLUMNS: usize = 70;

/// Longest line of a source file, strings and comments included, which rustfmt does not wrap.
const SOURCE_COLUMNS: usize = 110;

/// Every Rust file below a folder, except for build output.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some("target") => {}
            _ if path.is_dir() => sources(&path, found),
            Some(name) if name.ends_with(".rs") => found.push(path),
            _ => {}
        }
    }
}

/// Every help text of a command and its subcommands, with the name of what it describes.
fn helps(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
    let mut add = |name: &str, help: Option<String>| found.extend(help.map(|help| (name.to_owned(), help)));
    let texts = [
        command.get_about(),
        command.get_long_about(),
        command.get_after_help(),
        command.get_after_long_help(),
    ];
    for text in texts {
        add(path, text.map(ToString::to_string));
    }
    for argument in command.get_arguments() {
        let name = format!("{path} {}", argument.get_id());
        add(&name, argument.get_help().map(ToString::to_string));
        add(&name, argument.get_long_help().map(ToString::to_string));
        for value in argument.get_possible_values() {
            let name = format!("{name} {}", value.get_name());
            add(&name, value.get_help().map(ToString::to_string));
        }
    }
    for sub in command.get_subcommands() {
        helps(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

#[test]
fn help_lines_fit_80_columns() {
    let mut found = Vec::new();
    helps(&definition(), "memtide", &mut found);
    assert!(found.len() > 200, "{} help texts", found.len());
    let long: Vec<String> = found
        .iter()
        .flat_map(|(name, help)| help.lines().map(move |line| (name, line)))
        .filter(|(_, line)| line.chars().count() > HELP_COLUMNS)
        .map(|(name, line)| format!("{name}: {line}"))
        .collect();
    assert!(long.is_empty(), "longer than {HELP_COLUMNS} characters: {long:#?}");
}

#[test]
fn rust_lines_wrap_at_110_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "fuzz"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 500, "{} files", files.len());
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        let lines = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > SOURCE_COLUMNS);
        long.extend(lines.map(|(number, _)| format!("{}:{number}", file.display())));
    }
    assert!(long.is_empty(), "longer than {SOURCE_COLUMNS} characters: {long:#?}");
}

#[test]
fn every_command_and_option_has_help() {
    fn without(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        if command.get_about().is_none() {
            found.push(path.to_owned());
        }
        let undescribed = command.get_arguments().filter(|argument| argument.get_help().is_none());
        found.extend(undescribed.map(|argument| format!("{path} {}", argument.get_id())));
        for sub in command.get_subcommands() {
            without(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }
    let mut found = Vec::new();
    without(&definition(), "memtide", &mut found);
    assert!(found.is_empty(), "without help: {found:?}");
}

#[test]
fn every_policy_says_when_to_use_it_and_what_was_measured() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies");
    for info in memtide_policies::placements().chain(memtide_policies::migrations()) {
        assert!(info.when.len() > 20 && info.when != info.summary, "{}", info.name);
        let page = fs::read_to_string(pages.join(format!("{}.md", info.name))).expect("a policy's page");
        assert!(page.contains("\n**Measured.** "), "{}.md", info.name);
    }
}

#[test]
fn commands_in_docs_parse() {
    let examples: Vec<docs::Example> = docs::pages().iter().flat_map(|page| docs::examples(page)).collect();
    assert!(examples.len() > 80, "{} commands", examples.len());
    let refused: Vec<String> = examples
        .iter()
        .filter_map(|example| {
            let error = definition().try_get_matches_from(&example.words).err()?;
            Some(format!("{}: {}\n{error}", example.place, example.words.join(" ")))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn shell_lines_are_split_into_commands() {
    let line =
        "timeout 9 memtide lab run --file $(which memtide):/m -- memtide why 1 2; memtide topo > 'a b' # c";
    let found = docs::in_line("here", line);
    let words: Vec<String> = found.iter().map(|example| example.words.join(" ")).collect();
    let run = "memtide lab run --file $(which memtide):/m -- memtide why 1 2";
    assert_eq!(words, [run, "memtide why 1 2", "memtide topo"]);
    assert_eq!(found[2].output.as_deref(), Some("a b"));
    assert_eq!(docs::in_line("here", "memtide run -- sh -c 'a; b' | c")[0].words[5], "a; b");
}
