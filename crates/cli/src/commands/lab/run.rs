//! `memtide lab run`.

use std::ffi::OsString;
use std::io::{stderr, stdout};

use clap::ValueHint;
use memtide_lab::{Output, run as run_in_lab};

use super::{figures, guest, memory, region_options};
use crate::failure::Failure;
use crate::options::Common;
use crate::report::{self, LabRun, ReportFile};
use crate::{interrupt, output};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    guest: guest::GuestOptions,
    #[command(flatten)]
    memory: memory::MemoryOptions,
    #[command(flatten)]
    region_options: region_options::RegionOptions,
    #[command(flatten)]
    report: ReportFile,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

/// Runs the program and says what was measured, on standard error: standard output is the program's. Then passes the program's
/// exit status on.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let draft = arguments.report.draft()?;
    let (options, tools) = arguments.guest.options(arguments.command, arguments.common.seed)?;
    let options = arguments.memory.of(arguments.region_options.of(options));
    let output = Output { out: Box::new(stdout()), err: Box::new(stderr()) };
    let outcome = run_in_lab(&options, &tools, output, &interrupt::asked).map_err(guest::failure)?;
    let document = figures::document(&outcome);
    eprint!("{}", document.text(arguments.common.output, output::width_of(stderr())));
    if let Some(draft) = draft {
        let guest_ms = outcome.guest_ns as f64 / 1e6;
        let runs = [LabRun { name: outcome.machine.clone(), guest_ms, outcome: &outcome }];
        draft.write(&report::of_lab(&guest::line(&options.command), &options.machine, &runs, &document))?;
    }
    match outcome.status {
        0 => Ok(()),
        status => Err(Failure::Program(status)),
    }
}
