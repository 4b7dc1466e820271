//! The commands, one file each.

mod compare;
mod completions;
mod machine;
mod man;
mod policy;
mod simulate;
mod workload;

use clap::Subcommand;

use crate::cli::Cli;
use crate::failure::Failure;

/// A command and its options.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run programs under several policies and compare them
    Compare(compare::Arguments),
    /// Run programs under one policy and show everything measured
    Simulate(simulate::Arguments),
    /// List, show, check and probe machines
    #[command(subcommand)]
    Machine(machine::Command),
    /// List and show workloads
    #[command(subcommand)]
    Workload(workload::Command),
    /// List and show policies
    #[command(subcommand)]
    Policy(policy::Command),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write a man page for every command
    Man(man::Arguments),
}

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let common = cli.common;
    match cli.command {
        Command::Compare(arguments) => compare::run(&arguments, common),
        Command::Simulate(arguments) => simulate::run(&arguments, common),
        Command::Machine(command) => machine::run(command, common),
        Command::Workload(command) => workload::run(command, common),
        Command::Policy(command) => policy::run(command, common),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}
