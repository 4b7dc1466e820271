//! `memtide doctor`.

use memtide_core::policy::Answer;
use memtide_lab::Tools;
use memtide_linux::doctor::{Finding, State, Use, examine, obstacles, works};
use memtide_linux::sensors::answers;

use crate::advice;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};
use crate::tables::SENSOR_COLUMNS;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print problems only
    #[arg(long)]
    brief: bool,
    #[command(flatten)]
    common: Common,
}

/// Prints what works here, what does not, why, and how to fix it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let findings = examine();
    let shown = |finding: &&Finding| !arguments.brief || finding.state != State::Good;
    let document = Document {
        tables: vec![uses(&findings), sensors(), table(findings.iter().filter(shown))],
        notes: vec![lab()],
        ..Document::default()
    };
    document.print(arguments.common.output)?;
    if Use::ALL.into_iter().all(|wanted| works(&findings, wanted)) {
        Ok(())
    } else {
        Err(Failure::NotWorking)
    }
}

fn uses(findings: &[Finding]) -> Table {
    let columns =
        [("command", "command"), ("works", "works"), ("because_of", "because of"), ("instead", "instead")];
    let mut table = Table::new("commands", &columns);
    for wanted in Use::ALL {
        let obstacles = obstacles(findings, wanted);
        let here = obstacles.is_empty();
        let subjects: Vec<&str> = obstacles.iter().map(|finding| finding.subject).collect();
        let instead = wanted.instead().filter(|_| !here && works(findings, wanted));
        table.rows.push(vec![
            Cell::text(wanted.name()),
            Cell::text(if here { "yes" } else { "no" }),
            if here { Cell::Absent } else { Cell::text(subjects.join(", ")) },
            instead.map_or(Cell::Absent, |instead| Cell::text(instead.name())),
        ]);
    }
    table
}

/// What policies can have observed on this system.
fn sensors() -> Table {
    let mut table = Table::new("sensors", &SENSOR_COLUMNS);
    let row = |(name, answer): (&str, &Answer)| {
        let (answer, how) = answer.parts();
        [name, answer, how].map(Cell::text).into()
    };
    table.rows = answers().iter().map(row).collect();
    table
}

fn table<'a>(findings: impl Iterator<Item = &'a Finding>) -> Table {
    let columns = [
        ("state", "state"),
        ("subject", "subject"),
        ("found", "found"),
        ("means", "what it means"),
        ("mend", "fix"),
    ];
    let mut table = Table::new("findings", &columns).with_keys(2);
    let mend = |finding: &Finding| finding.mend.clone().map_or(Cell::Absent, Cell::Text);
    table.rows = findings
        .map(|finding| {
            vec![
                Cell::text(finding.state.name()),
                Cell::text(finding.subject),
                Cell::text(&finding.found),
                Cell::text(&finding.means),
                mend(finding),
            ]
        })
        .collect();
    table
}

/// Whether `memtide lab` works, in a line.
fn lab() -> String {
    match Tools::find(None) {
        Ok(tools) => match tools.clock() {
            Ok(_) => format!("memtide lab works here: QEMU {}.", tools.qemu_version),
            Err(error) => {
                format!("memtide lab works here without memory timing: {}", advice::lab::message(&error))
            }
        },
        Err(error) => format!("memtide lab does not work here: {}", advice::lab::message(&error)),
    }
}
