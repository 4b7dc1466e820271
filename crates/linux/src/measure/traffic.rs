//! Bandwidth: streams of loads and stores.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use memtide_core::{CpuId, NodeId, PageSize};

use super::{Effort, Figure, MeasureError, on};
use crate::sys::vector::vectorised;

const LINE_WORDS: usize = 8;

/// A share of 1 in fixed point.
const WHOLE: u64 = 1 << 32;

/// What each thread does with its memory. Stores are ordinary ones, which read their line before it is
/// written back: both are counted, as memory traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Reads its lines and overwrites enough of them that this share of the traffic is reads: 1 if it
    /// overwrites none, 0.5 if it overwrites each.
    Stream {
        /// 0.5 to 1.
        reads: f64,
    },
    /// STREAM's triad, `a = b + 3 c`: three reads to a write, 32 bytes for the 24 that STREAM counts.
    Triad,
}

impl Kernel {
    /// Bytes per round of this many threads, with this many MiB each.
    fn bytes(self, mib: usize, threads: usize) -> f64 {
        ((mib << 20) / self.arrays()) as f64 * self.traffic() * threads as f64
    }

    fn arrays(self) -> usize {
        match self {
            Kernel::Stream { .. } => 1,
            Kernel::Triad => 3,
        }
    }

    /// Bytes moved per byte of one array.
    fn traffic(self) -> f64 {
        match self {
            Kernel::Stream { reads } => 1.0 / reads,
            Kernel::Triad => 4.0,
        }
    }
}

/// Traffic of one thread on each CPU over a node's memory, in MB/s (10^6 bytes). Each round takes as long as
/// its last thread; the first round is a warm-up.
///
/// # Errors
/// If a CPU or the memory is not available.
pub fn bandwidth_mbps(
    cpus: &[CpuId],
    node: NodeId,
    kernel: Kernel,
    effort: &Effort,
) -> Result<Figure, MeasureError> {
    let (barrier, rounds) = (Barrier::new(cpus.len()), AtomicU32::new(effort.rounds));
    let took: Result<Vec<Vec<Duration>>, MeasureError> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(number, &cpu)| {
                let together = Shared { first: number == 0, barrier: &barrier, rounds: &rounds };
                scope.spawn(move || thread(cpu, node, kernel, effort, &together))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic")).collect()
    });
    let took = took?;
    let bytes = kernel.bytes(effort.mib, cpus.len());
    let longest = |round: usize| took.iter().map(|thread| thread[round]).max().unwrap_or_default();
    let done = took.iter().map(Vec::len).min().unwrap_or(0);
    Ok(Figure::of((0..done).map(|round| bytes / 1e6 / longest(round).as_secs_f64()).collect()))
}

/// State shared by the threads.
struct Shared<'a> {
    first: bool,
    barrier: &'a Barrier,
    /// The number of rounds; the first thread may lower it.
    rounds: &'a AtomicU32,
}

/// The times of its rounds, which all threads start together.
fn thread(
    cpu: CpuId,
    node: NodeId,
    kernel: Kernel,
    effort: &Effort,
    together: &Shared,
) -> Result<Vec<Duration>, MeasureError> {
    let mut warm = on(cpu, node, effort.bytes(), PageSize::Huge).map(|mut words| {
        run(&mut words, kernel);
        words
    });
    let (mut took, begin) = (Vec::new(), Instant::now());
    for round in 0.. {
        // All threads wait for each other, including those that failed.
        together.barrier.wait();
        // A late thread may read the first thread's later value, which is larger by at least one.
        if round >= together.rounds.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        if let Ok(words) = &mut warm {
            run(words, kernel);
        }
        took.push(start.elapsed());
        if together.first && begin.elapsed() > effort.limit {
            together.rounds.fetch_min(round + 1, Ordering::Relaxed);
        }
    }
    warm.map(|_| took)
}

fn run(words: &mut [u64], kernel: Kernel) {
    match kernel {
        Kernel::Stream { reads } => {
            black_box(stream(words, reads));
        }
        Kernel::Triad => {
            vectorised(|| triad(words));
            black_box(words);
        }
    }
}

/// The triad with integers: 3 c is c + c + c, as vectors have no multiplication of eight bytes.
#[inline(always)]
fn triad(words: &mut [u64]) {
    let (a, rest) = words.split_at_mut(words.len() / 3);
    let (b, c) = rest.split_at(a.len());
    for ((a, &b), &c) in a.iter_mut().zip(b).zip(c) {
        *a = b.wrapping_add(c).wrapping_add(c).wrapping_add(c);
    }
}

/// Reads every line, and overwrites an evenly spread share of them.
pub(super) fn stream(words: &mut [u64], reads: f64) -> u64 {
    vectorised(|| streamed(words, reads))
}

/// Words summed at once: as many sums as the processor has loads in flight between two of a sum.
const UNROLLED: usize = 4 * LINE_WORDS;

#[inline(always)]
fn sum(words: &[u64]) -> u64 {
    let (blocks, rest) = words.as_chunks::<UNROLLED>();
    let mut sums = [0u64; UNROLLED];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |all, word| all.wrapping_add(*word))
}

#[inline(always)]
fn streamed(words: &mut [u64], reads: f64) -> u64 {
    let overwritten = ((1.0 / reads - 1.0) * WHOLE as f64).round() as u64;
    if overwritten == 0 {
        return sum(words);
    }
    let (mut sums, mut due) = ([0u64; LINE_WORDS], 0u64);
    for line in words.as_chunks_mut::<LINE_WORDS>().0 {
        due = due.wrapping_add(overwritten);
        if due >= WHOLE {
            due = due.wrapping_sub(WHOLE);
            line.fill(due);
        } else {
            for (sum, word) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(*word);
            }
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn traffic_counts_reads_and_write_backs() {
        const MIB: f64 = 1048576.0;
        for (kernel, mib) in [
            // 12 MiB are read; half of the traffic is then 12 MiB of write-backs; three arrays of 4 MiB are
            // read, one written.
            (Kernel::Stream { reads: 1.0 }, 12.0),
            (Kernel::Stream { reads: 0.5 }, 24.0),
            (Kernel::Triad, 16.0),
        ] {
            assert_eq!(kernel.bytes(12, 1), mib * MIB, "{kernel:?}");
            assert_eq!(kernel.bytes(12, 3), 3.0 * mib * MIB, "{kernel:?}");
        }
    }

    #[test]
    fn slowest_round_fits_into_measurement_time() {
        for kernel in [Kernel::Stream { reads: 1.0 }, Kernel::Stream { reads: 0.5 }, Kernel::Triad] {
            let begin = Instant::now();
            let mbps = bandwidth_mbps(&[CpuId(0)], NodeId(0), kernel, &SMALL).unwrap();
            let least = kernel.bytes(SMALL.mib, 1) / 1e6 / begin.elapsed().as_secs_f64();
            assert!(mbps.least > least, "{kernel:?}: {mbps:?} MB/s, {least} over all of the time");
        }
    }

    #[test]
    fn triad_adds_three_times_third_array() {
        let mut words: Vec<u64> = (0..12).collect();
        run(&mut words, Kernel::Triad);
        assert_eq!(words[..4], [4 + 3 * 8, 5 + 3 * 9, 6 + 3 * 10, 7 + 3 * 11]);
    }

    #[test]
    fn stream_of_reads_adds_all_words() {
        for len in [0, 1, 31, 32, 33, 1000] {
            let mut words: Vec<u64> = (1..=len).collect();
            assert_eq!(stream(&mut words, 1.0), len * (len + 1) / 2);
        }
        let mut words = vec![u64::MAX; 64];
        assert_eq!(stream(&mut words, 1.0), 64u64.wrapping_mul(u64::MAX));
    }

    #[test]
    fn overwritten_lines_match_share_of_reads() {
        for (reads, overwritten) in [(1.0, 0), (0.75, 1000), (2.0 / 3.0, 1500), (0.5, 3000)] {
            let mut words = vec![u64::MAX; 3000 * LINE_WORDS];
            stream(&mut words, reads);
            let lines = words.chunks(LINE_WORDS).filter(|line| line.iter().all(|&word| word != u64::MAX));
            assert!(lines.count().abs_diff(overwritten) <= 1, "{reads}");
        }
    }

    #[test]
    fn time_limit_ends_rounds_of_all_threads() {
        let effort = Effort { rounds: 1_000_000, limit: Duration::ZERO, mib: 1, ..SMALL };
        let cpus = [CpuId(0), CpuId(0)];
        let figure = bandwidth_mbps(&cpus, NodeId(0), Kernel::Triad, &effort).unwrap();
        assert!(figure.median > 0.0 && figure.spread == 0.0, "{figure:?}");
    }

    #[test]
    fn missing_cpu_is_an_error_without_hang() {
        let kernel = Kernel::Stream { reads: 1.0 };
        let error = bandwidth_mbps(&[CpuId(0), CpuId(900)], NodeId(0), kernel, &SMALL).unwrap_err();
        assert!(error.to_string().contains("CPU 900"), "{error}");
    }
}
