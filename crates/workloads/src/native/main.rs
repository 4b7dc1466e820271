//! Runs a workload natively: the lab's programs. Marks the beginning and end of the workload itself, so that
//! `memtide lab run --region marks` excludes the creation of its data.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use memtide_core::params::split_name;
use memtide_lab_protocol::mark::{BEGIN, END, mark};
use memtide_workloads::{Edge, Params, native};

/// Run a memtide workload natively, on this machine's memory
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// NAME[:KEY=VALUE,..] of `memtide workload list`
    workload: String,
    /// Seed for everything random
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "memtide-workload: {error}");
            ExitCode::from(if error.is::<io::Error>() { 1 } else { 2 })
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (name, params) = split_name(&arguments.workload);
    let params: Params = params.parse()?;
    let (start, took) = (Cell::new(Instant::now()), Cell::new(Duration::ZERO));
    let result = native(name, &params, arguments.seed, &|edge| match edge {
        Edge::Begin => {
            mark(BEGIN, 0);
            start.set(Instant::now());
        }
        Edge::End => {
            took.set(start.get().elapsed());
            mark(END, 0);
        }
    })?;
    print(&format!("time_ns {}\nresult {result}\n", took.get().as_nanos()))?;
    Ok(())
}

/// Writes to standard output; ignores a closed pipe, as of `head`.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
