//! Which policy is best and why, in sentences.

use std::ops::Deref;

use memtide_core::params::{Kind, split_name};
use memtide_core::policy::Sensor;
use memtide_sim::{Comparison, NodeReport, Report, TimeReport};

use super::bottleneck::{BUSY, busiest, queue};
use super::simulated::share_of_lines;
use crate::output::Cell;

/// Times closer than this share of each other count as equal.
const EQUAL: f64 = 0.02;

/// Share of lines from which prefetching and page copies are reported.
const REPORTED_SHARE: f64 = 0.01;

/// Names of a list that are printed individually.
const NAMED: usize = 8;

/// Which policies are best and why, and the limits of the runs, a point each; for one run its limits only.
pub fn verdict(comparison: &Comparison) -> Vec<String> {
    Verdict(comparison).sentences()
}

/// A subset of a node's traffic, in lines.
type LinesOf = fn(&NodeReport) -> u64;

/// A comparison, described in sentences.
struct Verdict<'a>(&'a Comparison);

impl Deref for Verdict<'_> {
    type Target = Comparison;

    fn deref(&self) -> &Comparison {
        self.0
    }
}

impl Verdict<'_> {
    fn sentences(&self) -> Vec<String> {
        let mut sentences = match &self.reports[0].nodes[..] {
            [only] => vec![format!(
                "{} has a single memory node, {}: there is nothing to place.",
                self.reports[0].machine, only.name
            )],
            _ if self.reports.len() < 2 => Vec::new(),
            _ if self.spread() < 1.0 + EQUAL => vec![self.unequal_program().unwrap_or_else(|| self.alike())],
            _ => self.ranked(),
        };
        sentences.extend(self.shortage());
        sentences.extend(stayed(self));
        sentences
    }

    /// Of several programs whose common region takes as long everywhere, the one whose own time differs most.
    fn unequal_program(&self) -> Option<String> {
        let times = |program: usize| self.reports.iter().map(move |report| report.program_times_ms[program]);
        let programs = &self.reports[0].programs;
        let unequal = (0..programs.len()).filter(|_| programs.len() > 1).map(|program| {
            let ordered = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
            let fastest = times(program).enumerate().min_by(ordered).expect("two runs");
            (program, fastest, times(program).enumerate().max_by(ordered).expect("two runs"))
        });
        let ratio = |(_, fast, slow): &(usize, (usize, f64), (usize, f64))| slow.1 / fast.1;
        let widest = unequal.reduce(|a, b| if ratio(&b) > ratio(&a) { b } else { a })?;
        let (program, (fast, _), (slow, _)) = widest;
        (ratio(&widest) >= 1.0 + EQUAL).then(|| {
            format!(
                "The time in which all programs run is the same within {:.1} %, but {} takes {:.2} times as \
                 long under {} as under {}.",
                (self.spread() - 1.0) * 100.0,
                programs[program],
                ratio(&widest),
                self.names[slow],
                self.names[fast]
            )
        })
    }

    /// Speedup of the best over the worst.
    fn spread(&self) -> f64 {
        self.reports[self.worst()].time_ms / self.reports[self.best()].time_ms
    }

    /// The runs that are as fast as the best, fastest first.
    fn tied(&self) -> Vec<usize> {
        let limit = self.reports[self.best()].time_ms * (1.0 + EQUAL);
        let mut tied: Vec<usize> =
            (0..self.reports.len()).filter(|&index| self.reports[index].time_ms < limit).collect();
        tied.sort_by(|&a, &b| self.reports[a].time_ms.total_cmp(&self.reports[b].time_ms));
        tied
    }

    fn alike(&self) -> String {
        let best = self.best();
        let slower = self.spread() - 1.0;
        format!(
            "All these policies take {}{} ({:.2} LLC misses in 1,000 instructions, no node or \
             link busier than {:.0} %).",
            if slower < 0.0005 {
                "the same time".to_owned()
            } else {
                format!("times within {:.1} %", slower * 100.0)
            },
            if self.is_spread_alike() {
                ": each node gets the same share of their requests"
            } else {
                ": placement matters little to this program"
            },
            self.reports[best].llc_misses_per_kilo_instruction,
            busiest(self, best).share * 100.0
        )
    }

    /// Whether all runs' demand traffic has similar shares per node.
    fn is_spread_alike(&self) -> bool {
        let like = |(a, b): (&NodeReport, &NodeReport)| (a.demand_share - b.demand_share).abs() < EQUAL;
        let first = &self.reports[0].nodes;
        self.reports.iter().all(|report| report.nodes.iter().zip(first).all(like))
    }

    fn ranked(&self) -> Vec<String> {
        let (best, worst, tied) = (self.best(), self.worst(), self.tied());
        let against = if tied.contains(&self.baseline) { worst } else { self.baseline };
        let times = self.reports[against].time_ms / self.reports[best].time_ms;
        let of_worst = if against == worst {
            String::new()
        } else {
            format!(", {:.2} times as fast as {}, the worst", self.spread(), self.names[worst])
        };
        let others: Vec<usize> = tied.into_iter().filter(|&index| index != best).collect();
        let mut sentences = vec![format!(
            "{} is best: {times:.2} times as fast as {}{of_worst}{}.",
            self.names[best],
            self.names[against],
            self.also(&others)
        )];
        sentences.push(self.traffic(best, against));
        sentences.push(self.reason(best, against));
        sentences.extend(self.cost_of_moves(against));
        if against != worst {
            sentences.push(self.reason(best, worst));
            sentences.extend(self.cost_of_moves(worst));
        }
        sentences
    }

    /// The runs that are as fast as the best, for the end of its sentence.
    fn also(&self, runs: &[usize]) -> String {
        let names: Vec<&str> = runs.iter().map(|&run| self.names[run].as_str()).collect();
        let list = match &names[..] {
            [] => return String::new(),
            [one] => (*one).to_owned(),
            [few @ .., last] if names.len() <= NAMED => format!("{} and {last}", few.join(", ")),
            many => format!("{} and {} more", many[..NAMED].join(", "), many.len() - NAMED),
        };
        format!("; within {:.0} % of the best: {list}", EQUAL * 100.0)
    }

    /// How the two differ in demand traffic, prefetching and migration.
    fn traffic(&self, best: usize, other: usize) -> String {
        let shares = |nodes: &[NodeReport]| {
            let share = |node: &NodeReport| format!("{:.0} % to {}", node.demand_share * 100.0, node.name);
            nodes.iter().map(share).collect::<Vec<_>>().join(", ")
        };
        let [a, b] = [best, other].map(|index| shares(&self.reports[index].nodes));
        let names = [best, other].map(|index| &self.names[index]);
        let mut text = format!("Demand traffic of {} goes {a}; that of {} {b}.", names[0], names[1]);
        let parts: [(&str, LinesOf); 2] =
            [("Prefetching", |node| node.prefetch_lines), ("Migration", |node| node.copy_lines)];
        for (what, lines) in parts {
            let of = [best, other].map(|index| share_of_lines(&self.reports[index], lines));
            if of.iter().any(|&share| share >= REPORTED_SHARE) {
                text += &format!(
                    " {what} adds {:.0} % of all lines under {}, {:.0} % under {}.",
                    of[0] * 100.0,
                    names[0],
                    of[1] * 100.0,
                    names[1]
                );
            }
        }
        text
    }

    /// Why the best is faster than the other, by the nodes' figures.
    fn reason(&self, best: usize, other: usize) -> String {
        let [a, b] = [best, other].map(|index| &self.reports[index]);
        let [winner, loser] = [best, other].map(|index| &self.names[index]);
        if swapped(b) > swapped(a) + swapped(a) / 10 {
            return format!(
                "Under {loser} memory runs out: it swaps {} pages out and in, {winner} only {}.",
                swapped(b),
                swapped(a)
            );
        }
        if b.spent.stall_ms <= a.spent.stall_ms {
            return self.where_time_goes(best, other);
        }
        let busiest = busiest(self, other);
        if busiest.share >= BUSY {
            let total =
                |report: &Report| report.nodes.iter().map(|node| node.bandwidth_mbps).sum::<f64>() / 1e3;
            return format!(
                "Under {loser} {} is {:.0} % busy and is the bottleneck; {winner} draws {:.1} GB/s in all \
                 instead of {:.1}.",
                busiest.name,
                busiest.share * 100.0,
                total(a),
                total(b)
            );
        }
        let means = a.latency.mean_ns.zip(b.latency.mean_ns);
        let Some((mean, other_mean)) = means.filter(|(mean, other)| *mean < other * (1.0 - EQUAL)) else {
            return self.where_time_goes(best, other);
        };
        let takes = format!(
            "a read that misses the caches takes {other_mean:.0} ns on average under {loser}, {mean:.0} \
             under {winner}"
        );
        match queue(self, other) {
            Some(at) => format!("Reads queue at {} for part of the run: {takes}.", at.node),
            None => format!("No node or link is busy, so latency decides: {takes}."),
        }
    }

    /// In what the other's threads spend more time than the best's: the part that grows most, and all parts.
    fn where_time_goes(&self, best: usize, other: usize) -> String {
        let [a, b] = [best, other].map(|index| &self.reports[index].spent);
        let [winner, loser] = [best, other].map(|index| &self.names[index]);
        let grown = growth(a, b);
        format!(
            "Memory is no slower under {loser} than under {winner}; the threads of {loser} spend {grown} \
             in all."
        )
    }

    /// Cost of migration, if high.
    fn cost_of_moves(&self, index: usize) -> Option<String> {
        let report = &self.reports[index];
        let share = report.spent.system_ms / report.spent.threads_ms();
        (report.pages.migrated > 0 && share > 0.1).then(|| {
            format!(
                "{} spends {:.0} % of its time in the kernel and moves {} pages.",
                self.names[index],
                share * 100.0,
                report.pages.migrated
            )
        })
    }

    /// Whether the programs exceed memory under any policy.
    fn shortage(&self) -> Option<String> {
        self.reports.iter().all(|report| swapped(report) > 0).then(|| {
            "Every policy swaps: the programs need more memory than the machine has at this scale; use a \
             lower --scale or a smaller program."
                .to_owned()
        })
    }
}

/// The part of the threads' time that grows most from one run to another, and the growth of all parts.
pub fn growth(from: &TimeReport, to: &TimeReport) -> String {
    let parts = [
        ("waiting for memory", to.stall_ms - from.stall_ms),
        ("in the kernel", to.system_ms - from.system_ms),
        ("waiting for each other, a CPU or the policy", to.idle_ms - from.idle_ms),
        ("retiring instructions", to.user_ms - from.user_ms),
    ];
    let (what, more_ms) = parts.into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a }).expect("four parts");
    let sum_ms = to.threads_ms() - from.threads_ms();
    let ms = |ms: f64| Cell::Real(ms.abs(), 3).display();
    let sign = if sum_ms < 0.0 { "less" } else { "more" };
    format!("{} ms more {what}, and {} ms {sign}", ms(more_ms), ms(sum_ms))
}

/// Pages swapped out and in.
fn swapped(report: &Report) -> u64 {
    report.pages.swapped_out + report.pages.swapped_in
}

/// Why pages stayed that policies could have moved.
pub fn stayed(comparison: &Comparison) -> Vec<String> {
    let Comparison { names, reports, .. } = comparison;
    match &reports[0].nodes[..] {
        [_] => Vec::new(),
        _ => [without_occasion(names, reports), full_nodes(names, reports)].concat(),
    }
}

/// Reports migration policies that moved nothing, and why: mostly an epoch that is too long for the run.
pub fn without_occasion(names: &[String], reports: &[Report]) -> Vec<String> {
    let runs = names.iter().zip(reports).filter(|(name, _)| name.contains('+'));
    runs.filter_map(|(name, report)| match report.run_observations() {
        Some(0) => Some(no_epoch(name, report)),
        Some(epochs) if moved_nothing(report) => Some(none_chosen(name, report, epochs)),
        None if [Sensor::HintFaults, Sensor::SlowTierFaults]
            .iter()
            .any(|sensor| asks_for(report, *sensor)) =>
        {
            (report.run_hint_faults() == 0).then(|| no_hint_fault(name, report))
        }
        _ => None,
    })
    .collect()
}

/// Minimum epochs of a run for a policy to find and move hot pages.
const EPOCHS: f64 = 10.0;

/// Steps in which the hint scanner marks most programs' pages twice.
const SCANS: f64 = 20.0;

/// Whether a run moved no page, none of its actions failed, and no node was too full for any.
fn moved_nothing(report: &Report) -> bool {
    let pages = &report.pages;
    report.run_migrated() == 0
        && pages.refused.is_empty()
        && pages.cancelled.is_empty()
        && report.full.is_empty()
}

/// Reports pages that policies would have moved to nodes without free memory.
pub fn full_nodes(names: &[String], reports: &[Report]) -> Vec<String> {
    let full = names.iter().zip(reports).flat_map(|(name, report)| {
        report.full.iter().map(move |full| {
            let node = &report.nodes[full.node.index()].name;
            let epochs =
                report.run_observations().map_or("epochs".to_owned(), |all| format!("of its {all} epochs"));
            format!(
                "{name} left {} pages where they were, on average: node {node} was full at {} {epochs}.",
                Cell::Real(full.pages_mean, 0).display(),
                full.epochs,
            )
        })
    });
    full.collect()
}

/// Whether the policy of a run requested a sensor.
fn asks_for(report: &Report, sensor: Sensor) -> bool {
    report.sensors.iter().any(|answer| answer.sensor == sensor.name())
}

fn no_epoch(name: &str, report: &Report) -> String {
    format!(
        "No epoch ended under {name}, so nothing migrated: the run ends after {} ms of the machine's time, \
         before the first; {}.",
        Cell::Real(ran_ms(report), 0).display(),
        with_more_epochs(name, report)
    )
}

fn none_chosen(name: &str, report: &Report, epochs: u64) -> String {
    if asks_for(report, Sensor::Messages) {
        return format!(
            "{name} moved no page: it moves buffers that programs offer (workloads with the parameter \
             'send', programs of a run file with the key 'send') once less of the fastest tier is free than \
             its parameter 'migrate' says (docs/policies/pms.md)."
        );
    }
    let ended = if epochs == 1 { "1 epoch".to_owned() } else { format!("{epochs} epochs") };
    if epochs as f64 >= EPOCHS {
        return format!("{ended} ended under {name}, and it chose no page to move.");
    }
    format!(
        "Only {ended} ended under {name}, in {} ms of the machine's time, and nothing migrated; {}.",
        Cell::Real(ran_ms(report), 0).display(),
        with_more_epochs(name, report)
    )
}

/// A run's time on the real machine.
fn ran_ms(report: &Report) -> f64 {
    report.run_ms * f64::from(report.scale)
}

/// What to change for a policy to have as many epochs as it needs.
fn with_more_epochs(name: &str, report: &Report) -> String {
    let ran_ms = ran_ms(report);
    let migration = name.split_once('+').map_or("", |(_, migration)| split_name(migration).0);
    let declared = memtide_policies::migrations().find(|info| info.name == migration);
    let period = declared.into_iter().flat_map(|info| info.parameters).find(|p| p.name == EPOCH_MS);
    match period.map(|parameter| parameter.kind) {
        Some(Kind::Integer { min, .. }) if ran_ms / EPOCHS >= min as f64 => {
            format!("use {}", with_epoch(name, (ran_ms / EPOCHS) as u64))
        }
        Some(Kind::Integer { min, .. }) => format!(
            "give the program {:.0} times as much to do, and use {}",
            (min as f64 * EPOCHS / ran_ms).ceil(),
            with_epoch(name, min)
        ),
        _ => "give the program more to do".to_owned(),
    }
}

fn no_hint_fault(name: &str, report: &Report) -> String {
    let ran_ms = ran_ms(report);
    if report.sensors.iter().any(|answer| answer.sensor == Sensor::SlowTierFaults.name()) {
        return format!(
            "No NUMA hint fault occurred under {name}, so nothing migrated: in the run's {} ms of the \
             machine's time, no page below the fastest tier was accessed after a scan. If there are such \
             pages, give the program more to do, or use --set kernel.numa_scan_period_ms={}.",
            Cell::Real(ran_ms, 0).display(),
            Cell::Real(ran_ms / SCANS, 0).display()
        );
    }
    format!(
        "No NUMA hint fault occurred under {name}, so nothing migrated: the run ends after {} ms of the \
         machine's time, before the kernel's scanner starts; give the program more to do, or use --set \
         kernel.numa_scan_period_ms={} (shorter periods cost the program more hint faults).",
        Cell::Real(ran_ms, 0).display(),
        Cell::Real(ran_ms / SCANS, 0).display()
    )
}

const EPOCH_MS: &str = "epoch_ms";

/// A policy's name with another epoch.
fn with_epoch(name: &str, epoch_ms: u64) -> String {
    let (placement, migration) = name.split_once('+').unwrap_or((name, ""));
    let (migration, params) = split_name(migration);
    let others = params.split([',', ':']).filter(|param| !param.is_empty() && !param.starts_with(EPOCH_MS));
    let params: Vec<String> =
        [format!("{EPOCH_MS}={epoch_ms}")].into_iter().chain(others.map(str::to_owned)).collect();
    format!("{placement}+{migration}:{}", params.join(","))
}

#[cfg(test)]
mod tests {
    use memtide_core::NodeId;
    use memtide_core::machine::bundled;
    use memtide_sim::{FullReport, SensorReport};

    use super::super::explanation::tests::report;
    use super::*;

    /// Of a first run and a slower second one, on `bmpm-2`.
    fn verdict_of(first: Report, second: Report) -> String {
        let machine = bundled::machine("bmpm-2").expect("a bundled machine").expect("a sound file");
        let names = ["local", "interleave"].map(str::to_owned).to_vec();
        verdict(&Comparison::new(&machine, names, vec![first, second])).join(" ")
    }

    #[test]
    fn busy_node_is_the_bottleneck_only_of_a_run_that_waits_longer_for_memory() {
        let busy = || report([16_500.0, 100.0], [90.0, 150.0]);
        let slower = |stall_ms, system_ms| {
            let spent = TimeReport { stall_ms, system_ms, ..busy().spent };
            Report { time_ms: 50.0, spent, ..busy() }
        };
        let waits = verdict_of(busy(), slower(180.0, 0.0));
        assert!(waits.contains("busy and is the bottleneck"), "{waits}");
        let works = verdict_of(busy(), slower(70.0, 110.0));
        assert!(works.contains("110.000 ms more in the kernel"), "{works}");
        assert!(!works.contains("bottleneck"), "{works}");
    }

    #[test]
    fn program_whose_own_time_differs_is_named_if_the_common_time_does_not() {
        let mix = |second_ms: f64| Report {
            programs: ["gups", "stream"].map(str::to_owned).to_vec(),
            program_times_ms: vec![25.0, second_ms],
            program_started_ms: vec![0.0; 2],
            program_ended_ms: vec![25.0, second_ms],
            ..report([100.0, 100.0], [90.0, 150.0])
        };
        let differs = verdict_of(mix(30.0), mix(33.0));
        let named = "but stream takes 1.10 times as long under interleave as under local";
        assert!(differs.contains(named), "{differs}");
        let alike = verdict_of(mix(30.0), mix(30.1));
        assert!(alike.contains("each node gets the same share of their requests"), "{alike}");
    }

    #[test]
    fn policy_that_moves_nothing_is_reported_with_its_epochs() {
        let said = |epochs: u64, migrated: u64, refused: &[&str]| {
            let mut run = report([100.0, 100.0], [90.0, 150.0]);
            run.pages.observations = Some(epochs);
            run.pages.migrated = migrated;
            run.pages.refused = refused.iter().map(|why| ((*why).to_owned(), 1)).collect();
            without_occasion(&["local+hanb".to_owned()], &[run]).join(" ")
        };
        assert!(said(0, 0, &[]).starts_with("No epoch ended under local+hanb"));
        let few = said(1, 0, &[]);
        assert!(few.starts_with("Only 1 epoch ended under local+hanb, in "), "{few}");
        assert!(few.ends_with("use local+hanb:epoch_ms=160."), "{few}");
        assert_eq!(said(20, 0, &[]), "20 epochs ended under local+hanb, and it chose no page to move.");
        assert_eq!(said(20, 1, &[]) + &said(20, 0, &["no-room"]), "");
        let mut unsent = report([100.0, 100.0], [90.0, 150.0]);
        unsent.pages.observations = Some(20);
        let [sensor, answer, how] = ["messages", "observed", "simulated"].map(str::to_owned);
        unsent.sensors = vec![SensorReport { sensor, answer, how }];
        let unsent = without_occasion(&["local+pms".to_owned()], &[unsent]).join(" ");
        assert!(unsent.contains("(workloads with the parameter 'send'"), "{unsent}");
    }

    #[test]
    fn full_node_is_named_with_pages_and_epochs() {
        let mut run = report([100.0, 100.0], [90.0, 150.0]);
        run.pages.observations = Some(40);
        run.full = vec![FullReport { node: NodeId(1), epochs: 12, pages_mean: 309.6 }];
        let names = ["local+pms".to_owned()];
        assert_eq!(
            full_nodes(&names, std::slice::from_ref(&run)),
            ["local+pms left 310 pages where they were, on average: node nvm was full at 12 of its 40 \
                 epochs."]
        );
        assert_eq!(without_occasion(&names, &[run]), [""; 0], "no second reason");
    }

    #[test]
    fn growth_of_a_part_is_not_called_a_part_of_less_growth() {
        let of = |idle_ms, stall_ms| TimeReport { idle_ms, stall_ms, ..TimeReport::default() };
        let more = growth(&of(1.0, 2.0), &of(1.975, 1.555));
        assert_eq!(more, "0.975 ms more waiting for each other, a CPU or the policy, and 0.530 ms more");
        let less = growth(&of(1.0, 2.0), &of(1.5, 1.0));
        assert_eq!(less, "0.500 ms more waiting for each other, a CPU or the policy, and 0.500 ms less");
    }

    #[test]
    fn advised_epoch_replaces_the_one_given_and_keeps_other_parameters() {
        assert_eq!(with_epoch("local+hot-cold", 49), "local+hot-cold:epoch_ms=49");
        assert_eq!(
            with_epoch("ratio:weights=3:1+hot-cold:low=3,epoch_ms=900:high=9", 10),
            "ratio:weights=3:1+hot-cold:epoch_ms=10,low=3,high=9"
        );
    }
}
