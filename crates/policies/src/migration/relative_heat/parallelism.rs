//! Memory-level parallelism: how many accesses a thread waits for at a time, by Little's law.
//!
//! Of a thread that streams and reads at random in between, the accesses of streams overlap, and the others
//! stand alone. A sample that comes a little after an earlier one of its thread, which came a little after
//! another, is of a stream: of that, one of N accesses is N lines after the one before.
//!
//! ```text
//! pages, by time    7   90   9   11   40   12   14
//! in a row          1    1   2    3    1    4    5     11, 12 and 14 are of a stream, the others stand alone
//! ```
//!
//! Random accesses to few pages come a little after others, too, but as often a little before them: as far as
//! a thread's samples are in rows downwards, its rows upwards are taken to be by chance.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::{LINE_BYTES, PAGE_BYTES, ThreadId, Time};
use serde::{Deserialize, Serialize};

/// The running means are of about this many times between a thread's samples; fewer than the minimum say
/// nothing.
const GAPS: u32 = 16;
const GAPS_MIN: u32 = 4;

/// Longer times count as this many mean ones: the thread was idle.
const IDLE: f64 = 4.0;

/// Maximum accesses that a thread waits for at a time, more than processors have.
const PARALLELISM_MAX: f64 = 256.0;

/// Samples of a thread whose pages are remembered, and the number that its share of streams is the mean of.
const RECENT: usize = 16;
const SHARE: u32 = 64;

/// A sample is after an earlier one if it is at most this many sampling periods of lines further on.
const PERIODS: u64 = 4;

/// Samples each after the one before, from which on they are of a stream.
const ROW: u8 = 3;

/// How many times as long as an access of a stream one that stands alone may be waited for.
const ALONE_MAX: f64 = 4.0;

const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;

/// Decisions after which a thread without samples is forgotten.
const DECISIONS: u32 = 16;

type Threads = BTreeMap<ThreadId, Thread>;

/// By thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Threads", into = "Threads")]
pub(super) struct Parallelism {
    threads: Threads,
}

/// A sample of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub time: Time,
    pub page: u64,
    /// Accesses that it stands for, and their latency together, in ns.
    pub period: u32,
    pub taken_ns: f64,
}

/// The latest samples of a thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// Pages of the latest samples, and how many are in a row up to each, and down to it; the oldest first.
    recent: VecDeque<(u64, [u8; 2])>,
    /// Number of samples, up to [`SHARE`], and the shares of them that are in rows upwards and downwards.
    samples: u32,
    in_rows: [f64; 2],
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
            let Thread { decisions, gaps, gap_ns, taken_ns, ref recent, samples, in_rows, .. } = *thread;
            let is_mean = |ns: f64| ns.is_finite() && ns >= 0.0;
            decisions <= DECISIONS
                && gaps <= GAPS
                && is_mean(taken_ns)
                && is_mean(gap_ns)
                && (gaps == 0 || gap_ns > 0.0)
                && recent.len() <= RECENT
                && samples <= SHARE
                && in_rows.iter().all(|share| (0.0..=1.0).contains(share))
        };
        match threads.values().find(|thread| !is_right(thread)) {
            Some(thread) => Err(format!("{thread:?} has no such samples")),
            None => Ok(Parallelism { threads }),
        }
    }
}

impl Parallelism {
    /// Adds a thread's sample. Returns how many accesses the thread waits for at a time then, if it is of a
    /// stream or not, at least 1.
    pub fn at(&mut self, thread: ThreadId, sample: Sample) -> f64 {
        let Sample { time, page, period, taken_ns } = sample;
        let own = self.threads.entry(thread).or_insert_with(|| Thread { latest: time, ..Thread::default() });
        let gap_ns = time.since(own.latest).as_ns();
        (own.latest, own.decisions) = (time, 0);
        // Samples of one time come from a host that does not know it better.
        if gap_ns > 0.0 {
            own.add(gap_ns, taken_ns);
        }
        let is_streamed = own.is_streamed(page, period);
        if own.gaps < GAPS_MIN { 1.0 } else { own.at_a_time(is_streamed) }
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

    /// Adds the page of a sample; returns whether it may be of a stream.
    fn is_streamed(&mut self, page: u64, period: u32) -> bool {
        let reach = PERIODS * (u64::from(period) / PAGE_LINES + 1);
        let is_near = |from: u64, to: u64| from < to && to - from <= reach;
        let mut rows = [1_u8; 2];
        for &(earlier, [up, down]) in &self.recent {
            if is_near(earlier, page) {
                rows[0] = rows[0].max(up.saturating_add(1));
            } else if is_near(page, earlier) {
                rows[1] = rows[1].max(down.saturating_add(1));
            }
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((page, rows));
        self.samples = (self.samples + 1).min(SHARE);
        for (share, row) in self.in_rows.iter_mut().zip(rows) {
            *share += (f64::from(u8::from(row >= ROW)) - *share) / f64::from(self.samples);
        }
        rows[0] >= ROW
    }

    /// How many accesses it waits for at a time if one is of a stream or not, so that the mean of both is
    /// that of all: those that stand alone are waited for [`ALONE_MAX`] times as long as those of streams, if
    /// that is no longer than they take. Where rows are by chance, all are waited for alike.
    ///
    /// ```text
    /// 1 / mean = (1 - streamed) / alone + streamed / of_stream
    /// ```
    fn at_a_time(&self, is_streamed: bool) -> f64 {
        let waited = 1.0 / (self.taken_ns / self.gap_ns).clamp(1.0, PARALLELISM_MAX);
        let [streamed, down] = self.in_rows;
        let not_by_chance = (1.0 - down / streamed.max(down).max(f64::MIN_POSITIVE)).max(0.0);
        let alone_max = 1.0 + (ALONE_MAX - 1.0) * not_by_chance;
        let others = 1.0 - streamed;
        let alone = (waited / (others + streamed / alone_max)).min(1.0);
        if is_streamed { streamed / (waited - others * alone) } else { 1.0 / alone }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const THREAD: ThreadId = ThreadId(0);

    fn sample(time: Time, page: u64, taken_ns: f64) -> Sample {
        Sample { time, page, period: 64, taken_ns }
    }

    /// What is found in the end if samples of accesses that take 800 ns together come at these times, in ns.
    fn at_a_time(times: impl Iterator<Item = u64>) -> f64 {
        let mut parallelism = Parallelism::default();
        times.fold(0.0, |_, ns| parallelism.at(THREAD, sample(Time(ns * 1000), 0, 800.0)))
    }

    /// What is found of samples of these pages, in the end: of the last one that is of a stream, and of the
    /// last other one. Accesses wait for `mean` at a time.
    fn of_pages(pages: impl Iterator<Item = (u64, bool)>, mean: f64) -> [f64; 2] {
        let (mut parallelism, mut found) = (Parallelism::default(), [0.0; 2]);
        for ((page, is_streamed), at) in pages.zip(0..) {
            let time = Time::from_ns(100.0 * f64::from(at));
            found[usize::from(!is_streamed)] = parallelism.at(THREAD, sample(time, page, 100.0 * mean));
        }
        found
    }

    #[test]
    fn accesses_beside_a_stream_stand_alone() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut mixed = |number: u64| {
            let others: Vec<u64> = (0..number).map(|_| random.next_u64() % 1_000_000).collect();
            // Of five samples, four are of a stream.
            let of = move |(at, page): (u64, u64)| {
                if at % 5 == 4 { (page, false) } else { (2_000_000 + at, true) }
            };
            (0..).zip(others).map(of)
        };
        let [streamed, alone] = of_pages(mixed(1000), 2.5);
        assert!((alone - 1.0).abs() < 0.05 && (streamed - 4.0).abs() < 0.3, "{streamed}, {alone}");
        let [streamed, alone] = of_pages(mixed(1000), 10.0);
        assert!((streamed / alone - ALONE_MAX).abs() < 0.2, "{streamed}, {alone}");
        assert!((0.8 / streamed + 0.2 / alone - 0.1).abs() < 0.005, "{streamed}, {alone}");
        assert_eq!(of_pages(mixed(1000), 1.0).map(|of| (of * 100.0).round() / 100.0), [1.0, 1.0]);
    }

    #[test]
    fn random_accesses_to_few_pages_are_no_stream() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut parallelism, mut sums) = (Parallelism::default(), [0.0; 2]);
        // Every second one is to few pages: most of these are near an earlier one, after it or before it.
        for at in 0..10_000 {
            let page = random.next_u64() % if at % 2 == 0 { 50 } else { 1_000_000 };
            let time = Time::from_ns(100.0 * f64::from(at));
            sums[at as usize % 2] += 1.0 / parallelism.at(THREAD, sample(time, page, 600.0));
        }
        let ratio = sums[0] / sums[1];
        assert!((0.85..1.05).contains(&ratio), "those to few pages count {ratio} times as much as others");
    }

    #[test]
    fn accesses_of_one_kind_are_waited_for_alike() {
        let stream = |at: u64| (at * 2, true);
        let several = |at: u64| (at % 8 * 100_000 + at / 8, true);
        for [streamed, _] in [of_pages((0..500).map(stream), 6.0), of_pages((0..500).map(several), 6.0)] {
            assert!((streamed - 6.0).abs() < 0.01, "{streamed}");
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let pages = (0..500).map(|_| (random.next_u64() % 1_000_000, false));
        assert!((of_pages(pages, 6.0)[1] - 6.0).abs() < 0.2);
        let [_, one] = of_pages((0..500).map(|_| (7, false)), 6.0);
        assert!((one - 6.0).abs() < 0.01, "a page is not after itself: {one}");
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
            sum +=
                parallelism.at(THREAD, sample(Time::from_ns(ns), random.next_u64() >> 20, 400.0)) / 10_000.0;
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
        parallelism.at(THREAD, sample(Time::ZERO, 0, 800.0));
        (0..DECISIONS).for_each(|_| parallelism.end_epoch());
        assert_eq!(parallelism.threads.len(), 1);
        parallelism.end_epoch();
        assert!(parallelism.threads.is_empty());
    }

    #[test]
    fn saved_threads_are_checked() {
        let right = r#"{"1":{"latest":5,"decisions":16,"gaps":8,"gap_ns":1.0,"taken_ns":0.0,
            "recent":[[9,[2,1]]],"samples":64,"in_rows":[1.0,0.5]}}"#;
        let is_right = |text: &str| serde_json::from_str::<Parallelism>(text).is_ok();
        assert!(is_right(right));
        assert!(is_right(&right.replace(r#""gaps":8,"gap_ns":1.0"#, r#""gaps":0,"gap_ns":0.0"#)));
        let many = vec!["[9,[2,1]]"; RECENT + 1].join(",");
        assert!(!is_right(&right.replace("[9,[2,1]]", &many)));
        for (field, wrong) in [
            (r#""gaps":8"#, r#""gaps":17"#),
            (r#""gap_ns":1.0"#, r#""gap_ns":-1.0"#),
            (r#""gap_ns":1.0"#, r#""gap_ns":0.0"#),
            (r#""decisions":16"#, r#""decisions":17"#),
            (r#""samples":64"#, r#""samples":65"#),
            (r#""in_rows":[1.0"#, r#""in_rows":[1.5"#),
        ] {
            assert!(right.contains(field) && !is_right(&right.replace(field, wrong)), "{wrong}");
        }
    }
}
