//! `memtide trace`.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum, ValueHint};
use memtide_trace::{ImportKind, Trace, TraceError, import};

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Format, Table};
use crate::progress::Progress;
use crate::{advice, interrupt};

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a trace and print its contents in figures
    Info {
        /// Trace
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        trace: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Convert another tool's recording into a trace
    Import {
        /// Recording
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        input: PathBuf,
        /// Format of the recording
        #[arg(long, value_enum)]
        format: Kind,
        /// Trace to write
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        to: PathBuf,
        #[command(flatten)]
        common: Common,
    },
}

/// Formats that can be imported.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Kind {
    /// Output of `valgrind --tool=lackey --trace-mem=yes`
    Lackey,
    /// `thread,instructions,address,size,write[,pc,producer]` with header
    Csv,
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Info { trace, common } => info(&trace, common),
        Command::Import { input, format, to, common } => import_to(&input, format, &to, common),
    }
}

fn info(path: &Path, common: Common) -> Result<(), Failure> {
    let progress = Progress::new("reading", 1);
    let info = Trace::open(path).and_then(|trace| trace.info(&mut watch(&progress)));
    drop(progress);
    let info = info.map_err(refused)?;
    let whole = serde_json::to_value(&info).map_err(|error| Failure::Run(error.to_string()))?;
    if common.output == Format::Json {
        return output::print(&output::pretty(&whole));
    }
    let mut table = Table::new("trace", &[("figure", "figure"), ("value", "value")]);
    for (key, value) in whole.as_object().into_iter().flatten() {
        let name = if common.output == Format::Table { key.replace('_', " ") } else { key.clone() };
        let cell = match (value.as_u64(), value.as_f64()) {
            (Some(number), _) => Cell::Whole(number),
            (None, Some(number)) => Cell::Real(number, 3),
            _ => Cell::text(value.as_str().unwrap_or_default()),
        };
        table.rows.push(vec![Cell::text(name), cell]);
    }
    Document::of(table).print(common.output)
}

fn import_to(input: &Path, kind: Kind, output: &Path, common: Common) -> Result<(), Failure> {
    let kind = match kind {
        Kind::Lackey => ImportKind::Lackey,
        Kind::Csv => ImportKind::Csv,
    };
    let progress = Progress::new("importing", 1);
    let totals = import(kind, input, output, &mut watch(&progress));
    drop(progress);
    let totals = totals.map_err(refused)?;
    let columns = [
        ("file", "trace"),
        ("accesses", "accesses"),
        ("instructions", "instructions"),
        ("threads", "threads"),
        ("epochs", "epochs"),
    ];
    let mut table = Table::new("imported", &columns);
    table.rows.push(vec![
        Cell::text(output.display().to_string()),
        Cell::Whole(totals.accesses),
        Cell::Whole(totals.instructions),
        Cell::Whole(totals.threads.into()),
        Cell::Whole(totals.epochs.into()),
    ]);
    Document::of(table).print(common.output)
}

/// Prints progress; returns whether to continue.
fn watch(progress: &Progress) -> impl FnMut(f64) -> bool + '_ {
    |share| {
        progress.set(0, share);
        !interrupt::requested()
    }
}

/// A trace or a recording that is refused.
fn refused(error: TraceError) -> Failure {
    match error {
        TraceError::Interrupted => Failure::Interrupted,
        other => Failure::Input(advice::trace::message(&other)),
    }
}
