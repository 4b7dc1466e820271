//! What the daemon tells of itself, and how it is shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Cell, Table};

/// `memtide status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process.
    pub pid: i32,
    /// Its configuration, unless it has defaults.
    pub config: Option<String>,
    /// The migration policy.
    pub policy: String,
    /// How memory is watched, if it is.
    pub monitor: Option<String>,
    /// Why not by a better monitor, if there is one.
    pub why_not_better: Option<String>,
    /// Whether writes are told apart.
    pub tells_writes: bool,
    /// Whether nothing is to move for now.
    pub paused: bool,
    /// Whether nothing is moved, only told.
    pub dry_run: bool,
    /// Epochs so far.
    pub epochs: u64,
    /// Since the daemon began.
    pub uptime_s: f64,
    /// The journal's file, if there is one that goes on.
    pub journal: Option<String>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Base pages moved, by the nodes they went from and to.
    pub moved: Vec<(String, String, u64)>,
    /// Moves that were not made, by reason.
    pub refused: BTreeMap<String, u64>,
    /// What went wrong lately, oldest first; told to root and the daemon's own user.
    pub troubles: Vec<Trouble>,
    /// The processes that are watched and that the asker may see.
    pub processes: Vec<Watched>,
}

/// A node, as the last epoch saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it has and what of it is free, in MiB.
    pub memory: Option<(u64, u64)>,
    /// What was read from it and written to it in the last epoch, in MB/s, where something counts it.
    pub traffic_mbps: Option<(f64, f64)>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// How long ago, the last time.
    pub seconds_ago: f64,
    /// What.
    pub what: String,
}

/// A process that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// What it has in memory.
    pub resident_mib: u64,
    /// Base pages of it that were moved.
    pub moved_pages: u64,
    /// Base pages on each node, by the regions of the last epoch, of which a few pages each are looked up; none before it is seen.
    pub pages: Option<Vec<u64>>,
}

/// `memtide why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// Where the page lies.
    pub node: Option<String>,
    /// Its region when it was last seen: first address, base pages, reads, writes, age.
    pub region: Option<(u64, u64, u32, u32, u32)>,
    /// The last decision about it.
    pub last: Option<Last>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Last {
    /// Where it lay.
    pub from: String,
    /// Where it was to go.
    pub to: String,
    /// Why.
    pub reason: String,
    /// Why it did not, if it did not.
    pub refused: Option<String>,
    /// How long ago.
    pub seconds_ago: f64,
}

fn text(text: Option<&String>) -> Cell {
    text.map_or(Cell::Absent, Cell::text)
}

impl Status {
    /// As it is shown.
    pub fn answer(&self) -> Answer {
        let yes_no = |holds: bool| Cell::Flag(holds, "yes");
        let about = vec![
            ("daemon_pid", Cell::Whole(self.pid.unsigned_abs().into())),
            ("config", text(self.config.as_ref())),
            ("policy", Cell::text(&self.policy)),
            ("monitor", text(self.monitor.as_ref())),
            ("why_not_better", text(self.why_not_better.as_ref())),
            ("tells_writes", yes_no(self.tells_writes)),
            ("paused", yes_no(self.paused)),
            ("dry_run", yes_no(self.dry_run)),
            ("epochs", Cell::Whole(self.epochs)),
            ("uptime_s", Cell::Real(self.uptime_s, 0)),
            ("journal", text(self.journal.as_ref())),
        ];
        let tables = vec![self.nodes(), self.moved(), self.refused(), self.troubles(), self.processes()];
        Answer { about, tables, notes: Vec::new() }
    }

    fn nodes(&self) -> Table {
        let columns = [
            ("node", "node"),
            ("memory_mib", "memory, MiB"),
            ("free_mib", "free, MiB"),
            ("read_mbps", "reads, MB/s"),
            ("write_mbps", "writes, MB/s"),
        ];
        let mut table = Table::new("nodes", &columns);
        let row = |Node { name, memory, traffic_mbps }: &Node| {
            let mib = |mib: Option<u64>| mib.map_or(Cell::Absent, Cell::Whole);
            let mbps = |mbps: Option<f64>| mbps.map_or(Cell::Absent, |mbps| Cell::Real(mbps, 0));
            vec![
                Cell::text(name),
                mib(memory.map(|(all, _)| all)),
                mib(memory.map(|(_, free)| free)),
                mbps(traffic_mbps.map(|(reads, _)| reads)),
                mbps(traffic_mbps.map(|(_, writes)| writes)),
            ]
        };
        table.rows = self.nodes.iter().map(row).collect();
        table
    }

    fn moved(&self) -> Table {
        let columns = [("from", "moved from"), ("to", "to"), ("pages", "pages of 4 KiB")];
        let mut table = Table::new("moved", &columns).with_keys(2);
        let row = |(from, to, pages): &(String, String, u64)| {
            vec![Cell::text(from), Cell::text(to), Cell::Whole(*pages)]
        };
        table.rows = self.moved.iter().map(row).collect();
        table
    }

    fn refused(&self) -> Table {
        let mut table = Table::new("refused", &[("reason", "not moved because"), ("moves", "moves")]);
        table.rows =
            self.refused.iter().map(|(why, moves)| vec![Cell::text(why), Cell::Whole(*moves)]).collect();
        table
    }

    fn troubles(&self) -> Table {
        let columns = [("seconds_ago", "s ago"), ("trouble", "what went wrong lately")];
        let mut table = Table::new("troubles", &columns);
        let row = |trouble: &Trouble| vec![Cell::Real(trouble.seconds_ago, 0), Cell::text(&trouble.what)];
        table.rows = self.troubles.iter().map(row).collect();
        table
    }

    fn processes(&self) -> Table {
        let columns =
            [("pid", "process"), ("name", "name"), ("uid", "user"), ("resident_mib", "in memory, MiB")];
        let mut table = Table::new("processes", &columns).with_keys(2);
        for Node { name, .. } in &self.nodes {
            table.column(format!("{name}_pages"), format!("about so many pages on {name}"));
        }
        table.column("moved_pages", "pages moved");
        let row = |process: &Watched| {
            let mut row = vec![
                Cell::Whole(process.pid.unsigned_abs().into()),
                Cell::text(&process.name),
                Cell::Whole(process.uid.into()),
                Cell::Whole(process.resident_mib),
            ];
            let on = |node| process.pages.as_ref().and_then(|pages| pages.get(node));
            row.extend(
                (0..self.nodes.len()).map(|node| on(node).map_or(Cell::Absent, |&pages| Cell::Whole(pages))),
            );
            row.push(Cell::Whole(process.moved_pages));
            row
        };
        table.rows = self.processes.iter().map(row).collect();
        table
    }
}

impl Why {
    /// As it is shown.
    pub fn answer(&self) -> Answer {
        let columns = [
            ("node", "node"),
            ("region_start", "its region from"),
            ("region_pages", "pages of 4 KiB in it"),
            ("reads", "samples read"),
            ("writes", "samples written"),
            ("age", "intervals since it changed"),
            ("from", "last to move from"),
            ("to", "to"),
            ("reason", "because"),
            ("refused", "but did not"),
            ("seconds_ago", "decided, s ago"),
        ];
        let mut table = Table::new("page", &columns).upright();
        let mut row = vec![text(self.node.as_ref())];
        match self.region {
            Some((start, pages, reads, writes, age)) => row.extend([
                Cell::text(format!("{start:#x}")),
                Cell::Whole(pages),
                Cell::Whole(reads.into()),
                Cell::Whole(writes.into()),
                Cell::Whole(age.into()),
            ]),
            None => row.extend([const { Cell::Absent }; 5]),
        }
        match &self.last {
            Some(last) => row.extend([
                Cell::text(&last.from),
                Cell::text(&last.to),
                Cell::text(&last.reason),
                text(last.refused.as_ref()),
                Cell::Real(last.seconds_ago, 1),
            ]),
            None => row.extend([const { Cell::Absent }; 5]),
        }
        table.rows.push(row);
        Answer::of(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Format;

    #[test]
    fn why_is_a_line_for_each_thing_that_is_known() {
        let last = Last {
            from: "nvm".to_owned(),
            to: "dram".to_owned(),
            reason: "hot".to_owned(),
            refused: None,
            seconds_ago: 2.5,
        };
        let why = Why { node: Some("nvm".to_owned()), region: None, last: Some(last) };
        let text = why.answer().text(Format::Table, None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split("  ").collect()).collect();
        let ends: Vec<_> = lines.iter().map(|line| (line[0], line[line.len() - 1].trim())).collect();
        let told = [("node", "nvm"), ("last to move from", "nvm"), ("to", "dram"), ("because", "hot")];
        assert_eq!(ends[..4], told, "{text}");
        assert_eq!(ends[4..], [("decided, s ago", "2.5")], "{text}");
        assert!(why.answer().json()["page"][0]["region_start"].is_null());
    }
}
