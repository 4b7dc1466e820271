//! The command line.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::commands::Command;
use crate::failure::{
    ALL_EXIT_CODES, DAEMON_EXIT_CODES, DOCTOR_EXIT_CODES, EXIT_CODES, Failure, PROGRAM_EXIT_CODES,
};

/// Places and migrates memory pages on machines whose memory is not all alike: simulate policies on a model of a
/// machine and compare them.
#[derive(Debug, Parser)]
#[command(name = "memtide", bin_name = "memtide", version, after_help = ALL_EXIT_CODES, propagate_version = true)]
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

/// What the parser says, unless memtide can say it better.
fn refused(error: clap::Error) -> Failure {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let (argument, value) = (said(ContextKind::InvalidArg), said(ContextKind::InvalidValue));
    let given = |option: &str| std::env::args().any(|word| word.split('=').next() == Some(option));
    if error.kind() == ErrorKind::MissingRequiredArgument
        && argument.contains("--trace")
        && let Some(option) = ["--skip", "--limit"].into_iter().find(|option| given(option))
    {
        return Failure::Usage(format!("{option} is for traces; give one by --trace FILE, or leave it out"));
    }
    let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    if error.kind() == ErrorKind::ValueValidation
        && let Some((_, least)) =
            why.strip_suffix(&format!("..{}", u64::MAX)).and_then(|w| w.rsplit_once(' '))
    {
        let message =
            format!("invalid value '{value}' for '{argument}': allowed are whole numbers from {least}");
        return Failure::Usage(message);
    }
    Failure::Parser(Box::new(error))
}

/// The definition that help, completions and man pages are made from.
pub fn definition() -> clap::Command {
    // `-o` of `record` is the trace: memtide record -o FILE -- PROGRAM.
    with_exit_codes(Cli::command())
        .mut_subcommand("record", |record| {
            record.mut_arg("output", |arg| arg.short(None)).after_help(PROGRAM_EXIT_CODES)
        })
        .mut_subcommand("doctor", |doctor| doctor.after_help(DOCTOR_EXIT_CODES))
        .mut_subcommand("daemon", |daemon| daemon.after_help(DAEMON_EXIT_CODES))
        .mut_subcommand("run", |run| run.after_help(PROGRAM_EXIT_CODES))
        .mut_subcommand("lab", |lab| lab.mut_subcommand("run", |run| run.after_help(PROGRAM_EXIT_CODES)))
}

fn with_exit_codes(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|sub| with_exit_codes(sub.after_help(EXIT_CODES)))
}
