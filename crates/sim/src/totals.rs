//! Counts of a run: all so far, or those between two times.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use memtide_core::epoch::Record;
use memtide_core::{NodeId, Time};
use memtide_memory::{BankCounters, Counters, Requested, UncoreCounts};

use crate::engine::Engine;
use crate::os::OsCounts;
use crate::samples::ProgramSample;
use crate::thread::{Spent, State, ThreadCounts};

/// Counts of a run up to a time. Each only grows, so that a difference is what happened between two times,
/// and the sum of a run's parts is the run.
#[derive(Clone)]
pub(crate) struct Totals {
    pub time: Time,
    /// Of all threads, waiting and ended ones included.
    pub spent: Spent,
    /// Time of kernel threads.
    pub kernel_threads: Time,
    pub threads: ThreadCounts,
    /// Hits of each private level.
    pub private_hits: Vec<u64>,
    pub uncore: UncoreCounts,
    pub nodes: Vec<NodeTotals>,
    /// Lines in each direction.
    pub links: Vec<[u64; 2]>,
    pub os: OsCounts,
    /// Epochs with accesses by region, if the policy requests them.
    pub observations: Option<u64>,
    pub record: Record,
    /// By program.
    pub programs: Vec<ProgramSample>,
}

/// Counts of a node.
#[derive(Clone)]
pub(crate) struct NodeTotals {
    pub device: Counters,
    /// By channel and bank.
    pub banks: Vec<Vec<BankCounters>>,
    pub requested: Requested,
    /// Base pages migrated to it.
    pub migrated_pages: u64,
    /// Latencies of its demand reads.
    pub latencies: Histogram<u64>,
    /// Lines written to each page, if the node wears.
    pub wear: Option<Vec<u32>>,
}

impl Totals {
    /// Counts of a run up to now.
    pub fn of(engine: &Engine<'_>, now: Time) -> Totals {
        let counts = || engine.threads.iter().map(|thread| &thread.counts);
        let node = |node: NodeId| NodeTotals {
            device: engine.uncore.node_counters(node, now),
            banks: engine.uncore.bank_counters(node),
            requested: engine.uncore.requested(node),
            migrated_pages: engine.mover.migrated_pages(node),
            latencies: engine.samples.of_node(node).0.clone(),
            wear: engine.uncore.wear(node).map(<[u32]>::to_vec),
        };
        let sensed = engine.sensors.cost();
        let recorded = engine.policy.as_ref().map(|runner| runner.governor().recorded().clone());
        Totals {
            time: now,
            spent: spent(engine, now),
            kernel_threads: engine.mover.system
                + engine.sensors.kernel_time()
                + sensed.map_or(Time::ZERO, |(time, _)| time),
            threads: ThreadCounts {
                instructions: counts().map(|counts| counts.instructions).sum(),
                accesses: counts().map(|counts| counts.accesses).sum(),
                tlb_misses: counts().map(|counts| counts.tlb_misses).sum(),
                read_lines: counts().map(|counts| counts.read_lines).sum(),
                written_lines: counts().map(|counts| counts.written_lines).sum(),
            },
            private_hits: private_hits(engine),
            uncore: engine.uncore.counts(),
            nodes: engine.setup.machine.node_ids().map(node).collect(),
            links: (0..engine.setup.machine.links.len()).map(|link| engine.uncore.link_lines(link)).collect(),
            os: engine.os.counts,
            observations: sensed.map(|(_, observations)| observations),
            record: recorded.unwrap_or_default(),
            programs: ProgramSample::of_all(engine),
        }
    }

    /// What happened since an earlier time of the same run.
    pub fn since(&self, earlier: &Totals) -> Totals {
        let mut difference = self.clone();
        difference.combine(earlier, |later, earlier| later - earlier);
        for (node, earlier) in difference.nodes.iter_mut().zip(&earlier.nodes) {
            node.device = node.device.since(earlier.device);
            let banks = node.banks.iter_mut().flatten().zip(earlier.banks.iter().flatten());
            banks.for_each(|(later, earlier)| *later = later.since(*earlier));
            let subtracted = node.latencies.subtract(&earlier.latencies);
            subtracted.expect("each count of a histogram only grows");
            let wear = node.wear.iter_mut().flatten().zip(earlier.wear.iter().flatten());
            wear.for_each(|(later, earlier)| *later -= earlier);
        }
        difference
    }

    /// Adds what happened in another part of the run.
    pub fn add(&mut self, other: &Totals) {
        self.combine(other, |a, b| a + b);
        for (node, other) in self.nodes.iter_mut().zip(&other.nodes) {
            node.device = node.device.plus(other.device);
            let banks = node.banks.iter_mut().flatten().zip(other.banks.iter().flatten());
            banks.for_each(|(sum, more)| *sum = sum.plus(*more));
            node.latencies.add(&other.latencies).expect("histograms of the same bounds");
            let wear = node.wear.iter_mut().flatten().zip(other.wear.iter().flatten());
            wear.for_each(|(sum, more)| *sum += more);
        }
    }

    /// Base pages migrated.
    pub fn migrated_pages(&self) -> u64 {
        self.nodes.iter().map(|node| node.migrated_pages).sum()
    }

    /// Latencies of all nodes' demand reads.
    pub fn latencies(&self) -> Histogram<u64> {
        let mut all = self.nodes[0].latencies.clone();
        for other in &self.nodes[1..] {
            all.add(&other.latencies).expect("histograms of the same bounds");
        }
        all
    }

    /// Applies `op` to every plain count and the other's.
    fn combine(&mut self, other: &Totals, op: fn(u64, u64) -> u64) {
        let Spent { user, system, stall, idle } = &mut self.spent;
        let times = [&mut self.time, &mut self.kernel_threads, user, stall, idle];
        let times = times.into_iter().chain(&mut system.0);
        let Spent { user, system, stall, idle } = other.spent;
        let others = [other.time, other.kernel_threads, user, stall, idle];
        let others = others.into_iter().chain(system.0);
        times.zip(others).for_each(|(time, other)| time.0 = op(time.0, other.0));
        for (count, other) in self.counts().into_iter().zip(other.clone().counts()) {
            *count = op(*count, *other);
        }
        combine_maps(&mut self.record.moved_pages, &other.record.moved_pages, op);
        combine_maps(&mut self.record.refused, &other.record.refused, op);
        combine_maps(&mut self.record.cancelled, &other.record.cancelled, op);
    }

    /// All plain counts, in one order.
    fn counts(&mut self) -> Vec<&mut u64> {
        let Totals { threads, uncore, os, .. } = self;
        let mut all = vec![&mut threads.instructions, &mut threads.accesses, &mut threads.tlb_misses];
        all.extend([&mut uncore.accesses, &mut uncore.misses, &mut uncore.prefetches]);
        all.extend([&mut uncore.ideal.read, &mut uncore.ideal.written]);
        all.extend([&mut os.faults, &mut os.huge_faults, &mut os.hint_faults, &mut os.marked_misses]);
        all.extend([&mut os.swapped_out_pages, &mut os.swapped_in_pages, &mut os.reclaims]);
        all.extend(self.observations.as_mut());
        all.extend(self.private_hits.iter_mut().chain(self.links.iter_mut().flatten()));
        for NodeTotals { requested, migrated_pages, .. } in &mut self.nodes {
            let Requested { demand, prefetch, copy } = requested;
            all.extend([demand, prefetch, copy, migrated_pages]);
        }
        for ProgramSample { lines, migrated_pages } in &mut self.programs {
            all.extend([lines, migrated_pages]);
        }
        all
    }
}

/// Combines counts by key; those that become 0 go.
fn combine_maps<K: Ord + Clone>(
    counts: &mut BTreeMap<K, u64>,
    others: &BTreeMap<K, u64>,
    op: fn(u64, u64) -> u64,
) {
    for (key, &other) in others {
        let count = counts.entry(key.clone()).or_default();
        *count = op(*count, other);
    }
    counts.retain(|_, count| *count > 0);
}

/// Threads that wait for others or for a CPU, or have ended, have been idle since they left their CPU.
fn spent(engine: &Engine<'_>, now: Time) -> Spent {
    let mut sum = Spent::default();
    for (number, thread) in engine.threads.iter().enumerate() {
        let Spent { user, system, stall, idle } = thread.spent;
        sum.user += user;
        sum.system.0.iter_mut().zip(system.0).for_each(|(sum, time)| *sum += time);
        sum.stall += stall;
        sum.idle += idle;
        let waits = match thread.state {
            State::NotStarted => false,
            State::Runnable => engine.cores[thread.cpu.index()].running != Some(number),
            State::AtBarrier | State::Ended => true,
        };
        if waits {
            sum.idle += now.since(thread.left_at);
        }
    }
    sum
}

fn private_hits(engine: &Engine<'_>) -> Vec<u64> {
    let mut sums = Vec::new();
    for core in &engine.cores {
        for (level, hits) in core.cache_hits().enumerate() {
            sums.resize(sums.len().max(level + 1), 0);
            sums[level] += hits;
        }
    }
    sums
}
