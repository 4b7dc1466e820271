//! `memtide lab run`.

use std::ffi::OsString;
use std::io::{stderr, stdout};
use std::path::Path;

use clap::ValueHint;
use memtide_lab::{Output, run as run_in_lab};

use super::{figures, guest, memory, region_options};
use crate::failure::Failure;
use crate::interrupt;
use crate::options::{Common, FiguresFile};
use crate::report::{self, LabRun, ReportFile};

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
    #[command(flatten)]
    figures: FiguresFile,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

/// Runs the program and prints what was measured, to the file of --figures or to standard error: standard
/// output is the program's. Then passes the program's exit status on.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let draft = arguments.report.draft()?;
    let program = arguments.command.iter().map(Path::new);
    let used = arguments.guest.host_files().chain(arguments.memory.host_files());
    arguments.figures.check(used.chain(arguments.report.path()).chain(program))?;
    let (options, tools) = arguments.guest.options(arguments.command, arguments.common.seed)?;
    let options = arguments.memory.of(arguments.region_options.of(options));
    let output = Output { out: Box::new(stdout()), err: Box::new(stderr()) };
    let outcome = run_in_lab(&options, &tools, output, &interrupt::requested).map_err(guest::failure)?;
    let document = figures::document(&outcome, &options);
    arguments.figures.write(&document, arguments.common.output)?;
    if let Some(draft) = draft {
        let guest_ms = figures::guest_ns(&outcome, options.region) / 1e6;
        let runs = [LabRun { name: outcome.machine.clone(), guest_ms, outcome: &outcome }];
        draft.write(&report::of_lab(&guest::line(&options.command), &options.machine, &runs, &document))?;
    }
    match outcome.status {
        0 => Ok(()),
        status => Err(Failure::Program(status)),
    }
}
