//! `memtide replay`.

use std::io::Read;
use std::path::PathBuf;

use clap::ValueHint;
use memtide_daemon::journal::replay::{Part, ReplayError, Replayed, replay};
use memtide_linux::input;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};
use crate::{advice, interrupt};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Journal, or its predecessor JOURNAL.old
    #[arg(value_name = "JOURNAL", value_hint = ValueHint::FilePath)]
    journal: PathBuf,
    /// Run this migration policy instead and compare its plans
    #[arg(short, long, value_name = "POLICY")]
    policy: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Replays a journal.
///
/// # Errors
/// If the same policy decides differently, after the output is printed.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(policy) = &arguments.policy {
        memtide_daemon::parse_migration(policy).map_err(|error| advice::on_policy(&error))?;
    }
    let name = arguments.journal.display().to_string();
    let mut bytes = Vec::new();
    input::open(&arguments.journal)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| Failure::unreadable(&name, &error))?;
    let other = arguments.policy.clone();
    let of = name.clone();
    let replayed = interrupt::interruptible(move || {
        replay(&bytes, other.as_deref()).map_err(|wrong| match wrong {
            ReplayError::Policy(why) => Failure::Usage(format!("{of}: {why}")),
            ReplayError::Journal(why) => Failure::Input(format!("{of}: {why}")),
        })
    })?;
    document(&replayed).print(arguments.common.output)?;
    let differing: u64 = replayed.parts.iter().map(|part| part.differing).sum();
    if differing > 0 && arguments.policy.is_none() {
        return Err(Failure::Run(format!("{name}: the policy plans otherwise in {differing} epochs")));
    }
    Ok(())
}

fn document(replayed: &Replayed) -> Document {
    let columns = [
        ("part", "part"),
        ("begun_unix_s", "begun"),
        ("memtide", "memtide"),
        ("machine", "machine"),
        ("policy", "policy"),
        ("epochs", "epochs"),
        ("recorded_pages", "pages to move, recorded"),
        ("planned_pages", "planned now"),
        ("differing_epochs", "epochs that differ"),
    ];
    let mut table = Table::new("parts", &columns);
    table.rows = (1..).zip(&replayed.parts).map(|(number, part)| row(number, part)).collect();
    let torn = replayed.torn_bytes as u64;
    let about = vec![
        ("torn_bytes", Cell::Whole(torn)),
        ("first_difference", replayed.difference.as_ref().map_or(Cell::Absent, Cell::text)),
    ];
    let mut notes = Vec::new();
    if torn > 0 {
        notes.push(format!(
            "The last {torn} bytes are an incomplete epoch, as after a crash, and are ignored."
        ));
    }
    Document { about, tables: vec![table], notes, ..Document::default() }
}

fn row(number: u64, part: &Part) -> Vec<Cell> {
    vec![
        Cell::Whole(number),
        Cell::UnixTime(part.begun_unix_s),
        Cell::text(&part.memtide),
        Cell::text(&part.machine),
        Cell::text(&part.policy),
        Cell::Whole(part.epochs),
        Cell::Whole(part.recorded_pages),
        Cell::Whole(part.planned_pages),
        Cell::Whole(part.differing),
    ]
}
