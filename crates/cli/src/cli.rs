//! The command line.

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::failure::{
    ALL_EXIT_CODES, DAEMON_EXIT_CODES, DOCTOR_EXIT_CODES, EXIT_CODES, Failure, PROGRAM_EXIT_CODES,
};
use crate::runs::for_traces;

/// Simulate, rehearse and deploy memory page placement and migration
#[derive(Debug, Parser)]
#[command(name = "memtide", bin_name = "memtide", version, propagate_version = true)]
#[command(after_help = ALL_EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Reads the command line.
pub fn parse() -> Result<Cli, Failure> {
    let read = definition().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    read.map_err(refused)
}

/// The parser's message, or a better one.
fn refused(error: clap::Error) -> Failure {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let (argument, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let given = |option: &str| std::env::args().any(|word| word.split('=').next() == Some(option));
    if error.kind() == ErrorKind::MissingRequiredArgument
        && argument.contains("--trace")
        && let Some(option) = ["--skip", "--limit"].into_iter().find(|option| given(option))
    {
        return Failure::Usage(for_traces(option));
    }
    if error.kind() == ErrorKind::ValueValidation
        && let Some(expected) = integers_of(&argument, std::env::args())
    {
        return Failure::Usage(format!("invalid value '{value}' for '{argument}': expected {expected}"));
    }
    Failure::Parser(Box::new(error))
}

/// Allowed values of an integer argument of the called command: clap names neither the type nor, for
/// non-numbers, the range.
fn integers_of(argument: &str, words: impl Iterator<Item = String>) -> Option<String> {
    let mut command = definition();
    command.build();
    for word in words.skip(1) {
        if let Some(sub) = command.find_subcommand(&word) {
            command = sub.clone();
        }
    }
    let arg = command.get_arguments().find(|arg| arg.to_string() == argument)?;
    let parser = arg.get_value_parser();
    let of_word = refusal(parser, "x")?;
    if !of_word.contains("invalid digit") {
        return None;
    }
    // Out of range, clap's message has the range.
    let beyond = [i64::MIN.to_string(), i64::MAX.to_string(), 0.to_string(), u64::MAX.to_string()];
    let range = beyond.iter().filter_map(|number| refusal(parser, number)).find_map(|why| {
        let (_, range) = why.split_once(" is not in ")?;
        range
            .split_once("..")
            .map(|(least, most)| (least.to_owned(), most.trim_start_matches('=').to_owned()))
    });
    let (least, most) = range.unwrap_or_else(|| ("0".to_owned(), u64::MAX.to_string()));
    let endless = [u64::MAX.to_string(), i64::MAX.to_string()].contains(&most);
    Some(if endless {
        format!("an integer of at least {least}")
    } else {
        format!("an integer from {least} to {most}")
    })
}

/// A value parser's reason for a refusal.
fn refusal(parser: &ValueParser, value: &str) -> Option<String> {
    let probe = Arg::new("value").allow_hyphen_values(true).value_parser(parser.clone());
    let read = clap::Command::new("probe").no_binary_name(true).arg(probe).try_get_matches_from([value]);
    std::error::Error::source(&read.err()?).map(ToString::to_string)
}

/// The definition that help, completions and man pages are made from.
pub fn definition() -> clap::Command {
    // `-o` of `record` is the trace: memtide record -o FILE -- PROGRAM.
    with_exit_codes(with_negative_values(Cli::command()))
        .mut_subcommand("record", |record| {
            record.mut_arg("output", |arg| arg.short(None)).after_help(PROGRAM_EXIT_CODES)
        })
        .mut_subcommand("doctor", |doctor| doctor.after_help(DOCTOR_EXIT_CODES))
        .mut_subcommand("daemon", |daemon| daemon.after_help(DAEMON_EXIT_CODES))
        .mut_subcommand("run", |run| run.after_help(PROGRAM_EXIT_CODES))
        .mut_subcommand("lab", |lab| lab.mut_subcommand("run", |run| run.after_help(PROGRAM_EXIT_CODES)))
}

/// A negative value is refused as one, instead of as an unknown option.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let negative = |arg: Arg| {
        let takes_value = arg.get_long().is_some() && arg.get_action().takes_values();
        if takes_value { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(negative).mut_subcommands(with_negative_values)
}

fn with_exit_codes(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|sub| with_exit_codes(sub.after_help(EXIT_CODES)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Folders of `crates` that are not libraries of the command.
    const OTHERS: [&str; 3] = ["cli", "guest", "plugins"];

    /// Files that name commands or options for other reasons than advice: doctor's remedies, the source of a
    /// machine's figures, damo's own options, and the commands of subjects.
    const EXCEPTIONS: [&str; 5] = [
        "linux/src/doctor/",
        "linux/src/topology/machine.rs",
        "lab/src/damo.rs",
        "lab/src/memtide.rs",
        "lab/src/subjects.rs",
    ];

    /// `memtide NAME..` of each command that has no subcommands, and ` --NAME` of each option.
    fn names(command: &clap::Command, path: &str, names: &mut Vec<String>) {
        let longs = command.get_arguments().filter_map(clap::Arg::get_long);
        names.extend(longs.map(|long| format!("--{long}")));
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            self::names(sub, &path, names);
            if !sub.has_subcommands() {
                names.push(path);
            }
        }
    }

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("tests" | "tests.rs") => {}
                _ if path.is_dir() => files(&path, found),
                Some(name) if name.ends_with(".rs") => found.push(path),
                _ => {}
            }
        }
    }

    /// Whether a line names a command or an option as advice does: not `"--option"`, as code passes it to a
    /// program, and not `a memtide daemon`.
    fn names_in(line: &str, name: &str) -> bool {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let whole = !after.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-');
            let advises = if name.starts_with("--") {
                before.ends_with([' ', '`', '('])
            } else {
                ![" a ", "\"a "].iter().any(|article| before.ends_with(article))
            };
            whole && advises
        })
    }

    /// Every option that takes a number, with its command.
    fn number_options(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        for arg in command.get_arguments() {
            if refusal(arg.get_value_parser(), "x").is_some_and(|why| why.contains("invalid digit")) {
                found.push((path.to_owned(), arg.to_string()));
            }
        }
        for sub in command.get_subcommands() {
            number_options(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    #[test]
    fn integer_options_print_range() {
        let mut command = definition();
        command.build();
        let mut options = Vec::new();
        number_options(&command, "memtide", &mut options);
        assert!(options.len() > 15, "{options:?}");
        for (path, argument) in &options {
            let expected = integers_of(argument, path.split(' ').map(str::to_owned));
            let expected = expected.unwrap_or_else(|| panic!("{path} {argument}"));
            let numbers: Vec<&str> = expected.split(' ').filter(|word| word.parse::<u64>().is_ok()).collect();
            assert!(
                expected.starts_with("an integer ") && !numbers.is_empty(),
                "{path} {argument}: {expected}"
            );
            assert!(!expected.contains("18446744073709551615"), "{path} {argument}: {expected}");
        }
        let of = |words: &str, argument: &str| {
            integers_of(argument, words.split(' ').map(str::to_owned)).expect("an option that takes integers")
        };
        assert_eq!(of("memtide compare", "--copies <N>"), "an integer from 1 to 1024");
        assert_eq!(of("memtide compare", "--limit <N>"), "an integer of at least 1");
        assert_eq!(of("memtide machine probe x", "--requests <N>"), "an integer from 100 to 1000000000");
    }

    #[test]
    fn libraries_do_not_name_commands_or_options() {
        let mut known = Vec::new();
        names(&definition(), "memtide", &mut known);
        known.sort_unstable();
        known.dedup();
        assert!(
            known.iter().any(|name| name == "memtide lab setup") && known.iter().any(|name| name == "--mib")
        );
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
        let mut sources = Vec::new();
        for library in fs::read_dir(crates).expect("the crates").flatten() {
            if OTHERS.iter().all(|other| library.file_name() != *other) {
                files(&library.path().join("src"), &mut sources);
            }
        }
        assert!(sources.len() > 100, "{} sources", sources.len());
        let mut found = Vec::new();
        for source in sources {
            let name = source.strip_prefix(crates).expect("a crate's file").display().to_string();
            if EXCEPTIONS.iter().any(|exception| name.starts_with(exception)) {
                continue;
            }
            let text = fs::read_to_string(&source).expect("a source");
            let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
            for line in lines.filter(|line| !line.trim_start().starts_with("//")) {
                found.extend(
                    known
                        .iter()
                        .filter(|known| names_in(line, known))
                        .map(|known| format!("{name}: {known}")),
                );
            }
        }
        assert!(found.is_empty(), "name these in `advice` instead: {found:#?}");
    }
}
