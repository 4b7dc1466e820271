//! `memtide lab`.

mod compare;
mod figures;
mod guest;
mod memory;
mod node;
mod region_options;
mod rows;
mod run;
mod setup;
mod shell;

use clap::Subcommand;

use crate::failure::Failure;

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install QEMU, a guest kernel and damo
    Setup(setup::Arguments),
    /// Run a program on a real kernel in a VM with the machine's nodes
    Run(run::Arguments),
    /// Compare placement and migration, each subject in a fresh VM
    Compare(compare::Arguments),
    /// Open a shell in a VM with the machine's nodes
    Shell(shell::Arguments),
    /// Hotplug memory of running guests
    #[command(subcommand)]
    Node(node::Command),
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Run(arguments) => run::run(arguments).map_err(Failure::of_program_runner),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Shell(arguments) => shell::run(arguments),
        Command::Node(command) => node::run(command),
    }
}
