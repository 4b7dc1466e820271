//! Tables of simulated runs.

use memtide_core::Machine;
use memtide_sim::Report;

use crate::output::{Cell, Table};

/// A key (unit last), a title (unit after a comma) and a value.
pub type Figure = (String, String, Cell);

fn figure(key: &str, title: &str, cell: Cell) -> Figure {
    (key.to_owned(), title.to_owned(), cell)
}

/// Columns of a run in a comparison, without its nodes.
pub fn of_run(report: &Report) -> Vec<Figure> {
    let spent = &report.spent;
    let all_ms = spent.user_ms + spent.system_ms + spent.stall_ms + spent.idle_ms;
    let share = |ms: f64| Cell::Percent(if all_ms > 0.0 { ms / all_ms } else { 0.0 });
    let energy = if report.energy_mj > 0.0 { Cell::Real(report.energy_mj, 2) } else { Cell::Absent };
    vec![
        figure("time_ms", "time, ms", Cell::Real(report.time_ms, 3)),
        figure("user_share", "user, %", share(spent.user_ms)),
        figure("system_share", "system, %", share(spent.system_ms)),
        figure("stall_share", "stall, %", share(spent.stall_ms)),
        figure("idle_share", "idle, %", share(spent.idle_ms)),
        figure("migrated_pages", "migrated pages", Cell::Whole(report.pages.migrated)),
        figure("latency_mean_ns", "mean latency, ns", Cell::Real(report.latency.mean_ns, 1)),
        figure("latency_p99_ns", "p99 latency, ns", Cell::Real(report.latency.p99_ns, 1)),
        figure(
            "llc_misses_per_kilo_instruction",
            "LLC misses per 1000 instr.",
            Cell::Real(report.llc_misses_per_kilo_instruction, 2),
        ),
        figure("energy_mj", "energy, mJ", energy),
    ]
}

/// Columns of a run's nodes in a comparison, in one row.
pub fn of_nodes(report: &Report) -> Vec<Figure> {
    let of_node = |node: &memtide_sim::NodeReport| {
        let name = &node.name;
        [
            figure(
                &format!("{name}_bandwidth_mbps"),
                &format!("{name}, MB/s"),
                Cell::Real(node.bandwidth_mbps, 0),
            ),
            figure(
                &format!("{name}_page_share"),
                &format!("{name} pages, %"),
                Cell::Percent(node.page_share),
            ),
            figure(
                &format!("{name}_access_share"),
                &format!("{name} accesses, %"),
                Cell::Percent(node.access_share),
            ),
        ]
    };
    report.nodes.iter().flat_map(of_node).collect()
}

/// Further figures of a single run.
pub fn counts(report: &Report) -> Vec<Figure> {
    let whole = |key: &str, title: &str, value: u64| figure(key, title, Cell::Whole(value));
    let mut figures = vec![
        whole("instructions", "instructions", report.instructions),
        whole("accesses", "loads and stores", report.accesses),
        whole("llc_misses", "LLC misses", report.llc_misses),
        whole("prefetched_lines", "prefetched lines", report.prefetched_lines),
        whole("tlb_misses", "page walks", report.tlb_misses),
        whole("faults", "page faults of 4 KiB", report.pages.faults),
        whole("huge_faults", "page faults of 2 MiB", report.pages.huge_faults),
        whole("hint_faults", "NUMA hint faults", report.pages.hint_faults),
        whole("swapped_out_pages", "pages swapped out", report.pages.swapped_out),
        whole("swapped_in_pages", "pages swapped in", report.pages.swapped_in),
    ];
    let percentiles = [("p50", report.latency.p50_ns), ("p95", report.latency.p95_ns)];
    figures.extend(percentiles.map(|(name, ns)| {
        figure(&format!("latency_{name}_ns"), &format!("{name} latency, ns"), Cell::Real(ns, 1))
    }));
    for link in &report.links {
        let [a, b] = &link.between;
        figures.push(figure(
            &format!("{a}_{b}_mbps"),
            &format!("{a} to {b}, MB/s"),
            Cell::Real(link.forward_mbps, 0),
        ));
        figures.push(figure(
            &format!("{b}_{a}_mbps"),
            &format!("{b} to {a}, MB/s"),
            Cell::Real(link.back_mbps, 0),
        ));
    }
    figures
}

/// A row per node; figures of nodes without reads or writes are absent.
pub fn nodes(report: &Report, machine: &Machine) -> Table {
    let columns = [
        ("node", "node"),
        ("tier", "tier"),
        ("bandwidth_mbps", "bandwidth, MB/s"),
        ("read_bandwidth_mbps", "reads, MB/s"),
        ("page_share", "pages, %"),
        ("access_share", "accesses, %"),
        ("latency_mean_ns", "mean latency, ns"),
        ("latency_p99_ns", "p99, ns"),
        ("row_hit_share", "row hits, %"),
        ("energy_mj", "energy, mJ"),
        ("life_years", "life, years"),
    ];
    let mut table = Table::new("nodes", &columns);
    let known = |known: bool, cell: Cell| if known { cell } else { Cell::Absent };
    for (node, spec) in report.nodes.iter().zip(&machine.nodes) {
        let (is_read, is_used) = (node.latency_mean_ns > 0.0, node.reads + node.writes > 0);
        table.rows.push(vec![
            Cell::text(&node.name),
            Cell::Whole(node.tier.into()),
            Cell::Real(node.bandwidth_mbps, 0),
            Cell::Real(node.read_bandwidth_mbps, 0),
            Cell::Percent(node.page_share),
            Cell::Percent(node.access_share),
            known(is_read, Cell::Real(node.latency_mean_ns, 1)),
            known(is_read, Cell::Real(node.latency_p99_ns, 1)),
            known(is_used && spec.dram.is_some(), Cell::Percent(node.row_hit_rate)),
            known(node.energy_mj > 0.0, Cell::Real(node.energy_mj, 2)),
            node.wear.map_or(Cell::Absent, |wear| Cell::Real(wear.life_years, 2)),
        ]);
    }
    table
}

/// A row per sensor that a policy asked for.
pub fn sensors(report: &Report) -> Table {
    let mut table = Table::new("sensors", &[("sensor", "sensor"), ("answer", "answer")]);
    table.rows = answers(report).collect();
    table
}

/// The same of several policies.
pub fn sensors_of_all(names: &[String], reports: &[Report]) -> Table {
    let columns = [("policy", "policy"), ("sensor", "sensor"), ("answer", "answer")];
    let mut table = Table::new("sensors", &columns).with_keys(2);
    for (name, report) in names.iter().zip(reports) {
        table.rows.extend(answers(report).map(|row| [vec![Cell::text(name)], row].concat()));
    }
    table
}

fn answers(report: &Report) -> impl Iterator<Item = Vec<Cell>> {
    report.sensors.iter().map(|sensor| vec![Cell::text(&sensor.sensor), Cell::text(&sensor.answer)])
}
