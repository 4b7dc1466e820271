//! The `memtide` command.

mod answer;
mod cli;
mod commands;
mod failure;
mod interrupt;
mod machines;
mod parallel;
mod progress;
mod share;
mod suggest;

use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = cli::parse().and_then(|cli| {
        interrupt::install()?;
        commands::run(cli)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
