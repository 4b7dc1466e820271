//! Memory-level parallelism: how many accesses a thread waits for at a time, by Little's law.

use std::collections::BTreeMap;

use memtide_core::{ThreadId, Time};
use serde::{Deserialize, Serialize};

/// The running means are of about this many times between a thread's samples; fewer than the minimum say
/// nothing.
const GAPS: u32 = 16;
const GAPS_MIN: u32 = 4;

/// Longer times count as this many mean ones: the thread was idle.
const IDLE: f64 = 4.0;

/// Maximum accesses that a thread waits for at a time, more than processors have.
const PARALLELISM_MAX: f64 = 256.0;

/// Decisions after which a thread without samples is forgotten.
const DECISIONS: u32 = 16;

type Threads = BTreeMap<ThreadId, Thread>;

/// By thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Threads", into = "Threads")]
pub(super) struct Parallelism {
    threads: Threads,
}

/// The latest samples of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thread {
    latest: Time,
    /// Decisions since then.
    decisions: u32,
    /// Number of times between two samples, up to [`GAPS`], and their mean in ns.
    gaps: u32,
    gap_ns: f64,
    /// Mean latency of the accesses that a sample stands for, together, in ns.
    taken_ns: f64,
}

impl From<Parallelism> for Threads {
    fn from(parallelism: Parallelism) -> Threads {
        parallelism.threads
    }
}

impl TryFrom<Threads> for Parallelism {
    type Error = String;

    fn try_from(threads: Threads) -> Result<Parallelism, String> {
        let is_right = |thread: &Thread| {
            let Thread { decisions, gaps, gap_ns, taken_ns, .. } = *thread;
            let is_mean = |ns: f64| ns.is_finite() && ns >= 0.0;
            decisions <= DECISIONS
                && gaps <= GAPS
                && is_mean(taken_ns)
                && is_mean(gap_ns)
                && (gaps == 0 || gap_ns > 0.0)
        };
        match threads.values().find(|thread| !is_right(thread)) {
            Some(thread) => Err(format!("{thread:?} has no such samples")),
            None => Ok(Parallelism { threads }),
        }
    }
}

impl Parallelism {
    /// Adds a thread's sample, which stands for accesses that took this long together. Returns how many
    /// accesses the thread waits for at a time then, at least 1.
    pub fn at(&mut self, thread: ThreadId, time: Time, taken_ns: f64) -> f64 {
        let first = || Thread { latest: time, decisions: 0, gaps: 0, gap_ns: 0.0, taken_ns: 0.0 };
        let own = self.threads.entry(thread).or_insert_with(first);
        let gap_ns = time.since(own.latest).as_ns();
        (own.latest, own.decisions) = (time, 0);
        // Samples of one time come from a host that does not know it better.
        if gap_ns > 0.0 {
            own.add(gap_ns, taken_ns);
        }
        if own.gaps < GAPS_MIN { 1.0 } else { (own.taken_ns / own.gap_ns).clamp(1.0, PARALLELISM_MAX) }
    }

    /// Forgets threads that have had no sample for long.
    pub fn end_epoch(&mut self) {
        self.threads.retain(|_, thread| {
            thread.decisions += 1;
            thread.decisions <= DECISIONS
        });
    }
}

impl Thread {
    fn add(&mut self, gap_ns: f64, taken_ns: f64) {
        let gap_ns = if self.gaps > 0 { gap_ns.min(IDLE * self.gap_ns) } else { gap_ns };
        self.gaps = (self.gaps + 1).min(GAPS);
        self.gap_ns += (gap_ns - self.gap_ns) / f64::from(self.gaps);
        self.taken_ns += (taken_ns - self.taken_ns) / f64::from(self.gaps);
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const THREAD: ThreadId = ThreadId(0);

    /// What is found in the end if samples of accesses that take 800 ns together come at these times, in ns.
    fn at_a_time(times: impl Iterator<Item = u64>) -> f64 {
        let mut parallelism = Parallelism::default();
        times.fold(0.0, |_, ns| parallelism.at(THREAD, Time(ns * 1000), 800.0))
    }

    #[test]
    fn accesses_at_a_time_are_their_latency_over_the_time_between_them() {
        assert_eq!(at_a_time(0..u64::from(GAPS_MIN)), 1.0, "few samples say nothing");
        assert_eq!(at_a_time((0..20).map(|at| at * 100)), 8.0);
        assert_eq!(at_a_time((0..20).map(|at| at * 8000)), 1.0, "it does other work");
        let bursts = (0..10).flat_map(|burst| (0..100).map(move |at| burst * 1_000_000 + at * 100));
        assert!((at_a_time(bursts) - 8.0).abs() < 0.1, "pauses are not counted");
        let phases = (0..50).map(|at| at * 800).chain((0..100).map(|at| 50 * 800 + at * 100));
        assert!((at_a_time(phases) - 8.0).abs() < 0.1, "it is that of the latest samples");
    }

    #[test]
    fn random_times_are_not_taken_for_parallelism() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut parallelism, mut ns, mut sum) = (Parallelism::default(), 0.0, 0.0);
        for _ in 0..10_000 {
            // Exponential, 100 ns in the mean.
            ns -= 100.0 * libm::log((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 + 1e-16);
            sum += parallelism.at(THREAD, Time::from_ns(ns), 400.0) / 10_000.0;
        }
        assert!((3.6..4.6).contains(&sum), "{sum} in place of 4");
    }

    #[test]
    fn times_that_stand_or_go_back_change_nothing() {
        assert_eq!(at_a_time((0..100).map(|_| 7)), 1.0);
        assert_eq!(at_a_time((0..100).rev()), 1.0);
        let steady = || (0..50u64).map(|at| at * 100);
        assert_eq!(at_a_time(steady().chain((0..100).map(|_| 4900))), 8.0);
        let back = (0..100).rev().chain(steady());
        assert_eq!(at_a_time(back), 8.0);
    }

    #[test]
    fn threads_without_samples_are_forgotten() {
        let mut parallelism = Parallelism::default();
        parallelism.at(THREAD, Time::ZERO, 800.0);
        (0..DECISIONS).for_each(|_| parallelism.end_epoch());
        assert_eq!(parallelism.threads.len(), 1);
        parallelism.end_epoch();
        assert!(parallelism.threads.is_empty());
    }

    #[test]
    fn saved_threads_are_checked() {
        let read = |gaps: u32, gap_ns: f64, decisions: u32| {
            let thread = format!(
                r#"{{"latest":5,"decisions":{decisions},"gaps":{gaps},"gap_ns":{gap_ns:?},"taken_ns":0.0}}"#
            );
            serde_json::from_str::<Parallelism>(&format!(r#"{{"1":{thread}}}"#))
        };
        assert!(read(16, 1.0, 0).is_ok() && read(0, 0.0, 16).is_ok());
        for (gaps, gap_ns, decisions) in [(u32::MAX, 1.0, 0), (8, -1.0, 0), (8, 0.0, 0), (8, 1.0, u32::MAX)] {
            assert!(read(gaps, gap_ns, decisions).is_err(), "{gaps}, {gap_ns}, {decisions}");
        }
    }
}
