//! Idle latency: a pointer chase.

use std::hint::black_box;
use std::time::{Duration, Instant};

use memtide_core::{CpuId, NodeId};
use procfs::process::Process;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Effort, Figure, MeasureError, on};
use crate::sys::Chain;

const LINE_WORDS: usize = 8;
const PAGE_LINES: usize = 64;
/// Stride in lines between visits of a page; odd, and longer than prefetchers look ahead.
const STEP: usize = 27;
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
    huge: Option<f64>,
}

/// The cost of a run of a chase.
pub(super) struct Run {
    pub ns: Figure,
    pub loads: u64,
}

impl Chase {
    /// A chase by the calling thread, pinned to this CPU from then on, after one warm-up pass.
    pub fn new(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Chase, MeasureError> {
        let mut words = on(cpu, node, effort.mib)?;
        link(&mut words, effort.seed);
        let huge = huge_share(words.as_ptr() as u64);
        let lines = (words.len() / LINE_WORDS) as u64;
        let chain = Chain::new(words);
        let at = chain.follow(0, lines.min(effort.loads));
        Ok(Chase { chain, at, huge })
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

/// Links every line's first word to the next line's.
fn link(words: &mut [u64], seed: u64) {
    let pages = order(words.len() / LINE_WORDS / PAGE_LINES, seed);
    let lines =
        pages.iter().flat_map(|page| (0..PAGE_LINES).map(move |k| page * PAGE_LINES + k * STEP % PAGE_LINES));
    let mut before: Option<usize> = None;
    let mut first = 0;
    for line in lines {
        match before {
            Some(before) => words[before] = (line * LINE_WORDS) as u64,
            None => first = line * LINE_WORDS,
        }
        before = Some(line * LINE_WORDS);
    }
    if let Some(last) = before {
        words[last] = first as u64;
    }
}

/// A permutation of 0..`count`: 0 first, the others shuffled.
fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut pages: Vec<usize> = (0..count).collect();
    for at in (2..count).rev() {
        let other = 1 + ((u128::from(random.next_u64()) * at as u128) >> 64) as usize;
        pages.swap(at, other);
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn chase_visits_every_line_once_and_returns() {
        let mut words = vec![0; 16 * 512];
        link(&mut words, 3);
        let mut seen = vec![false; words.len() / LINE_WORDS];
        let mut at = 0;
        for _ in 0..seen.len() {
            assert!(!std::mem::replace(&mut seen[at as usize / LINE_WORDS], true));
            let next = words[at as usize];
            let (a, b) = (at / 8, next / 8);
            assert!(a / 64 != b / 64 || a.abs_diff(b) >= 27, "line {a} to {b}");
            at = next;
        }
        assert_eq!(at, 0);
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
