//! The `memtide` command.

/// Prints a line on standard error, safe for a terminal; a closed standard error is ignored.
macro_rules! message {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        // One write: other processes write there, too.
        let line = format!("{}\n", format_args!($($what)*));
        let _ = std::io::stderr().write_all($crate::output::escaped(&line).as_bytes());
    }};
}

mod advice;
mod cli;
mod commands;
mod failure;
mod interrupt;
mod machines;
mod memory_guard;
mod options;
mod output;
mod parallel;
mod progress;
mod report;
mod runs;
mod tables;
mod weights;
#[cfg(test)]
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = cli::parse().and_then(|cli| {
        // `record` and `run` handle signals themselves.
        if !matches!(cli.command, commands::Command::Record(_) | commands::Command::Run(_)) {
            interrupt::install()?;
        }
        commands::run(cli.command, cli::definition)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
