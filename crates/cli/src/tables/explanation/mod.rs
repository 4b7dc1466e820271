//! Where the time of a comparison's best, worst and baseline run went: a table, and sentences of its figures.

use memtide_core::NodeId;
use memtide_sim::{Comparison, Level, MoveReport, NodeReport, Report, TimeReport};

use super::bottleneck::{BUSY, busiest, queue};
use super::simulated::share_of_lines;
use super::verdict::growth;
use crate::output::{Cell, Table};

/// Share of the threads' time from which a part is explained.
const EXPLAINED: f64 = 0.01;

/// Share of the threads' time from which waiting counts as a bottleneck.
const LARGE: f64 = 0.1;

/// Page walks per access from which they are reported.
const WALKS: f64 = 0.05;

/// A part of the threads' time: its key in JSON and CSV, its name, and its time in ms.
type Part = (&'static str, &'static str, fn(&TimeReport) -> f64);

/// All parts, which add up to the threads' time.
const PARTS: [Part; 8] = [
    ("instructions", "retiring instructions", |spent| spent.user_ms),
    ("memory", "waiting for memory", |spent| spent.stall_ms),
    ("faults", "in the kernel for page faults", |spent| spent.kernel.faults_ms),
    ("swap", "in the kernel for swap", |spent| spent.kernel.swap_ms),
    ("unmapping", "in the kernel for unmapping", |spent| spent.kernel.unmapping_ms),
    ("migration", "in the kernel for migration", |spent| spent.kernel.migration_ms),
    ("monitoring", "in the kernel for monitoring", |spent| spent.kernel.monitoring_ms),
    ("waiting", "waiting for each other, a CPU or the policy", |spent| spent.idle_ms),
];

/// A run that is explained.
pub struct Explained<'a> {
    comparison: &'a Comparison,
    run: usize,
    /// `best`, `worst` and `baseline`, as far as they apply; none for a single run.
    roles: Vec<&'static str>,
}

/// The best run, the worst, and the baseline, each once.
pub fn explained(comparison: &Comparison) -> Vec<Explained<'_>> {
    let (best, worst, baseline) = (comparison.best(), comparison.worst(), comparison.baseline);
    let roles = [(best, "best"), (worst, "worst"), (baseline, "baseline")];
    let of = |run: usize| Explained {
        comparison,
        run,
        roles: match comparison.reports.len() {
            1 => Vec::new(),
            _ => roles.iter().filter(|role| role.0 == run).map(|role| role.1).collect(),
        },
    };
    let mut runs: Vec<usize> = Vec::new();
    for (run, _) in roles {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    runs.into_iter().map(of).collect()
}

/// An empty table of parts; with a column of machines, if there are several.
pub fn table(with_machines: bool) -> Table {
    let machine = with_machines.then_some(("machine", "machine"));
    let columns = [
        ("policy", "policy"),
        ("role", "role"),
        ("part", "part"),
        ("time_ms", "all threads, ms"),
        ("share", "share, %"),
    ];
    let columns: Vec<_> = machine.into_iter().chain(columns).collect();
    Table::new("time", &columns).with_keys(columns.len() - 2)
}

impl Explained<'_> {
    /// Index of the run in the comparison.
    pub fn run(&self) -> usize {
        self.run
    }

    /// Name of the policy.
    pub fn policy(&self) -> &str {
        &self.comparison.names[self.run]
    }

    /// `best`, `worst`, `baseline`, or several of them; empty for a single run.
    pub fn role(&self) -> String {
        self.roles.join(", ")
    }

    /// Rows of the table, one per part; for people those without time are left out.
    pub fn rows(&self, for_people: bool) -> Vec<Vec<Cell>> {
        let spent = &self.report().spent;
        let shown = |(_, _, of): &&Part| !for_people || of(spent) > 0.0;
        let row = |(key, name, of): &Part| {
            vec![
                Cell::text(self.policy()),
                Cell::text(self.role()),
                Cell::text(if for_people { *name } else { *key }),
                Cell::Real(of(spent), 3),
                Cell::Percent(self.share(of(spent))),
            ]
        };
        PARTS.iter().filter(shown).map(row).collect()
    }

    /// Sentences on the run.
    pub fn sentences(&self) -> Vec<String> {
        let kernel = [self.faults(), self.swap(), self.migration(), self.monitoring()];
        let mut sentences = vec![self.summary()];
        sentences.extend(self.compute());
        sentences.extend(self.memory());
        sentences.extend(self.walks());
        sentences.extend(kernel.into_iter().flatten());
        sentences.extend(self.waiting());
        sentences.extend(self.mix());
        sentences.extend(self.more_than_best());
        sentences
    }

    fn report(&self) -> &Report {
        &self.comparison.reports[self.run]
    }

    /// Share of the threads' time.
    fn share(&self, ms: f64) -> f64 {
        let all_ms = self.report().spent.threads_ms();
        if all_ms > 0.0 { ms / all_ms } else { 0.0 }
    }

    /// Per cent of the threads' time.
    fn percent(&self, ms: f64) -> String {
        percent(self.share(ms))
    }

    /// The run's time and its largest parts.
    fn summary(&self) -> String {
        let report = self.report();
        let role = if self.roles.is_empty() { String::new() } else { format!(" ({})", self.role()) };
        let mut parts: Vec<(f64, &str)> =
            PARTS.iter().map(|(_, name, of)| (self.share(of(&report.spent)), *name)).collect();
        parts.retain(|(share, _)| *share >= EXPLAINED);
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let parts: Vec<String> =
            parts.iter().map(|(share, name)| format!("{} {name}", percent(*share))).collect();
        format!(
            "{}{role} takes {} ms. Of the threads' time: {}.",
            self.policy(),
            Cell::Real(report.time_ms, 3).display(),
            parts.join(", ")
        )
    }

    fn compute(&self) -> Option<String> {
        let report = self.report();
        (self.share(report.spent.user_ms) > 0.5).then(|| {
            format!(
                "Compute-bound: {} of the time retires instructions; {:.2} of 1,000 miss every cache.",
                self.percent(report.spent.user_ms),
                report.llc_misses_per_kilo_instruction
            )
        })
    }

    /// Whether bandwidth or latency limits a run that waits for memory.
    fn memory(&self) -> Option<String> {
        let report = self.report();
        if self.share(report.spent.stall_ms) < LARGE {
            return None;
        }
        let largest = PARTS.iter().all(|(_, _, of)| of(&report.spent) <= report.spent.stall_ms);
        let (bandwidth, latency) = match largest {
            true => ("Bandwidth-bound", "Latency-bound"),
            false => ("Waits for memory are bandwidth-bound", "Waits for memory are latency-bound"),
        };
        let busiest = busiest(self.comparison, self.run);
        let used =
            format!("{} is {} busy, at {:.1} GB/s", busiest.name, percent(busiest.share), busiest.mbps / 1e3);
        let Some(mean) = report.latency.mean_ns else {
            return Some(format!("No read misses every cache: what waits are hits and page walks; {used}."));
        };
        if busiest.share >= BUSY {
            return Some(format!(
                "{bandwidth}: {used}, and a read that misses the caches takes {mean:.0} ns on average{}.",
                self.latencies()
            ));
        }
        Some(match queue(self.comparison, self.run) {
            Some(at) => format!(
                "{bandwidth} for a part of the time: reads queue at {}, where they take {:.0} ns on \
                 average and at most {:.0} ns without load. Over the whole time, {used}.",
                at.node, at.mean_ns, at.idle_ns
            ),
            None => format!(
                "{latency}: a read that misses the caches takes {mean:.0} ns on average{}, and no node \
                 or link is busier than {} ({}).",
                self.latencies(),
                percent(busiest.share),
                busiest.name
            ),
        })
    }

    /// Latencies of the nodes, if several are read.
    fn latencies(&self) -> String {
        let of = |node: &NodeReport| Some(format!("{} {:.0} ns", node.name, node.latency_mean_ns?));
        let of_nodes: Vec<String> = self.report().nodes.iter().filter_map(of).collect();
        if of_nodes.len() > 1 { format!(" ({})", of_nodes.join(", ")) } else { String::new() }
    }

    fn walks(&self) -> Option<String> {
        let report = self.report();
        let walks = report.tlb_misses as f64 / report.accesses.max(1) as f64;
        (walks >= WALKS && self.share(report.spent.stall_ms) >= LARGE).then(|| {
            format!(
                "{:.0} of 100 accesses walk the page table, which is part of waiting for memory.",
                walks * 100.0
            )
        })
    }

    fn faults(&self) -> Option<String> {
        let (spent, pages) = (&self.report().spent, &self.report().pages);
        (self.share(spent.kernel.faults_ms) >= EXPLAINED).then(|| {
            format!(
                "Page faults: {} first touches of 4 KiB pages and {} of 2 MiB pages take {} of the threads' \
                 time.",
                pages.faults,
                pages.huge_faults,
                self.percent(spent.kernel.faults_ms)
            )
        })
    }

    fn swap(&self) -> Option<String> {
        let (spent, pages) = (&self.report().spent, &self.report().pages);
        (pages.swapped_out + pages.swapped_in > 0).then(|| {
            format!(
                "Swap: memory runs out; {} pages written out and {} read back take {} of the threads' time.",
                pages.swapped_out,
                pages.swapped_in,
                self.percent(spent.kernel.swap_ms)
            )
        })
    }

    fn migration(&self) -> Option<String> {
        let (spent, pages) = (&self.report().spent, &self.report().pages);
        if pages.migrated == 0 && pages.refused.is_empty() && pages.cancelled.is_empty() {
            return None;
        }
        let copies = share_of_lines(self.report(), |node| node.copy_lines);
        let mut text = format!(
            "Migration: {} pages move{}; their copies are {} of all lines. Moves in faults and waits for \
             them take {} of the threads' time.",
            pages.migrated,
            self.moves(),
            percent(copies),
            self.percent(spent.kernel.migration_ms)
        );
        for (what, reasons) in [("refused", &pages.refused), ("cancelled", &pages.cancelled)] {
            if !reasons.is_empty() {
                let each = |(why, count): &(String, u64)| format!("{count} {why}");
                text +=
                    &format!(" Actions {what}: {}.", reasons.iter().map(each).collect::<Vec<_>>().join(", "));
            }
        }
        Some(text)
    }

    /// Moved pages by source and destination.
    fn moves(&self) -> String {
        let report = self.report();
        let name = |node: NodeId| report.nodes[node.index()].name.as_str();
        let path = |of: &MoveReport| format!("from {} to {}", name(of.from), name(of.to));
        match &report.pages.moves[..] {
            [] => String::new(),
            [one] => format!(" {}", path(one)),
            several => {
                let each: Vec<String> =
                    several.iter().map(|of| format!("{} {}", of.pages, path(of))).collect();
                format!(" ({})", each.join(", "))
            }
        }
    }

    fn monitoring(&self) -> Option<String> {
        let (spent, pages) = (&self.report().spent, &self.report().pages);
        if self.report().sensors.is_empty() {
            return None;
        }
        let mut text =
            format!("Monitoring takes {} of the threads' time", self.percent(spent.kernel.monitoring_ms));
        let counts = [(pages.hint_faults, "NUMA hint faults"), (pages.marked_misses, "marked TLB misses")];
        let counts: Vec<String> = (counts.iter().filter(|(count, _)| *count > 0))
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !counts.is_empty() {
            text += &format!(" ({})", counts.join(", "));
        }
        if spent.kernel_threads_ms > 0.0 {
            text += &format!(
                "; kernel threads, which sample accesses and copy pages, run {} ms beside the threads",
                Cell::Real(spent.kernel_threads_ms, 3).display()
            );
        }
        Some(text + ".")
    }

    fn waiting(&self) -> Option<String> {
        let report = self.report();
        (self.share(report.spent.idle_ms) >= LARGE).then(|| {
            let ends = report.program_ended_ms.iter().copied();
            let first = ends.clone().fold(f64::INFINITY, f64::min);
            let of_programs = match report.programs.len() {
                0 | 1 => String::new(),
                _ => format!(
                    "; the first program ends after {} ms of the run's {}",
                    Cell::Real(first, 3).display(),
                    Cell::Real(report.run_ms, 3).display()
                ),
            };
            format!(
                "Threads wait at barriers, for a CPU, while the policy stops them or for the end of the run \
                 for {} of their time{of_programs}.",
                self.percent(report.spent.idle_ms)
            )
        })
    }

    /// How much programs that run together slow each other down.
    fn mix(&self) -> Option<String> {
        let slowdowns = self.comparison.slowdowns(self.run)?;
        let list: Vec<String> = slowdowns.iter().map(|slowdown| format!("{slowdown:.2}")).collect();
        let level = |level: Level| format!("{:.2} with priority {}", level.slowdown_mean, level.priority);
        let levels: Vec<String> = self.comparison.levels(self.run).into_iter().map(level).collect();
        let levels = match levels.is_empty() {
            true => String::new(),
            false => format!(" On average, they take {}.", levels.join(", ")),
        };
        Some(format!(
            "The programs take {} times their time alone: a weighted speed-up of {:.2} of {}, fairness \
             {:.2}.{levels}",
            list.join(", "),
            self.comparison.weighted_speedup(self.run)?,
            slowdowns.len(),
            self.comparison.fairness(self.run)?
        ))
    }

    /// What the run's threads spend more time on than those of the best.
    fn more_than_best(&self) -> Option<String> {
        let best = self.comparison.best();
        (self.run != best).then(|| {
            let more = growth(&self.comparison.reports[best].spent, &self.report().spent);
            format!("Compared with {}, its threads spend {more} in all.", self.comparison.names[best])
        })
    }
}

fn percent(share: f64) -> String {
    format!("{} %", Cell::Percent(share).display())
}

#[cfg(test)]
pub(crate) mod tests;
