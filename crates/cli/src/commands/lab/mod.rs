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
    /// Find what the lab needs and get what is missing: QEMU, a kernel and damo for its virtual machines
    Setup(setup::Arguments),
    /// Run a program of this system on a real kernel in a virtual machine with the machine's nodes
    Run(run::Arguments),
    /// Run a program under several ways to place and migrate pages, each in a fresh virtual machine, and compare them
    Compare(compare::Arguments),
    /// Open a shell in such a virtual machine
    Shell(shell::Arguments),
    /// Plug memory of nodes into running guests, and unplug it
    #[command(subcommand)]
    Node(node::Command),
}

/// Carries one out.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Shell(arguments) => shell::run(arguments),
        Command::Node(command) => node::run(command),
    }
}
