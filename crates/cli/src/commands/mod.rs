//! The commands, one file each.

mod compare;
mod completions;
mod counters;
mod daemon;
mod doctor;
mod lab;
mod machine;
mod man;
mod mark;
mod measure;
mod migrate;
mod policy;
mod record;
mod replay;
mod run;
mod simulate;
mod topo;
mod trace;
mod workload;

use clap::Subcommand;

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
    /// Run a program and record its memory accesses
    Record(record::Arguments),
    /// Run a program on this system with its pages placed by a policy
    Run(run::Arguments),
    /// Watch processes of this system, and move their pages as a migration policy says
    #[command(long_about = daemon::ABOUT)]
    Daemon(daemon::Arguments),
    /// Show what the daemon watches, and what it has done
    Status(daemon::SocketOptions),
    /// Show why a page of a process lies where it lies
    Why(daemon::Why),
    /// Have the daemon move nothing for now
    Pause(daemon::SocketOptions),
    /// Have the daemon move pages again
    Resume(daemon::SocketOptions),
    /// Move what a process has on some memory nodes to others
    Migrate(migrate::Arguments),
    /// Ask the policy of a daemon's journal again, and check that it decides the same
    Replay(replay::Arguments),
    /// Run programs on a real kernel in a virtual machine whose memory is the machine's
    #[command(subcommand)]
    Lab(lab::Command),
    /// Mark where a script's region of interest begins or ends, for `memtide lab run --region marks`
    Mark(mark::Arguments),
    /// Show what nodes and processes have read and written, in a guest of the lab
    Counters(counters::Arguments),
    /// Say what of memtide works on this system, what stands in the way, and how to mend it
    Doctor(doctor::Arguments),
    /// Measure latency and bandwidth of this system's memory nodes
    Measure(measure::Arguments),
    /// Show this system's memory nodes: CPUs, sizes, tiers, distances, the firmware's figures; or write its machine file
    Topo(topo::Arguments),
    /// Check, show and import traces
    #[command(subcommand)]
    Trace(trace::Command),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Write a man page for every command
    Man(man::Arguments),
}

/// Runs a command. `definition` is that of the whole command line, for man pages and completions.
pub fn run(command: Command, definition: fn() -> clap::Command) -> Result<(), Failure> {
    match command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Machine(command) => machine::run(command),
        Command::Workload(command) => workload::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Record(arguments) => record::run(arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Status(at) => daemon::status(&at),
        Command::Why(arguments) => daemon::why(&arguments),
        Command::Pause(at) => daemon::pause(&at),
        Command::Resume(at) => daemon::resume(&at),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Lab(command) => lab::run(command),
        Command::Mark(arguments) => {
            mark::run(&arguments);
            Ok(())
        }
        Command::Counters(arguments) => counters::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Measure(arguments) => measure::run(&arguments),
        Command::Topo(arguments) => topo::run(&arguments),
        Command::Trace(command) => trace::run(command),
        Command::Completions(arguments) => completions::run(&arguments, definition()),
        Command::Man(arguments) => man::run(&arguments, definition()),
    }
}
