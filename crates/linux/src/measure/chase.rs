//! Idle latency: a pointer chase.
//!
//! One random cycle over all lines of the memory (Sattolo's algorithm, in the memory itself). A prefetcher
//! that follows strides, within pages or across them, finds none: no distance between two visits is more
//! frequent than chance. Every load waits for the one before, so that nothing overlaps.

use std::hint::black_box;
use std::time::{Duration, Instant};

use memtide_core::{CpuId, LINE_BYTES, NodeId, PageSize};
use procfs::process::Process;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Effort, Figure, MeasureError, on};
use crate::sys::{Chain, Words};

pub(super) const LINE_WORDS: usize = 8;
/// Separately timed parts of a chase.
const PARTS: u64 = 5;

/// Latency of an otherwise idle node.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Mean time per dependent load in ns, for each part of a chase. The minimum is the node's: interrupts
    /// only add to a part.
    pub ns: Figure,
    /// Share of the chase's memory in huge pages; `None` if the kernel does not report it.
    pub huge: Option<f64>,
}

/// Latency of a node from a CPU.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn idle_latency(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Idle, MeasureError> {
    let mut chase = Chase::new(cpu, node, effort)?;
    let ns = chase.run(effort).ns;
    Ok(Idle { ns, huge: chase.huge })
}

/// A chase that can be continued.
pub(super) struct Chase {
    chain: Chain,
    at: u64,
    /// Share of its memory in huge pages; `None` if the kernel does not report it.
    pub huge: Option<f64>,
}

/// The cost of a run of a chase.
pub(super) struct Run {
    pub ns: Figure,
    pub loads: u64,
}

impl Chase {
    /// A chase through `effort.mib` MiB, in huge pages as far as available, by the calling thread, pinned to
    /// this CPU from then on, after one warm-up pass.
    pub fn new(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Chase, MeasureError> {
        let mut words = on(cpu, node, effort.bytes(), PageSize::Huge)?;
        let lines = words.len() / LINE_WORDS;
        link(&mut words, lines, effort.seed, |line| line);
        Ok(Chase::over(words, lines as u64, effort))
    }

    /// A chase that is linked already, after a warm-up pass over its `lines` from word 0 on.
    pub fn over(words: Words, lines: u64, effort: &Effort) -> Chase {
        let huge = huge_share(words.as_ptr() as u64);
        let chain = Chain::new(words);
        let at = chain.follow(0, lines.min(effort.loads));
        Chase { chain, at, huge }
    }

    /// Times some loads, in parts.
    pub fn run(&mut self, effort: &Effort) -> Run {
        let start = Instant::now();
        self.run_by(effort, || start.elapsed())
    }

    /// The same with a clock that returns the time since some moment.
    fn run_by(&mut self, effort: &Effort, mut now: impl FnMut() -> Duration) -> Run {
        let part = effort.loads.div_ceil(PARTS).next_multiple_of(16);
        let begin = now();
        let mut parts = Vec::new();
        for _ in 0..PARTS {
            let start = now();
            self.at = black_box(self.chain.follow(self.at, part));
            parts.push((now() - start).as_nanos() as f64 / part as f64);
            if now() - begin > effort.limit {
                break;
            }
        }
        Run { loads: part * parts.len() as u64, ns: Figure::of(parts) }
    }
}

/// Share of the mapping at an address that is in huge pages.
fn huge_share(address: u64) -> Option<f64> {
    let maps = Process::myself().ok()?.smaps().ok()?;
    let map = maps.into_iter().find(|map| (map.address.0..map.address.1).contains(&address))?;
    let bytes = |name| map.extension.map.get(name).copied();
    Some(bytes("AnonHugePages")? as f64 / bytes("Rss").filter(|&bytes| bytes > 0)? as f64)
}

/// Links the first words of `count` lines in one random cycle; `line_of` returns the line of each number from
/// 0 to `count` (exclusive). All of these orders are equally likely (Sattolo 1986).
pub(super) fn link(words: &mut [u64], count: usize, seed: u64, line_of: impl Fn(usize) -> usize) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let word = |number| line_of(number) * LINE_WORDS;
    for number in 0..count {
        words[word(number)] = word(number) as u64;
    }
    for number in (1..count).rev() {
        let other = ((u128::from(random.next_u64()) * number as u128) >> 64) as usize;
        words.swap(word(number), word(other));
    }
}

const _: () = assert!(LINE_WORDS * size_of::<u64>() == LINE_BYTES as usize);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::SMALL;
    use super::*;

    /// Lines in the order of a chase that begins at word 0.
    fn visited(words: &[u64], count: usize) -> Vec<usize> {
        let mut at = 0;
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(at / LINE_WORDS);
            at = words[at] as usize;
        }
        assert_eq!(at, 0, "the cycle closes");
        lines
    }

    #[test]
    fn chase_visits_every_line_once_and_returns() {
        for lines in [1, 2, 3, 1000] {
            let mut words = vec![0; lines * LINE_WORDS];
            link(&mut words, lines, 3, |line| line);
            let mut seen = visited(&words, lines);
            seen.sort_unstable();
            assert_eq!(seen, (0..lines).collect::<Vec<_>>());
        }
    }

    /// A stride, from the last line or from the last line of the same page, is what prefetchers follow.
    #[test]
    fn no_stride_of_chase_is_more_frequent_than_chance() {
        const LINES: usize = 256 * 64;
        let mut words = vec![0; LINES * LINE_WORDS];
        link(&mut words, LINES, 1, |line| line);
        let order = visited(&words, LINES);
        let mut strides: BTreeMap<isize, u32> = BTreeMap::new();
        for pair in order.windows(2) {
            *strides.entry(pair[1] as isize - pair[0] as isize).or_default() += 1;
        }
        // About one of 32,767 possible strides per hop: the most frequent of them occurs some ten times.
        let most = strides.values().max().expect("strides");
        assert!(*most <= 16, "a stride occurs {most} times in {LINES}");
        let mut last_of_page = BTreeMap::new();
        let mut in_page: BTreeMap<isize, u32> = BTreeMap::new();
        for line in order {
            if let Some(before) = last_of_page.insert(line / 64, line) {
                *in_page.entry(line as isize - before as isize).or_default() += 1;
            }
        }
        let hops: u32 = in_page.values().sum();
        let most = in_page.values().max().expect("strides");
        // Of 64 lines without repetition, a difference of one is the most likely: 63 of 64 x 63 pairs.
        assert!(f64::from(*most) < 0.03 * f64::from(hops), "a stride occurs {most} times in {hops}");
    }

    #[test]
    fn time_per_load_is_part_time_divided_by_loads() {
        let effort = Effort { mib: 1, loads: 100_000, ..SMALL };
        let mut chase = Chase::new(CpuId(0), NodeId(0), &effort).unwrap();
        // A clock read before and after each part of 20,000 loads: they take 1, 2, 3, 4 and 10 ms.
        let mut ms = [0, 0, 1, 1, 1, 3, 3, 3, 6, 6, 6, 10, 10, 10, 20, 20].into_iter();
        let run = chase.run_by(&effort, || Duration::from_millis(ms.next().unwrap()));
        assert_eq!((run.loads, run.ns.least, run.ns.median, run.ns.spread), (100_000, 50.0, 150.0, 3.0));
    }

    #[test]
    fn idle_latency_reports_hugepage_share() {
        let idle = idle_latency(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert!(idle.huge.is_none_or(|share| (0.0..=1.0).contains(&share)), "{idle:?}");
    }

    #[test]
    fn chase_ends_after_part_that_exceeds_limit() {
        let effort = Effort { mib: 1, loads: 1_000_000, limit: Duration::from_millis(5), ..SMALL };
        let mut chase = Chase::new(CpuId(0), NodeId(0), &effort).unwrap();
        let mut ms = 0..;
        let run = chase.run_by(&effort, || Duration::from_millis(ms.next().unwrap()));
        assert_eq!(run.loads, 400_000, "3 ms after the first part, 6 ms after the second");
    }

    #[test]
    fn missing_node_is_an_error() {
        let error = idle_latency(CpuId(0), NodeId(63), &SMALL).unwrap_err();
        assert!(error.to_string().contains("node 63"), "{error}");
    }
}
