//! Loaded latency: a pointer chase on one CPU while others read from the same node, at given rates.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memtide_core::{CpuId, NodeId};

use super::chase::Chase;
use super::traffic::stream;
use super::{Effort, Figure, MeasureError, on};
use crate::sys::Words;

/// Words that are read between two delays: 512 bytes.
const BURST_WORDS: usize = 64;
const BURST_BYTES: u64 = 8 * BURST_WORDS as u64;

/// A delay without end: nothing is read.
const PAUSED: u64 = u64::MAX;

/// How long readers run before the chase is timed.
const SETTLE: Duration = Duration::from_millis(5);

/// Turns of a delay that are timed, to know what one takes.
const CALIBRATION_SPINS: u64 = 100_000;

/// A point of a loaded-latency curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// The rate of the others that was asked for, as a share of what they read without a delay.
    pub rate: f64,
    /// What the chase and the others read, in MB/s.
    pub mbps: f64,
    /// What the others read of it.
    pub others_mbps: f64,
    /// Mean time of a load of the chase, in ns.
    pub ns: Figure,
}

/// The latency that the first of the CPUs sees while all others read, each at the same rate: of each of the shares of what they read
/// without a delay, from 0 (idle) to 1. A rate comes about by a delay after each 512 bytes.
///
/// # Errors
/// If a CPU or the memory cannot be had.
///
/// # Panics
/// If there are fewer than two CPUs.
pub fn loaded_latency(
    cpus: &[CpuId],
    node: NodeId,
    shares: &[f64],
    effort: &Effort,
) -> Result<Vec<Loaded>, MeasureError> {
    let (&first, others) = cpus.split_first().expect("a CPU for the chase");
    assert!(!others.is_empty(), "no CPU loads the node");
    let readers = Readers {
        ready: Barrier::new(cpus.len()),
        delay: AtomicU64::new(PAUSED),
        bursts: others.iter().map(|_| Count(AtomicU64::new(0))).collect(),
        end: AtomicBool::new(false),
    };
    let readers = &readers;
    std::thread::scope(|scope| {
        let start = |(&cpu, count)| scope.spawn(move || readers.run(on(cpu, node, effort.mib), count));
        let threads: Vec<_> = others.iter().zip(&readers.bursts).map(start).collect();
        let chase = Chase::new(first, node, effort);
        readers.ready.wait();
        let points = chase.map(|mut chase| {
            let full = readers.point(&mut chase, 1.0, 0, effort);
            let each_ns = others.len() as f64 * BURST_BYTES as f64 * 1e3 / full.others_mbps;
            let spin_ns = spin_ns();
            let delay = |share: f64| match share {
                0.0 => PAUSED,
                share => (each_ns * (1.0 / share - 1.0) / spin_ns) as u64,
            };
            let at = |&share: &f64| match share {
                1.0 => full,
                share => readers.point(&mut chase, share, delay(share), effort),
            };
            shares.iter().map(at).collect()
        });
        readers.end.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("a reader does not panic"))?;
        points
    })
}

/// Time that a turn of a delay takes.
fn spin_ns() -> f64 {
    let start = Instant::now();
    spin(CALIBRATION_SPINS);
    start.elapsed().as_nanos() as f64 / CALIBRATION_SPINS as f64
}

/// Does nothing for some turns.
fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Threads that read.
struct Readers {
    /// All have their memory, and so has the chase.
    ready: Barrier,
    /// Turns between two bursts of a thread.
    delay: AtomicU64,
    /// How many there were of each.
    bursts: Vec<Count>,
    end: AtomicBool,
}

/// A number in cache lines of its own.
#[repr(align(128))]
struct Count(AtomicU64);

impl Readers {
    fn point(&self, chase: &mut Chase, rate: f64, delay: u64, effort: &Effort) -> Loaded {
        self.delay.store(delay, Ordering::Relaxed);
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            spin_loop();
        }
        let (start, before) = (Instant::now(), self.read());
        let run = chase.run(effort);
        let us = start.elapsed().as_nanos() as f64 / 1e3;
        let others_mbps = ((self.read() - before) * BURST_BYTES) as f64 / us;
        Loaded { rate, mbps: others_mbps + (run.loads * 64) as f64 / us, others_mbps, ns: run.ns }
    }

    /// Bursts so far.
    fn read(&self) -> u64 {
        self.bursts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    fn run(&self, words: Result<Words, MeasureError>, count: &Count) -> Result<(), MeasureError> {
        self.ready.wait();
        let mut words = words?;
        let bursts = words.len() / BURST_WORDS;
        let mut at = 0;
        while !self.end.load(Ordering::Relaxed) {
            let delay = self.delay.load(Ordering::Relaxed);
            if delay == PAUSED {
                spin_loop();
                continue;
            }
            black_box(stream(&mut words[at * BURST_WORDS..][..BURST_WORDS], 1.0));
            at = (at + 1) % bursts;
            count.0.fetch_add(1, Ordering::Relaxed);
            spin(delay);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn others_read_at_all_points_but_the_idle_one() {
        let effort = Effort { loads: 500_000, ..SMALL };
        let cpus = [CpuId(0), CpuId(1)];
        if crate::run_on(&cpus[1..]).is_err() {
            return;
        }
        let points = loaded_latency(&cpus, NodeId(0), &[0.0, 0.3, 1.0], &effort).unwrap();
        assert_eq!(points.iter().map(|point| point.rate).collect::<Vec<_>>(), [0.0, 0.3, 1.0]);
        // A burst may have been under way.
        assert!(points[0].others_mbps < 1.0 && points[0].mbps > points[0].others_mbps, "{points:?}");
        assert!(points[1..].iter().all(|point| point.others_mbps > 1.0), "{points:?}");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_and_no_hang() {
        for cpus in [[CpuId(0), CpuId(900)], [CpuId(900), CpuId(0)]] {
            let error = loaded_latency(&cpus, NodeId(0), &[0.0], &SMALL).unwrap_err();
            assert!(error.to_string().contains("CPU 900"), "{error}");
        }
    }
}
