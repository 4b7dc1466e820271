//! Memory-level parallelism: how many accesses a thread waits for at a time, by Little's law.

use std::collections::BTreeMap;

use memtide_core::{ThreadId, Time};
use serde::{Deserialize, Serialize};

/// Samples of a thread whose mean is taken.
const SAMPLES: u32 = 8;

/// Multiple of the mean time between two samples of a thread from which on it is idle in between.
const GAP_MAX: f64 = 4.0;

/// Maximum accesses that a thread waits for at a time, more than processors have.
const PARALLELISM_MAX: f64 = 256.0;

/// Of all threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parallelism {
    threads: BTreeMap<ThreadId, Thread>,
}

/// The latest samples of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thread {
    latest: Time,
    /// Times between two samples.
    gaps: u32,
    /// Their mean in ns, and that of the latency of all accesses that a sample stands for.
    gap_ns: f64,
    taken_ns: f64,
    /// Whether there were samples since the last epoch.
    is_alive: bool,
}

impl Parallelism {
    /// Accesses that a thread waits for at a time, at least 1, when it has a sample at that time, which
    /// stands for accesses that took this long together.
    pub fn at(&mut self, thread: ThreadId, time: Time, taken_ns: f64) -> f64 {
        let first = || Thread { latest: time, gaps: 0, gap_ns: 0.0, taken_ns: 0.0, is_alive: true };
        let own = self.threads.entry(thread).or_insert_with(first);
        if own.latest != time || own.gaps > 0 {
            own.add(time, taken_ns);
        }
        own.is_alive = true;
        if own.gap_ns > 0.0 { (own.taken_ns / own.gap_ns).clamp(1.0, PARALLELISM_MAX) } else { 1.0 }
    }

    /// Forgets threads without samples since the last epoch.
    pub fn end_epoch(&mut self) {
        self.threads.retain(|_, thread| std::mem::take(&mut thread.is_alive));
    }
}

impl Thread {
    fn add(&mut self, time: Time, taken_ns: f64) {
        let gap_ns = time.since(self.latest).as_ns();
        let gap_ns = if self.gaps > 0 { gap_ns.min(GAP_MAX * self.gap_ns) } else { gap_ns };
        self.gaps = (self.gaps + 1).min(SAMPLES);
        self.gap_ns += (gap_ns - self.gap_ns) / f64::from(self.gaps);
        self.taken_ns += (taken_ns - self.taken_ns) / f64::from(self.gaps);
        self.latest = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId(0);

    /// What is found in the end if samples of accesses that take 800 ns together come at these times, in ns.
    fn at_a_time(times: impl Iterator<Item = u64>) -> f64 {
        let mut parallelism = Parallelism::default();
        times.fold(0.0, |_, ns| parallelism.at(THREAD, Time(ns * 1000), 800.0))
    }

    #[test]
    fn accesses_at_a_time_are_their_latency_over_the_time_between_them() {
        assert_eq!(at_a_time(0..1), 1.0, "one sample says nothing");
        assert_eq!(at_a_time((0..9).map(|at| at * 100)), 8.0);
        assert_eq!(at_a_time((0..9).map(|at| at * 8000)), 1.0, "it does other work");
        let bursts = (0..10).flat_map(|burst| (0..50).map(move |at| burst * 1_000_000 + at * 100));
        assert!((at_a_time(bursts) - 8.0).abs() < 0.1, "pauses are not counted");
        let phases = (0..50).map(|at| at * 800).chain((0..50).map(|at| 50 * 800 + at * 100));
        assert!((at_a_time(phases) - 8.0).abs() < 0.1, "it is that of the latest samples");
    }

    #[test]
    fn times_that_are_unknown_or_go_back_are_no_parallelism() {
        assert_eq!(at_a_time((0..20).map(|_| 7)), 1.0);
        assert!(at_a_time((0..20).rev()).is_finite());
    }

    #[test]
    fn threads_without_samples_are_forgotten() {
        let mut parallelism = Parallelism::default();
        parallelism.at(THREAD, Time::ZERO, 800.0);
        parallelism.end_epoch();
        assert_eq!(parallelism.threads.len(), 1);
        parallelism.end_epoch();
        assert!(parallelism.threads.is_empty());
    }
}
