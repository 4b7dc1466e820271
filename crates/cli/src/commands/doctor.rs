//! `memtide doctor`.

use memtide_core::policy::Answer;
use memtide_lab::Tools;
use memtide_linux::doctor::{Finding, State, Use, examine, obstacles, works};
use memtide_linux::sensors::answers;
use memtide_trace::check_recording;

use crate::advice;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Format, Table};
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

/// Commands that need other programs; they do not count for the exit code.
struct Extra {
    command: &'static str,
    subject: &'static str,
    means: &'static str,
    /// What was found, or what is missing and how to install it.
    state: Result<String, String>,
}

/// Prints what works here, what does not, why, and how to fix it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let examined = examine();
    let extras = [lab(), record()];
    let findings: Vec<Finding> = examined.iter().cloned().chain(extras.iter().map(finding)).collect();
    let format = arguments.common.output;
    document(arguments.brief, format, &examined, &extras, &findings).print(format)?;
    if Use::ALL.into_iter().all(|wanted| works(&examined, wanted)) {
        Ok(())
    } else {
        Err(Failure::NotWorking)
    }
}

fn document(
    brief: bool,
    format: Format,
    examined: &[Finding],
    extras: &[Extra],
    findings: &[Finding],
) -> Document {
    let mut tables = vec![commands(examined, extras), sensors()];
    if brief {
        let [commands, sensors] = &mut tables[..] else { unreachable!("two tables") };
        commands.rows.retain(|row| row[1].display() == "no");
        sensors.rows.retain(|row| !row[1].display().starts_with("observed"));
    }
    let shown: Vec<&Finding> =
        findings.iter().filter(|finding| !brief || finding.state != State::Good).collect();
    // A remedy is a command to copy: tables print it on a separate line.
    let inline = format != Format::Table;
    tables.push(table(&shown, inline));
    let remedies = shown
        .iter()
        .filter(|_| !inline)
        .filter_map(|finding| Some(format!("To fix {}:\n    {}", finding.subject, finding.remedy.as_ref()?)));
    Document { tables, notes: remedies.collect(), ..Document::default() }
}

fn commands(findings: &[Finding], extras: &[Extra]) -> Table {
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
            Cell::YesNo(here),
            if here { Cell::Absent } else { Cell::text(subjects.join(", ")) },
            instead.map_or(Cell::Absent, |instead| Cell::text(instead.name())),
        ]);
    }
    table.rows.extend(extras.iter().map(|extra| {
        let (works, because) = match extra.state {
            Ok(_) => (true, Cell::Absent),
            Err(_) => (false, Cell::text(extra.subject)),
        };
        vec![Cell::text(extra.command), Cell::YesNo(works), because, Cell::Absent]
    }));
    table
}

/// Sensors available to policies on this system.
fn sensors() -> Table {
    let mut table = Table::new("sensors", &SENSOR_COLUMNS);
    let row = |(name, answer): (&str, &Answer)| {
        let (answer, how) = answer.parts();
        [name, answer, how].map(Cell::text).into()
    };
    table.rows = answers().iter().map(row).collect();
    table
}

fn table(findings: &[&Finding], with_remedies: bool) -> Table {
    let columns =
        [("state", "state"), ("subject", "subject"), ("found", "found"), ("means", "what it means")];
    let mut table = Table::new("findings", &columns).with_keys(2);
    if with_remedies {
        table.column("mend", "to mend it");
    }
    let row = |finding: &&Finding| {
        let remedy = with_remedies.then(|| finding.remedy.clone().map_or(Cell::Absent, Cell::Text));
        let cells = [
            Cell::text(finding.state.name()),
            Cell::text(finding.subject),
            Cell::text(&finding.found),
            Cell::text(&finding.means),
        ];
        cells.into_iter().chain(remedy).collect()
    };
    table.rows = findings.iter().map(row).collect();
    table
}

fn finding(extra: &Extra) -> Finding {
    let Extra { subject, means, state, .. } = extra;
    let (state, found, remedy) = match state {
        Ok(found) => (State::Good, found, None),
        // `WHAT IS MISSING; WHAT TO DO`
        Err(why) => match why.split_once("; ") {
            Some((found, remedy)) => (State::Note, &found.to_owned(), Some(remedy.to_owned())),
            None => (State::Note, why, None),
        },
    };
    Finding { subject, found: found.clone(), state, means: (*means).to_owned(), remedy, stops: Vec::new() }
}

/// Whether `memtide lab` works, and with timing.
fn lab() -> Extra {
    let tools = Tools::find(None);
    let state = tools.and_then(|tools| tools.clock().map(|_| format!("QEMU {}", tools.qemu_version)));
    Extra {
        command: "lab run, lab compare",
        subject: "lab",
        means: "programs on a real kernel in a virtual machine with slow memory",
        state: state.map_err(|error| advice::lab::message(&error)),
    }
}

/// Whether `memtide record` works.
fn record() -> Extra {
    Extra {
        command: "record",
        subject: "recorder",
        means: "programs recorded for the simulator",
        state: check_recording()
            .map(|()| "qemu-x86_64 and its plugin".to_owned())
            .map_err(|why| advice::trace::unrecordable(&why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extra(state: Result<String, String>) -> Extra {
        Extra { command: "record", subject: "recorder", means: "programs are recorded", state }
    }

    fn printed(brief: bool, format: Format) -> Document {
        let good = Finding {
            subject: "nodes",
            found: "2".to_owned(),
            state: State::Good,
            means: "a choice".to_owned(),
            remedy: None,
            stops: Vec::new(),
        };
        let remedy = Some("sysctl kernel.numa_balancing=0".to_owned());
        let doubt = Finding { subject: "balancing", state: State::Warning, remedy, ..good.clone() };
        let extras =
            [extra(Ok("here".to_owned())), extra(Err("no QEMU; sudo apt-get install qemu-user".to_owned()))];
        let examined = [good, doubt];
        let findings: Vec<Finding> = examined.iter().cloned().chain(extras.iter().map(finding)).collect();
        document(brief, format, &examined, &extras, &findings)
    }

    #[test]
    fn missing_lab_and_record_parts_are_in_every_format() {
        let json = printed(false, Format::Json).json();
        let row = |list: &str, key: &str, name: &str| -> serde_json::Value {
            let rows = json[list].as_array().expect("rows");
            rows.iter().rfind(|row| row[key] == name).expect(name).clone()
        };
        assert_eq!(row("commands", "command", "record")["works"], false);
        assert_eq!(row("findings", "subject", "recorder")["mend"], "sudo apt-get install qemu-user");
        let csv = printed(false, Format::Csv).text(Format::Csv, None);
        assert!(
            csv.contains("note,recorder,no QEMU,programs are recorded,sudo apt-get install qemu-user"),
            "{csv}"
        );
        let text = printed(false, Format::Table).text(Format::Table, Some(30));
        for command in ["    sysctl kernel.numa_balancing=0\n", "    sudo apt-get install qemu-user\n"] {
            assert!(text.contains(command), "a command is broken:\n{text}");
        }
    }

    #[test]
    fn brief_prints_problems_only() {
        let (all, brief) = (printed(false, Format::Json), printed(true, Format::Json));
        let cells = |document: &Document, table: usize, column: usize| -> Vec<String> {
            document.tables[table].rows.iter().map(|row| row[column].display()).collect()
        };
        assert!(cells(&all, 0, 1).contains(&"yes".to_owned()));
        assert_eq!(cells(&brief, 0, 1), ["no"]);
        assert!(cells(&brief, 1, 1).iter().all(|answer| !answer.starts_with("observed")));
        assert_eq!(cells(&brief, 2, 1), ["balancing", "recorder"]);
    }
}
