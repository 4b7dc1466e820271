//! Tables of simulated runs.

use memtide_sim::{BankReport, LinkReport, NodeReport, Report, SensorReport, StageReport};

use super::SENSOR_COLUMNS;
use crate::output::{Cell, Table};

/// A key (unit last), a title (unit after a comma) and a value.
pub type Figure = (String, String, Cell);

/// Nanoseconds; absent without reads.
fn latency(ns: Option<f64>) -> Cell {
    ns.map_or(Cell::Absent, |ns| Cell::Real(ns, 1))
}

/// Share of all nodes' lines.
pub fn share_of_lines(report: &Report, part: impl Fn(&NodeReport) -> u64) -> f64 {
    let sum = |of: &dyn Fn(&NodeReport) -> u64| report.nodes.iter().map(of).sum::<u64>();
    let all = sum(&|node| node.demand_lines + node.prefetch_lines + node.copy_lines);
    sum(&part) as f64 / all.max(1) as f64
}

fn figure(key: &str, title: &str, cell: Cell) -> Figure {
    (key.to_owned(), title.to_owned(), cell)
}

/// Columns of a run in a comparison, without its nodes.
pub fn of_run(report: &Report) -> Vec<Figure> {
    let spent = &report.spent;
    let all_ms = spent.threads_ms();
    let share = |ms: f64| Cell::Percent(if all_ms > 0.0 { ms / all_ms } else { 0.0 });
    let lines = |part: fn(&NodeReport) -> u64| Cell::Percent(share_of_lines(report, part));
    let energy = if report.energy_mj > 0.0 { Cell::Real(report.energy_mj, 2) } else { Cell::Absent };
    vec![
        figure("time_ms", "time, ms", Cell::Real(report.time_ms, 3)),
        figure("rest_ms", "outside region, ms", Cell::Real((report.run_ms - report.time_ms).max(0.0), 3)),
        figure("user_share", "user, %", share(spent.user_ms)),
        figure("system_share", "system, %", share(spent.system_ms)),
        figure("stall_share", "stall, %", share(spent.stall_ms)),
        figure("idle_share", "idle, %", share(spent.idle_ms)),
        figure("kernel_threads_ms", "kernel threads, ms", Cell::Real(spent.kernel_threads_ms, 3)),
        figure("migrated_pages", "migrated pages", Cell::Whole(report.pages.migrated)),
        figure("prefetch_share", "prefetch, % of lines", lines(|node| node.prefetch_lines)),
        figure("copy_share", "page copies, % of lines", lines(|node| node.copy_lines)),
        figure("latency_mean_ns", "mean latency, ns", latency(report.latency.mean_ns)),
        figure("latency_p99_ns", "p99 latency, ns", latency(report.latency.p99_ns)),
        figure(
            "llc_misses_per_kilo_instruction",
            "LLC misses per 1000 instr.",
            Cell::Real(report.llc_misses_per_kilo_instruction, 2),
        ),
        figure("energy_mj", "energy, mJ", energy),
    ]
}

/// Key of [`swapped`].
pub const SWAPPED: &str = "swapped_pages";

/// Column of the pages swapped out and in, after those of [`of_run`]; in tables only if a run swaps.
pub fn swapped(report: &Report) -> Figure {
    figure(SWAPPED, "pages swapped", Cell::Whole(report.pages.swapped_out + report.pages.swapped_in))
}

/// Columns of a run's nodes in a comparison, in one row.
pub fn of_nodes(report: &Report) -> Vec<Figure> {
    let of_node = |node: &NodeReport| {
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
            figure(
                &format!("{name}_demand_share"),
                &format!("{name} demand, %"),
                Cell::Percent(node.demand_share),
            ),
        ]
    };
    report.nodes.iter().flat_map(of_node).collect()
}

/// Columns of a run's links in a comparison, in one row: traffic and utilisation of each direction.
pub fn of_links(report: &Report) -> Vec<Figure> {
    report.links.iter().flat_map(of_link).collect()
}

fn of_link(link: &LinkReport) -> [Figure; 4] {
    let [a, b] = &link.between;
    let traffic = |from: &str, to: &str, mbps: f64| {
        figure(&format!("{from}_{to}_mbps"), &format!("{from} to {to}, MB/s"), Cell::Real(mbps, 0))
    };
    let used = |from: &str, to: &str, share: f64| {
        figure(&format!("{from}_{to}_share"), &format!("{from} to {to}, %"), Cell::Percent(share))
    };
    [
        traffic(a, b, link.forward_mbps),
        used(a, b, link.forward_share),
        traffic(b, a, link.back_mbps),
        used(b, a, link.back_share),
    ]
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
        whole("marked_misses", "TLB misses of marked pages", report.pages.marked_misses),
        whole("swapped_out_pages", "pages swapped out", report.pages.swapped_out),
        whole("swapped_in_pages", "pages swapped in", report.pages.swapped_in),
    ];
    let percentiles = [("p50", report.latency.p50_ns), ("p95", report.latency.p95_ns)];
    figures.extend(percentiles.map(|(name, ns)| {
        figure(&format!("latency_{name}_ns"), &format!("{name} latency, ns"), latency(ns))
    }));
    for (number, (name, &ms)) in (1..).zip(report.programs.iter().zip(&report.program_times_ms)) {
        let title = format!("program {number} ({name}), ms");
        figures.push(figure(&format!("program_{number}_time_ms"), &title, Cell::Real(ms, 3)));
    }
    for of in report.stages.iter().filter(|of| of.stage != "region") {
        let key = format!("{}_ms", of.stage.replace('-', "_"));
        figures.push(figure(&key, &format!("{}, ms", of.stage), Cell::Real(of.time_ms, 3)));
    }
    figures.extend(of_links(report));
    figures
}

/// A row per node; figures of nodes without reads or writes are absent.
pub fn nodes(report: &Report) -> Table {
    let columns = [
        ("node", "node"),
        ("tier", "tier"),
        ("bandwidth_mbps", "bandwidth, MB/s"),
        ("read_bandwidth_mbps", "reads, MB/s"),
        ("page_share", "pages, %"),
        ("access_share", "accesses, %"),
        ("demand_share", "demand, %"),
        ("prefetch_lines", "prefetched lines"),
        ("copy_lines", "lines of page copies"),
        ("latency_mean_ns", "mean latency, ns"),
        ("latency_p99_ns", "p99, ns"),
        ("row_hit_share", "row hits, %"),
        ("energy_mj", "energy, mJ"),
        ("life_years", "life, years"),
    ];
    let mut table = Table::new("nodes", &columns);
    for node in &report.nodes {
        table.rows.push(vec![
            Cell::text(&node.name),
            Cell::Whole(node.tier.into()),
            Cell::Real(node.bandwidth_mbps, 0),
            Cell::Real(node.read_bandwidth_mbps, 0),
            Cell::Percent(node.page_share),
            Cell::Percent(node.access_share),
            Cell::Percent(node.demand_share),
            Cell::Whole(node.prefetch_lines),
            Cell::Whole(node.copy_lines),
            latency(node.latency_mean_ns),
            latency(node.latency_p99_ns),
            node.row_hit_rate.map_or(Cell::Absent, Cell::Percent),
            if node.energy_mj > 0.0 { Cell::Real(node.energy_mj, 2) } else { Cell::Absent },
            node.wear.and_then(|wear| wear.life_years).map_or(Cell::Absent, |years| Cell::Real(years, 2)),
        ]);
    }
    table
}

/// A row per node with energy: by cause, and the mean power.
pub fn energy(report: &Report) -> Table {
    let columns = [
        ("node", "node"),
        ("read_mj", "reads, mJ"),
        ("write_mj", "writes, mJ"),
        ("activate_mj", "rows, mJ"),
        ("refresh_mj", "refresh, mJ"),
        ("standby_mj", "standby, mJ"),
        ("dynamic_mw", "dynamic (reads, writes, rows), mW"),
        ("power_mw", "power, mW"),
    ];
    let mut table = Table::new("energy", &columns);
    for node in report.nodes.iter().filter(|node| node.energy_mj > 0.0) {
        let of = &node.energy;
        let causes = [of.read_mj, of.write_mj, of.activate_mj, of.refresh_mj, of.standby_mj];
        let mut row = vec![Cell::text(&node.name)];
        row.extend(causes.map(|mj| Cell::Real(mj, 3)));
        row.extend([of.dynamic_mw, of.power_mw].map(|mw| Cell::Real(mw, 2)));
        table.rows.push(row);
    }
    table
}

/// A row per bank of the nodes that wear, after one for all of the node.
pub fn banks(report: &Report) -> Table {
    let columns = [
        ("node", "node"),
        ("channel", "channel"),
        ("bank", "bank"),
        ("reads", "lines read"),
        ("writes", "lines written"),
        ("row_conflicts", "row conflicts"),
        ("dynamic_mj", "dynamic energy, mJ"),
        ("page_writes_max", "lines of most written page"),
        ("page_writes_mean", "lines per written page"),
        ("life_years", "life, years"),
        ("life_share", "life, % of mean cell's"),
        ("life_share_of_written", "of mean written cell's, %"),
    ];
    let mut table = Table::new("banks", &columns).with_keys(3);
    for node in report.nodes.iter().filter(|node| node.wear.is_some()) {
        let whole = BankReport {
            reads: node.reads,
            writes: node.writes,
            row_conflicts: node.channels.iter().map(|channel| channel.counts.row_conflicts).sum(),
            dynamic_mj: node.energy.dynamic_mj,
            wear: node.wear,
        };
        table.rows.push(bank([Cell::text(&node.name), Cell::text("all"), Cell::text("all")], &whole));
        for (channel, of_channel) in (0..).zip(&node.channels) {
            let rows = (0..).zip(&of_channel.banks).map(|(number, of)| {
                bank([Cell::text(&node.name), Cell::Whole(channel), Cell::Whole(number)], of)
            });
            table.rows.extend(rows);
        }
    }
    table
}

fn bank(keys: [Cell; 3], of: &BankReport) -> Vec<Cell> {
    let share = |share: Option<f64>| share.map_or(Cell::Absent, Cell::Percent);
    let wear = of.wear.unwrap_or_default();
    let known = |cell: Cell| if of.wear.is_some() { cell } else { Cell::Absent };
    let mut row = Vec::from(keys);
    row.extend([of.reads, of.writes, of.row_conflicts].map(Cell::Whole));
    row.extend([
        Cell::Real(of.dynamic_mj, 3),
        known(Cell::Whole(wear.page_writes_max)),
        known(Cell::Real(wear.page_writes_mean, 1)),
        wear.life_years.map_or(Cell::Absent, |years| Cell::Real(years, 4)),
        share(wear.life_share),
        share(wear.life_share_of_written),
    ]);
    row
}

const STAGE_COLUMNS: [(&str, &str); 12] = [
    ("stage", "stage"),
    ("time_ms", "time, ms"),
    ("system_share", "system, %"),
    ("stall_share", "stall, %"),
    ("instructions", "instructions"),
    ("accesses", "loads and stores"),
    ("faults", "page faults"),
    ("migrated_pages", "migrated pages"),
    ("llc_misses", "LLC misses"),
    ("bandwidth_mbps", "all nodes, MB/s"),
    ("latency_mean_ns", "mean latency, ns"),
    ("energy_mj", "energy, mJ"),
];

/// A row per stage of the run, the region of interest among them; none if no program marks any.
pub fn stages(report: &Report) -> Table {
    let mut table = Table::new("stages", &STAGE_COLUMNS);
    table.rows = report.stages.iter().map(stage).collect();
    table
}

/// As [`stages`], for several policies.
pub fn stages_of_all(names: &[String], reports: &[Report]) -> Table {
    let columns: Vec<_> = [("policy", "policy")].into_iter().chain(STAGE_COLUMNS).collect();
    let mut table = Table::new("stages", &columns).with_keys(2);
    for (name, report) in names.iter().zip(reports) {
        let rows = report.stages.iter().map(|of| [vec![Cell::text(name)], stage(of)].concat());
        table.rows.extend(rows);
    }
    table
}

fn stage(of: &StageReport) -> Vec<Cell> {
    let all_ms = of.spent.threads_ms();
    let share = |ms: f64| Cell::Percent(if all_ms > 0.0 { ms / all_ms } else { 0.0 });
    vec![
        Cell::text(&of.stage),
        Cell::Real(of.time_ms, 3),
        share(of.spent.system_ms),
        share(of.spent.stall_ms),
        Cell::Whole(of.instructions),
        Cell::Whole(of.accesses),
        Cell::Whole(of.faults),
        Cell::Whole(of.migrated),
        Cell::Whole(of.llc_misses),
        Cell::Real(of.bandwidth_mbps, 0),
        latency(of.latency_mean_ns),
        if of.energy_mj > 0.0 { Cell::Real(of.energy_mj, 2) } else { Cell::Absent },
    ]
}

/// What the other figures are of, if that is not the whole run.
pub fn region_note(reports: &[Report]) -> Option<String> {
    let marked = reports.iter().any(|report| report.marked);
    let note = "Figures are of the region of interest; table \"stages\" has the rest of the run.";
    marked.then(|| note.to_owned())
}

/// A row per sensor that a policy requested.
pub fn sensors(report: &Report) -> Table {
    let mut table = Table::new("sensors", &SENSOR_COLUMNS);
    table.rows = answers(report).collect();
    table
}

/// As [`sensors`], for several policies.
pub fn sensors_of_all(names: &[String], reports: &[Report]) -> Table {
    let columns: Vec<_> = [("policy", "policy")].into_iter().chain(SENSOR_COLUMNS).collect();
    let mut table = Table::new("sensors", &columns).with_keys(2);
    for (name, report) in names.iter().zip(reports) {
        table.rows.extend(answers(report).map(|row| [vec![Cell::text(name)], row].concat()));
    }
    table
}

fn answers(report: &Report) -> impl Iterator<Item = Vec<Cell>> {
    let row = |sensor: &SensorReport| [&sensor.sensor, &sensor.answer, &sensor.how].map(Cell::text).into();
    report.sensors.iter().map(row)
}
