//! The commands, one file each.

mod compare;
mod completions;
mod counters;
mod daemon;
mod doctor;
mod explain;
mod lab;
mod machine;
mod man;
mod mark;
mod measure;
mod migrate;
mod policy;
mod record;
mod replay;
mod repro;
mod run;
mod simulate;
mod sweep;
mod top;
mod topo;
mod trace;
mod validate;
mod workload;

use clap::Subcommand;

use crate::failure::Failure;

/// A command and its options.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate programs under several policies and compare them
    Compare(compare::Arguments),
    /// Simulate as compare does and explain where the time went
    Explain(compare::Arguments),
    /// Simulate programs under one policy and print all figures
    Simulate(simulate::Arguments),
    /// Simulate programs over a range of a machine's figures
    Sweep(sweep::Arguments),
    /// Reproduce papers' figures and compare with what they report
    Repro(repro::Arguments),
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
    /// Run a program here with its pages placed by a policy
    Run(run::Arguments),
    /// Watch processes and migrate their pages by a policy
    #[command(long_about = daemon::ABOUT)]
    Daemon(daemon::Arguments),
    /// Show what the daemon watches and what it migrated
    Status(daemon::SocketOptions),
    /// Show nodes, processes and moves as they change
    #[command(long_about = top::ABOUT)]
    Top(top::Arguments),
    /// Explain where a page is and why
    Why(daemon::Why),
    /// Pause migration
    Pause(daemon::SocketOptions),
    /// Resume migration
    Resume(daemon::SocketOptions),
    /// Move a process's pages from some nodes to others
    Migrate(migrate::Arguments),
    /// Run a journal's policy again and check that it decides the same
    Replay(replay::Arguments),
    /// Run programs on a real kernel in a VM with the machine's memory
    #[command(subcommand)]
    Lab(lab::Command),
    /// Mark a region of interest for `memtide lab run --region marks`
    Mark(mark::Arguments),
    /// Print memory traffic of nodes and processes in a guest of the lab
    Counters(counters::Arguments),
    /// Check what works here and how to fix the rest
    Doctor(doctor::Arguments),
    /// Measure latency and bandwidth of this system's memory nodes
    Measure(measure::Arguments),
    /// Print this system's memory nodes or write its machine file
    Topo(topo::Arguments),
    /// Compare simulated workloads with this system's own times
    Validate(validate::Arguments),
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
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Repro(arguments) => repro::run(&arguments),
        Command::Machine(command) => machine::run(command),
        Command::Workload(command) => workload::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Record(arguments) => record::run(arguments).map_err(Failure::of_program_runner),
        Command::Run(arguments) => run::run(&arguments).map_err(Failure::of_program_runner),
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Status(at) => daemon::status(&at),
        Command::Top(arguments) => top::run(&arguments),
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
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Trace(command) => trace::run(command),
        Command::Completions(arguments) => completions::run(&arguments, definition()),
        Command::Man(arguments) => man::run(&arguments, definition()),
    }
}
