//! The DDR4-2400 channel against the loaded-latency curves of two cycle-accurate simulators.
//!
//! Reference figures: DRAMsim3 and Ramulator 2.1, each with one DDR4-2400 channel of 2 ranks, open page,
//! FR-FCFS, a read queue of 32 and the timing set of `machines/ddr4-2400.toml`; Poisson arrivals of reads.
//! The rate is the realised one.

use crate::channel_support::{matched, near};
use memtide_core::machine::{Arbitration, Node};
use memtide_memory::probe::{Load, Pattern, ProbePoint, probe};

/// Realised rate in MB/s, mean latency in ns of DRAMsim3 and of Ramulator 2.1.
type Reference = (f64, f64, f64);

const RANDOM: [Reference; 10] = [
    (957.2, 54.11, 52.60),
    (1914.4, 57.62, 55.97),
    (3828.7, 61.52, 60.41),
    (5733.7, 65.48, 64.33),
    (7644.9, 70.42, 69.44),
    (9556.2, 76.23, 76.92),
    (11467.4, 84.30, 84.89),
    (12424.3, 91.50, 92.52),
    (13379.1, 99.97, 99.99),
    (14334.2, 115.35, 112.60),
];

const SEQUENTIAL: [Reference; 5] = [
    (957.2, 28.44, 27.86),
    (1914.4, 29.28, 29.20),
    (3828.7, 32.55, 32.48),
    (5733.7, 36.66, 36.80),
    (7644.9, 44.17, 45.13),
];

/// Reads and writes one to one; the latency is that of the reads.
const MIXED: [Reference; 7] = [
    (1914.4, 59.21, 55.87),
    (3828.7, 64.54, 59.43),
    (5733.7, 71.06, 63.86),
    (7644.9, 81.83, 73.78),
    (9556.2, 97.82, 89.61),
    (11467.4, 121.75, 118.23),
    (13378.6, 169.79, 166.67),
];

fn load(pattern: Pattern, share_of_peak: f64, requests: u64, seed: u64) -> Load {
    Load { pattern, read_share: 1.0, share_of_peak, requests, seed }
}

fn mean<const N: usize>(points: [ProbePoint; N], of: impl Fn(&ProbePoint) -> f64) -> f64 {
    points.iter().map(of).sum::<f64>() / N as f64
}

fn against(pattern: Pattern, references: &[Reference]) {
    let node = matched();
    let peak = node.dram.as_ref().unwrap().channel_peak().as_mbps();
    for &(rate, dramsim3, ramulator) in references {
        let points = [1, 2, 3, 4, 5].map(|seed| probe(&node, load(pattern, rate / peak, 100_000, seed)));
        let what = format!("{pattern:?} at {rate} MB/s");
        near(&format!("{what}: rate"), mean(points, |p| p.achieved.as_mbps()), rate, 0.005);
        near(&what, mean(points, |p| p.mean_ns), (dramsim3 + ramulator) / 2.0, 0.05);
        assert!(points.iter().all(|p| !p.saturated));
    }
}

#[test]
fn random_reads_up_to_75_percent_load() {
    against(Pattern::Random, &RANDOM);
}

/// Mean read latency of a mix of random reads and writes, in ns, and the realised rate in MB/s.
fn mixed(read_share: f64, rate: f64) -> (f64, f64) {
    let node = matched();
    let peak = node.dram.as_ref().unwrap().channel_peak().as_mbps();
    let points = [1, 2, 3, 4, 5]
        .map(|seed| probe(&node, Load { read_share, ..load(Pattern::Random, rate / peak, 100_000, seed) }));
    (mean(points, |p| p.mean_ns), mean(points, |p| p.achieved.as_mbps()))
}

/// Against Ramulator 2.1 alone, whose drain the controller's defaults follow: watermarks of 80 and 20 % of
/// the write queue. DRAMsim3 starts a drain only when its queue is full, and reads wait longer.
#[test]
fn random_reads_and_writes_one_to_one_up_to_70_percent_load() {
    for (rate, dramsim3, ramulator) in MIXED {
        let (mean_ns, achieved) = mixed(0.5, rate);
        let what = format!("one to one at {rate} MB/s");
        near(&format!("{what}: rate"), achieved, rate, 0.005);
        near(&what, mean_ns, ramulator, 0.05);
        assert!(mean_ns < 1.05 * dramsim3, "{what}: {mean_ns} ns, DRAMsim3 {dramsim3} ns");
    }
}

/// Ramulator 2.1 has 296.5 ns at this load, DRAMsim3 no longer keeps up: docs/simulator.md, Limits.
#[test]
fn random_reads_and_writes_one_to_one_at_80_percent_load_are_11_percent_slow() {
    let (mean_ns, achieved) = mixed(0.5, 15_289.9);
    near("one to one at 80 %: rate", achieved, 15_289.9, 0.01);
    near("one to one at 80 %", mean_ns, 328.0, 0.02);
}

#[test]
fn mix_of_80_percent_reads_is_between_reads_alone_and_one_to_one() {
    for (rate, _, one_to_one) in MIXED {
        let (mean_ns, achieved) = mixed(0.8, rate);
        let what = format!("80 % reads at {rate} MB/s");
        near(&format!("{what}: rate"), achieved, rate, 0.005);
        let (_, _, reads) = RANDOM.into_iter().find(|reads| (reads.0 - rate).abs() < 1.0).unwrap();
        assert!(mean_ns > 0.97 * reads && mean_ns < 1.03 * one_to_one, "{what}: {mean_ns} ns");
    }
}

#[test]
fn sequential_reads_up_to_40_percent_load() {
    against(Pattern::Sequential, &SEQUENTIAL);
}

#[test]
fn bandwidth_caps() {
    let node = matched();
    let sequential = probe(&node, load(Pattern::Sequential, 1.1, 200_000, 1));
    assert!(sequential.saturated);
    near("sequential cap", sequential.achieved.as_mbps(), 12_180.0, 0.03);
    let random = probe(&node, load(Pattern::Random, 1.1, 200_000, 1));
    near("random cap", random.achieved.as_mbps(), (17_700.0 + 16_500.0) / 2.0, 0.05);
}

#[test]
fn one_read_in_flight() {
    let chase = probe(&matched(), load(Pattern::Chase, 1.0, 100_000, 1));
    assert!((45.3 * 0.97..=48.0 * 1.03).contains(&chase.mean_ns), "{} ns", chase.mean_ns);
    assert!(!chase.saturated);
}

#[test]
fn tail_and_median_of_random_reads() {
    // Ramulator 2.1 only, whose arbitration and refresh the machine file uses: p50 and p99 in ns.
    for (rate, p50_ns, p99_ns) in [(957.2, 45.8, 346.5), (9556.2, 50.0, 429.0), (14334.2, 67.5, 485.6)] {
        let points = [1, 2, 3].map(|s| probe(&matched(), load(Pattern::Random, rate / 19_207.7, 100_000, s)));
        near("p50", mean(points, |p| p.p50_ns), p50_ns, 0.05);
        near("p99", mean(points, |p| p.p99_ns), p99_ns, 0.05);
    }
}

#[test]
fn arbitration_explains_the_difference_of_the_simulators_near_saturation() {
    // Ramulator 2.1 serves the oldest request first, DRAMsim3 the banks in rotation. At 90 % load the first
    // is not saturated, the second is.
    let mut node = matched();
    let points = |node: &Node, rate: f64| {
        [1, 2, 3].map(|seed| probe(node, load(Pattern::Random, rate / 19_207.7, 200_000, seed)))
    };
    near("oldest, 80 %", mean(points(&node, 15_289.9), |p| p.mean_ns), 132.57, 0.05);
    near("oldest, 85 %", mean(points(&node, 16_238.9), |p| p.mean_ns), 164.89, 0.05);
    let oldest = mean(points(&node, 17_205.5), |p| p.mean_ns);
    node.dram.as_mut().unwrap().arbitration = Arbitration::RoundRobin;
    near("rotation, 80 %", mean(points(&node, 15_289.9), |p| p.mean_ns), 145.15, 0.05);
    let rotation = mean(points(&node, 17_205.5), |p| p.mean_ns);
    assert!(rotation > 4.0 * oldest, "at 90 %: {rotation} against {oldest} ns");
}
