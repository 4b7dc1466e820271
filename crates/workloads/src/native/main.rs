//! Runs a workload natively: the lab's programs. Marks its warm-up and region of interest, so that
//! `memtide lab run --region marks` and `memtide record` exclude its initialisation, and prints the time of
//! each stage.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use memtide_core::params::split_name;
use memtide_core::{Mark, Stage};
use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use memtide_workloads::{Pace, Params, native};

/// Run a memtide workload natively, on this machine's memory
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// NAME[:KEY=VALUE,..] of `memtide workload list`
    workload: String,
    /// Seed for everything random
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Repeat the region for this time before it is measured
    #[arg(long, default_value_t = 0.0, value_name = "S", value_parser = seconds)]
    warm_up: f64,
    /// Share of the time that threads work before the warm-up's last tenth, in %
    #[arg(long, default_value_t = 100, value_name = "%")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    duty: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("a time from 0 to 1000000 s".to_owned()),
    }
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
    let clock = Mutex::new(StageClock::start());
    let pace = Pace { warm_up: Duration::from_secs_f64(arguments.warm_up), duty_percent: arguments.duty };
    let result = native(name, &params, arguments.seed, pace, &|made| {
        // The clock runs between the two instructions, which may take long.
        match made {
            Mark::WarmUp => mark(WARM_UP, 0),
            Mark::Begin => mark(BEGIN, 0),
            Mark::End => {}
        }
        clock.lock().expect("no thread panics").mark(made);
        if made == Mark::End {
            mark(END, 0);
        }
    })?;
    let clock = clock.lock().expect("no thread panics");
    let mut text = format!("time_ns {}\nresult {result}\n", clock.spent(Stage::Region));
    for (stage, name) in [(Stage::Initialisation, "initialisation_ns"), (Stage::WarmUp, "warm_up_ns")] {
        text += &format!("{name} {}\n", clock.spent(stage));
    }
    print(&text)?;
    Ok(())
}

/// Time in each stage.
struct StageClock {
    stage: Stage,
    since: Instant,
    spent: [Duration; Stage::ALL.len()],
}

impl StageClock {
    fn start() -> StageClock {
        StageClock { stage: Stage::Initialisation, since: Instant::now(), spent: Default::default() }
    }

    fn mark(&mut self, mark: Mark) {
        let now = Instant::now();
        self.spent[self.stage as usize] += now - self.since;
        (self.stage, self.since) = (self.stage.after(mark), now);
    }

    /// Time spent in a stage up to the last mark, in ns.
    fn spent(&self, stage: Stage) -> u128 {
        self.spent[stage as usize].as_nanos()
    }
}

/// Writes to standard output; ignores a closed pipe, as of `head`.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
