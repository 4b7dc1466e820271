//! `memtide record`.

use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueHint;
use indicatif::{DecimalBytes, HumanCount};
use memtide_trace::{
    MAX_EPOCH_INSTRUCTIONS, RecordOptions, RecordProgress, RecordSummary, TraceError, Unrecordable, record,
};

use crate::advice;
use crate::failure::Failure;
use crate::options::{Common, FiguresFile};
use crate::output::{Cell, Document, Table};
use crate::progress::Progress;

/// Its arguments. `-o` is the trace here, as in `memtide record -o FILE -- PROGRAM`; `--output` stays the
/// answer's format.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Trace to write
    #[arg(short = 'o', long = "to", value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Accesses to omit at the start
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Maximum number of accesses to record [default: no limit]
    ///
    /// The program then continues unrecorded.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Instructions of all threads per epoch, 10000 to 1000000
    #[arg(long, value_name = "N", default_value_t = MAX_EPOCH_INSTRUCTIONS,
        value_parser = clap::value_parser!(u64).range(10_000..=MAX_EPOCH_INSTRUCTIONS))]
    epoch: u64,
    /// Recorder plugin [default: the one installed with memtide]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    figures: FiguresFile,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
    #[command(flatten)]
    common: Common,
}

/// Records the program and prints what was recorded, to the file of --figures or to standard error: standard
/// output is the program's. Then passes the program's exit status on.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let files =
        [Some(&arguments.trace), arguments.plugin.as_ref()].into_iter().flatten().map(PathBuf::as_path);
    arguments.figures.check(files.chain(arguments.command.iter().map(Path::new)))?;
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let options = RecordOptions {
        skip: arguments.skip,
        limit,
        epoch_instructions: arguments.epoch,
        plugin: arguments.plugin,
        ..RecordOptions::new(&arguments.trace, arguments.command)
    };
    let progress = Progress::new("writing", 1);
    let mut log = RecordProgressLog::new();
    let summary = record(&options, &mut |now| match now {
        RecordProgress::Running { accesses, bytes, .. } => log.update(accesses, bytes),
        RecordProgress::Writing { share } => progress.set(0, share),
    });
    drop(progress);
    let summary = summary.map_err(|error| match error {
        TraceError::Interrupted => Failure::Interrupted,
        other => {
            let message = advice::trace::message(&other);
            match other {
                TraceError::Record { why: Unrecordable::NotFound, .. } => Failure::NotFound(message),
                TraceError::Record {
                    why: Unrecordable::NotExecutable(_) | Unrecordable::Script { .. },
                    ..
                } => Failure::NotExecutable(message),
                _ => Failure::NotRun(message),
            }
        }
    })?;
    let document = document(&arguments.trace, &summary);
    arguments.figures.write(&document, arguments.common.output)?;
    let status = summary.status;
    match status.code().or_else(|| Some(128 + status.signal()?)) {
        None | Some(0) => Ok(()),
        Some(code) => Err(Failure::Program(code as u8)),
    }
}

fn document(trace: &Path, summary: &RecordSummary) -> Document {
    let columns = [
        ("file", "trace"),
        ("accesses", "accesses"),
        ("made_accesses", "accesses of the program"),
        ("instructions", "instructions"),
        ("threads", "threads"),
        ("file_bytes", "size, B"),
        ("program_status", "program ended with"),
    ];
    let mut table = Table::new("recorded", &columns);
    table.rows.push(vec![
        Cell::text(trace.display().to_string()),
        Cell::Whole(summary.totals.accesses),
        Cell::Whole(summary.accesses_made),
        Cell::Whole(summary.totals.instructions),
        Cell::Whole(summary.totals.threads.into()),
        Cell::Whole(summary.bytes),
        Cell::text(summary.status.to_string()),
    ]);
    let stopped =
        summary.stopped.iter().map(|why| format!("recording stopped before the program ended: {why}"));
    Document { notes: stopped.collect(), ..Document::of(table) }
}

/// Prints a recording's progress as whole lines, at doubling intervals up to a minute, since the program
/// shares the terminal.
struct RecordProgressLog {
    started: Instant,
    next: Duration,
    shown: bool,
}

impl RecordProgressLog {
    fn new() -> RecordProgressLog {
        RecordProgressLog {
            started: Instant::now(),
            next: Duration::from_secs(1),
            shown: stderr().is_terminal(),
        }
    }

    fn update(&mut self, accesses: u64, bytes: u64) {
        let elapsed = self.started.elapsed();
        if !self.shown || elapsed < self.next {
            return;
        }
        self.next = elapsed + elapsed.min(Duration::from_secs(60));
        let (accesses, bytes) = (HumanCount(accesses), DecimalBytes(bytes));
        message!("memtide: {accesses} accesses so far, {bytes} on disk, {} s", elapsed.as_secs());
    }
}
