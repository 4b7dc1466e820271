//! `memtide record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;
use memtide_trace::{MAX_EPOCH_INSTRUCTIONS, RecordOptions, RecordProgress, record};

use crate::answer::{Answer, Cell, Table};
use crate::cli::Common;
use crate::failure::Failure;
use crate::progress::Progress;

/// Its arguments. `-o` is the trace here, as in `memtide record -o FILE -- PROGRAM`; `--output` stays the answer's format.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The trace to write
    #[arg(short = 'o', long = "to", value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Leave out this many accesses at the start
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Record this many accesses at most; the program then runs on unrecorded
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Instructions of all threads in an epoch, 10000 to 1000000
    #[arg(long, value_name = "N", default_value_t = MAX_EPOCH_INSTRUCTIONS,
        value_parser = clap::value_parser!(u64).range(10_000..=MAX_EPOCH_INSTRUCTIONS))]
    epoch: u64,
    /// The recorder plugin, if it does not lie beside memtide
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plugin: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

/// Records the program and says what was recorded, on standard error: standard output is the program's.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let options = RecordOptions {
        skip: arguments.skip,
        limit,
        epoch_instructions: arguments.epoch,
        plugin: arguments.plugin,
        ..RecordOptions::new(&arguments.trace, arguments.command)
    };
    let progress = Progress::new("writing", 1);
    let summary = record(&options, &mut |now| {
        if let RecordProgress::Writing { share } = now {
            progress.set(0, share);
        }
    });
    drop(progress);
    let summary = summary.map_err(|error| Failure::Run(error.to_string()))?;
    let columns = [
        ("file", "trace"),
        ("accesses", "accesses"),
        ("made_accesses", "made by the program"),
        ("instructions", "instructions"),
        ("threads", "threads"),
        ("file_bytes", "size, B"),
        ("program_status", "program ended with"),
    ];
    let mut table = Table::new("recorded", &columns);
    table.rows.push(vec![
        Cell::text(arguments.trace.display().to_string()),
        Cell::Whole(summary.totals.accesses),
        Cell::Whole(summary.accesses_made),
        Cell::Whole(summary.totals.instructions),
        Cell::Whole(summary.totals.threads.into()),
        Cell::Whole(summary.bytes),
        Cell::text(summary.status.to_string()),
    ]);
    let notes = summary.stopped.map(|why| format!("recording stopped before the program did: {why}"));
    let answer = Answer { notes: notes.into_iter().collect(), ..Answer::of(table) };
    eprint!("{}", answer.text(arguments.common.output));
    Ok(())
}
