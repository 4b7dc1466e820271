//! Loaded latency: a pointer chase on one CPU while others read from the same node, at given rates.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memtide_core::{CpuId, NodeId, PageSize};

use super::chase::Chase;
use super::traffic::stream;
use super::{Effort, Figure, MeasureError, on};
use crate::sys::Words;

/// Words read between two delays: 512 bytes.
const BURST_WORDS: usize = 64;
const BURST_BYTES: u64 = 8 * BURST_WORDS as u64;

/// An infinite delay: no reads.
const PAUSED: u64 = u64::MAX;

/// How long readers run before the chase is timed.
const SETTLE: Duration = Duration::from_millis(5);

/// Delay iterations timed to calibrate one.
const CALIBRATION_SPINS: u64 = 100_000;

/// A point of a loaded-latency curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// Requested rate of the readers, as a share of their rate without a delay.
    pub rate: f64,
    /// Bandwidth of the chase and the readers, in MB/s.
    pub mbps: f64,
    /// Bandwidth of the readers alone, in MB/s.
    pub others_mbps: f64,
    /// Mean time per load of the chase, in ns.
    pub ns: Figure,
}

/// The latency that the first CPU sees while all others read at equal rates: at each share of their rate
/// without a delay, from 0 (idle) to 1. A delay after each 512 bytes sets the rate.
///
/// # Errors
/// If a CPU or the memory is not available.
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
        point: AtomicU64::new(0),
        each: others.iter().map(|_| Reader::default()).collect(),
        end: AtomicBool::new(false),
    };
    let readers = &readers;
    std::thread::scope(|scope| {
        let start = |(&cpu, reader)| {
            scope.spawn(move || readers.run(on(cpu, node, effort.bytes(), PageSize::Huge), reader))
        };
        let threads: Vec<_> = others.iter().zip(&readers.each).map(start).collect();
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

/// Time per delay iteration.
fn spin_ns() -> f64 {
    let start = Instant::now();
    spin(CALIBRATION_SPINS);
    start.elapsed().as_nanos() as f64 / CALIBRATION_SPINS as f64
}

/// Spins for a number of iterations.
fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Reader threads.
struct Readers {
    /// Released when all readers and the chase have their memory.
    ready: Barrier,
    /// Delay iterations between two bursts of a thread.
    delay: AtomicU64,
    /// Number of points whose delays were set.
    point: AtomicU64,
    each: Vec<Reader>,
    /// Set when all points are measured, or a reader has no memory.
    end: AtomicBool,
}

/// A thread's state, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Reader {
    /// The point whose delay it uses.
    point: AtomicU64,
    /// Bursts read.
    bursts: AtomicU64,
}

impl Readers {
    /// Measures a point. Starts once every reader uses its delay and ends once each has read: a reader may
    /// wait for its CPU, used by other processes, for longer than a run of the chase.
    fn point(&self, chase: &mut Chase, rate: f64, delay: u64, effort: &Effort) -> Loaded {
        self.begin(delay);
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            spin_loop();
        }
        let (start, before) = (Instant::now(), self.bursts());
        let mut loads = 0;
        let ns = loop {
            let run = chase.run(effort);
            loads += run.loads;
            if delay == PAUSED || self.all_read_since(&before) || self.end.load(Ordering::Relaxed) {
                break run.ns;
            }
        };
        let us = start.elapsed().as_nanos() as f64 / 1e3;
        let read: u64 = self.bursts().iter().zip(&before).map(|(now, before)| now - before).sum();
        let others_mbps = (read * BURST_BYTES) as f64 / us;
        Loaded { rate, mbps: others_mbps + (loads * 64) as f64 / us, others_mbps, ns }
    }

    /// Sets a point's delay and waits until every reader uses it.
    fn begin(&self, delay: u64) {
        self.delay.store(delay, Ordering::Relaxed);
        let point = self.point.fetch_add(1, Ordering::Release) + 1;
        let uses = |reader: &Reader| reader.point.load(Ordering::Acquire) == point;
        while !self.each.iter().all(uses) && !self.end.load(Ordering::Relaxed) {
            spin_loop();
        }
    }

    /// Bursts of each reader so far.
    fn bursts(&self) -> Vec<u64> {
        self.each.iter().map(|reader| reader.bursts.load(Ordering::Relaxed)).collect()
    }

    fn all_read_since(&self, before: &[u64]) -> bool {
        self.bursts().iter().zip(before).all(|(now, before)| now > before)
    }

    fn run(&self, words: Result<Words, MeasureError>, reader: &Reader) -> Result<(), MeasureError> {
        if words.is_err() {
            self.end.store(true, Ordering::Relaxed);
        }
        self.ready.wait();
        let mut words = words?;
        let bursts = words.len() / BURST_WORDS;
        let mut at = 0;
        while !self.end.load(Ordering::Relaxed) {
            let point = self.point.load(Ordering::Acquire);
            let delay = self.delay.load(Ordering::Relaxed);
            reader.point.store(point, Ordering::Release);
            if delay == PAUSED {
                spin_loop();
                continue;
            }
            black_box(stream(&mut words[at * BURST_WORDS..][..BURST_WORDS], 1.0));
            at = (at + 1) % bursts;
            reader.bursts.fetch_add(1, Ordering::Relaxed);
            spin(delay);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    /// Readers without memory, simulated by the test.
    fn played(readers: usize) -> Readers {
        Readers {
            ready: Barrier::new(1),
            delay: AtomicU64::new(PAUSED),
            point: AtomicU64::new(0),
            each: (0..readers).map(|_| Reader::default()).collect(),
            end: AtomicBool::new(false),
        }
    }

    #[test]
    fn readers_run_at_every_point_except_idle() {
        let cpus = [CpuId(0), CpuId(1)];
        if cpus
            .into_iter()
            .any(|cpu| std::thread::spawn(move || crate::run_on(&[cpu])).join().unwrap().is_err())
        {
            return memtide_testing::not_run("it takes CPUs 0 and 1");
        }
        let points = loaded_latency(&cpus, NodeId(0), &[0.0, 0.3, 1.0], &SMALL).unwrap();
        assert_eq!(points.iter().map(|point| point.rate).collect::<Vec<_>>(), [0.0, 0.3, 1.0]);
        assert!(points[0].others_mbps == 0.0 && points[0].mbps > 0.0, "{points:?}");
        assert!(points[1..].iter().all(|point| point.others_mbps > 0.0), "{points:?}");
        assert!(points.iter().all(|point| point.mbps > point.others_mbps), "{points:?}");
    }

    #[test]
    fn point_starts_when_every_reader_uses_its_delay() {
        let readers = played(2);
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                readers.begin(7);
                begun.store(true, Ordering::Release);
            });
            while readers.point.load(Ordering::Acquire) == 0 {
                spin_loop();
            }
            assert_eq!(readers.delay.load(Ordering::Relaxed), 7);
            readers.each[0].point.store(1, Ordering::Release);
            // A failure shows if the other thread runs concurrently; correct code passes regardless of
            // timing.
            std::thread::sleep(Duration::from_millis(20));
            assert!(!begun.load(Ordering::Acquire), "one reader still uses the delay before");
            readers.each[1].point.store(1, Ordering::Release);
        });
        assert!(begun.into_inner());
    }

    #[test]
    fn loaded_point_ends_after_every_reader_has_read() {
        let (readers, effort) = (played(2), Effort { mib: 1, loads: 1000, ..SMALL });
        let done = AtomicBool::new(false);
        let reader = |reader: &Reader, late: Duration| {
            while readers.point.load(Ordering::Acquire) == 0 {
                spin_loop();
            }
            reader.point.store(1, Ordering::Release);
            // As on a CPU used by other processes: longer than the chase takes.
            std::thread::sleep(late);
            while !done.load(Ordering::Relaxed) {
                reader.bursts.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| reader(&readers.each[0], Duration::ZERO));
            scope.spawn(|| reader(&readers.each[1], 20 * SETTLE));
            let mut chase = Chase::new(CpuId(0), NodeId(0), &effort).unwrap();
            let loaded = readers.point(&mut chase, 1.0, 0, &effort);
            let read = readers.each[1].bursts.load(Ordering::Relaxed);
            done.store(true, Ordering::Relaxed);
            assert!(read > 0, "the point ended before a reader had read");
            assert!(loaded.others_mbps > 0.0, "{loaded:?}");
        });
    }

    #[test]
    fn missing_cpu_is_an_error_without_hang() {
        for cpus in [[CpuId(0), CpuId(900)], [CpuId(900), CpuId(0)]] {
            let error = loaded_latency(&cpus, NodeId(0), &[0.0], &SMALL).unwrap_err();
            assert!(error.to_string().contains("CPU 900"), "{error}");
        }
    }
}
