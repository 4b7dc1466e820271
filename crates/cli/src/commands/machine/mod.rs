//! `memtide machine`.

mod check;
mod devices;
mod list;
mod probe;
mod show;

use clap::Subcommand;

use crate::failure::Failure;
use crate::options::Common;

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the bundled machines
    List(Common),
    /// Print every figure of a machine with its unit and source
    Show(show::Arguments),
    /// Check machine files
    Check(check::Arguments),
    /// List the devices for [node.dram], or print one
    Devices(devices::Arguments),
    /// Probe latency and bandwidth of the modelled nodes
    Probe(probe::Arguments),
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(common) => list::run(common),
        Command::Show(arguments) => show::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
    }
}
