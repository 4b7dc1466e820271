//! Tables of `memtide status` and `memtide why`.

use std::collections::BTreeMap;

use memtide_core::policy::Answer;
use memtide_daemon::status::{NodeStatus, Status, Trouble, WatchedProcess, Why};

use super::SENSOR_COLUMNS;
use crate::output::{Cell, Document, Table};

fn text(text: Option<&String>) -> Cell {
    text.map_or(Cell::Absent, Cell::text)
}

/// As `memtide status` prints it.
pub fn status(status: &Status) -> Document {
    let yes_no = |holds: bool| Cell::Flag(holds, "yes".into());
    let about = vec![
        ("daemon_pid", Cell::Whole(status.pid.unsigned_abs().into())),
        ("config", text(status.config.as_ref())),
        ("policy", Cell::text(&status.policy)),
        ("monitor", text(status.monitor.as_ref())),
        ("why_not_better", text(status.why_not_better.as_ref())),
        ("tells_writes", yes_no(status.tells_writes)),
        ("paused", yes_no(status.paused)),
        ("dry_run", yes_no(status.dry_run)),
        ("epochs", Cell::Whole(status.epochs)),
        ("uptime_s", Cell::Real(status.uptime_s, 0)),
        ("processor_s", status.processor_s.map_or(Cell::Absent, |seconds| Cell::Real(seconds, 1))),
        ("journal", text(status.journal.as_ref())),
    ];
    let tables = vec![
        nodes(status),
        sensors(status),
        moved(status),
        refused(status),
        troubles(status),
        processes(status),
    ];
    let notes = why_nothing_moves(status).into_iter().collect();
    Document { about, tables, notes, ..Document::default() }
}

/// Moves older than this, in seconds, and than two epochs, do not count as recent.
const RECENT_S: f64 = 10.0;

/// Share of accesses on the fastest tier from which on there is little to gain, in percent.
const SERVED: f64 = 90.0;

/// Share of the sampled accesses that the fastest tier serves, in percent.
pub fn served(status: &Status) -> Option<f64> {
    status.nodes.iter().filter(|node| node.tier == 0).map(|node| node.accesses_percent).sum()
}

/// Why no page that the user may see was moved in the last seconds; `None` if some were.
pub fn why_nothing_moves(status: &Status) -> Option<String> {
    let epoch_s = status.uptime_s / status.epochs.max(1) as f64;
    let recent_s = RECENT_S.max(2.0 * epoch_s);
    let recent = || status.recent.iter().filter(|moves| moves.seconds_ago < recent_s);
    if recent().any(|moves| moves.refused.is_none()) {
        return None;
    }
    let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
    for moves in recent() {
        let pages = refused.entry(moves.refused.as_deref().unwrap_or_default()).or_default();
        *pages = pages.saturating_add(moves.pages);
    }
    let why = match (served(status), refused.into_iter().max_by_key(|(_, pages)| *pages)) {
        _ if status.paused => "the daemon is paused (`memtide resume`)".to_owned(),
        _ if status.processes.is_empty() => {
            "no process that you may see is watched (`watch` and `least_mib` in the configuration)".to_owned()
        }
        _ if status.nodes.len() < 2 => "the system has one memory node".to_owned(),
        (_, Some((why, pages))) => format!("planned moves are not made, most for '{why}' ({pages} pages)"),
        (Some(served), None) if served >= SERVED => {
            format!("the policy plans nothing; the fastest tier serves {served:.0} % of the sampled accesses")
        }
        _ => "the policy plans nothing: no move is certain to pay".to_owned(),
    };
    Some(format!("None of these processes' pages moved in the last {recent_s:.0} s: {why}."))
}

fn sensors(status: &Status) -> Table {
    let mut table = Table::new("sensors", &SENSOR_COLUMNS);
    let row = |(name, answer): &(String, Answer)| {
        let (answer, how) = answer.parts();
        [name.as_str(), answer, how].map(Cell::text).into()
    };
    table.rows = status.sensors.iter().map(row).collect();
    table
}

fn nodes(status: &Status) -> Table {
    let columns = [
        ("node", "node"),
        ("memory_mib", "memory, MiB"),
        ("free_mib", "free, MiB"),
        ("read_mbps", "reads, MB/s"),
        ("write_mbps", "writes, MB/s"),
        ("accesses_percent", "accesses, %"),
    ];
    let mut table = Table::new("nodes", &columns);
    let row = |NodeStatus { name, memory, traffic_mbps, accesses_percent, .. }: &NodeStatus| {
        let mib = |mib: Option<u64>| mib.map_or(Cell::Absent, Cell::Whole);
        let mbps = |mbps: Option<f64>| mbps.map_or(Cell::Absent, |mbps| Cell::Real(mbps, 0));
        vec![
            Cell::text(name),
            mib(memory.map(|(all, _)| all)),
            mib(memory.map(|(_, free)| free)),
            mbps(traffic_mbps.map(|(reads, _)| reads)),
            mbps(traffic_mbps.map(|(_, writes)| writes)),
            percent(*accesses_percent),
        ]
    };
    table.rows = status.nodes.iter().map(row).collect();
    table
}

fn percent(percent: Option<f64>) -> Cell {
    percent.map_or(Cell::Absent, |percent| Cell::Real(percent, 1))
}

fn moved(status: &Status) -> Table {
    let columns = [("from", "moved from"), ("to", "to"), ("pages", "pages of 4 KiB")];
    let mut table = Table::new("moved", &columns).with_keys(2);
    let row = |(from, to, pages): &(String, String, u64)| {
        vec![Cell::text(from), Cell::text(to), Cell::Whole(*pages)]
    };
    table.rows = status.moved.iter().map(row).collect();
    table
}

fn refused(status: &Status) -> Table {
    let mut table = Table::new("refused", &[("reason", "not moved, reason"), ("moves", "moves")]);
    table.rows =
        status.refused.iter().map(|(why, moves)| vec![Cell::text(why), Cell::Whole(*moves)]).collect();
    table
}

fn troubles(status: &Status) -> Table {
    let columns = [("seconds_ago", "s ago"), ("trouble", "recent errors")];
    let mut table = Table::new("troubles", &columns);
    let row = |trouble: &Trouble| vec![Cell::Real(trouble.seconds_ago, 0), Cell::text(&trouble.what)];
    table.rows = status.troubles.iter().map(row).collect();
    table
}

fn processes(status: &Status) -> Table {
    let columns = [("pid", "process"), ("name", "name"), ("uid", "user"), ("resident_mib", "resident, MiB")];
    let mut table = Table::new("processes", &columns).with_keys(2);
    for NodeStatus { name, .. } in &status.nodes {
        table.column(format!("{name}_pages"), format!("pages on {name} (estimate)"));
    }
    for NodeStatus { name, .. } in &status.nodes {
        table.column(format!("{name}_accesses_percent"), format!("accesses on {name}, %"));
    }
    table.column("moved_pages", "pages moved");
    let row = |process: &WatchedProcess| {
        let mut row = vec![
            Cell::Whole(process.pid.unsigned_abs().into()),
            Cell::text(&process.name),
            Cell::Whole(process.uid.into()),
            Cell::Whole(process.resident_mib),
        ];
        let on = |node| process.pages.as_ref().and_then(|pages| pages.get(node));
        row.extend(
            (0..status.nodes.len()).map(|node| on(node).map_or(Cell::Absent, |&pages| Cell::Whole(pages))),
        );
        let share = |node| process.accesses_percent.as_ref().and_then(|shares| shares.get(node).copied());
        row.extend((0..status.nodes.len()).map(|node| percent(share(node))));
        row.push(Cell::Whole(process.moved_pages));
        row
    };
    table.rows = status.processes.iter().map(row).collect();
    table
}

/// As `memtide why` prints it.
pub fn why(why: &Why) -> Document {
    let columns = [
        ("node", "node"),
        ("owner_pid", "belongs to process"),
        ("region_start", "region start"),
        ("region_pages", "region, pages of 4 KiB"),
        ("reads", "read samples"),
        ("writes", "written samples"),
        ("age", "age, intervals"),
        ("from", "last decision, from"),
        ("to", "to"),
        ("reason", "reason"),
        ("refused", "refused"),
        ("seconds_ago", "decided, s ago"),
    ];
    let mut table = Table::new("page", &columns).vertical();
    let owner = why.owner.map_or(Cell::Absent, |pid| Cell::Whole(pid.unsigned_abs().into()));
    let mut row = vec![text(why.node.as_ref()), owner];
    match why.region {
        Some((start, pages, reads, writes, age)) => row.extend([
            Cell::text(format!("{start:#x}")),
            Cell::Whole(pages),
            Cell::Whole(reads.into()),
            Cell::Whole(writes.into()),
            Cell::Whole(age.into()),
        ]),
        None => row.extend([const { Cell::Absent }; 5]),
    }
    match &why.last {
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
    Document::of(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_daemon::status::Last;

    use crate::output::Format;

    #[test]
    fn why_prints_a_line_per_known_fact() {
        let last = Last {
            from: "nvm".to_owned(),
            to: "dram".to_owned(),
            reason: "hot".to_owned(),
            refused: None,
            seconds_ago: 2.5,
        };
        let why = Why { node: Some("nvm".to_owned()), owner: Some(4711), region: None, last: Some(last) };
        let text = super::why(&why).text(Format::Table, None);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split("  ").collect()).collect();
        let ends: Vec<_> = lines.iter().map(|line| (line[0], line[line.len() - 1].trim())).collect();
        let expected = [
            ("node", "nvm"),
            ("belongs to process", "4711"),
            ("last decision, from", "nvm"),
            ("to", "dram"),
            ("reason", "hot"),
            ("decided, s ago", "2.5"),
        ];
        assert_eq!(ends, expected, "{text}");
        assert!(super::why(&why).json()["page"][0]["region_start"].is_null());
    }
}
