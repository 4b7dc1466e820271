//! Idle latency: a pointer chase.

use std::hint::black_box;
use std::time::Instant;

use memtide_core::{CpuId, NodeId};
use procfs::process::Process;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Effort, Figure, MeasureError, on};
use crate::sys::Chain;

const LINE_WORDS: usize = 8;
const PAGE_LINES: usize = 64;
/// Lines from one visit of a page to the next; odd, and more than prefetchers look ahead.
const STEP: usize = 27;
/// Parts of a chase that are timed by themselves.
const PARTS: u64 = 5;

/// Latency of a node that nobody else uses.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Mean time of a load that depends on the one before, in ns, of the parts of a chase. The least is the node's: the system's own work
    /// interrupts a part now and then, and can only add to it.
    pub ns: Figure,
    /// The share of the chase's memory that was in huge pages; none if the kernel does not tell.
    pub huge: Option<f64>,
}

/// Latency of a node from a CPU.
///
/// # Errors
/// If the CPU or the memory cannot be had.
pub fn idle_latency(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Idle, MeasureError> {
    let mut chase = Chase::new(cpu, node, effort)?;
    let ns = chase.run(effort).ns;
    Ok(Idle { ns, huge: chase.huge })
}

/// A chase that can be gone on with.
pub(super) struct Chase {
    chain: Chain,
    at: u64,
    huge: Option<f64>,
}

/// What a run of a chase took.
pub(super) struct Run {
    pub ns: Figure,
    pub loads: u64,
}

impl Chase {
    /// A chase by the calling thread, which from then on runs on this CPU; it has gone around once.
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
        let part = effort.loads.div_ceil(PARTS).next_multiple_of(16);
        let begin = Instant::now();
        let mut parts = Vec::new();
        for _ in 0..PARTS {
            let start = Instant::now();
            self.at = black_box(self.chain.follow(self.at, part));
            parts.push(start.elapsed().as_nanos() as f64 / part as f64);
            if begin.elapsed() > effort.limit {
                break;
            }
        }
        Run { loads: part * parts.len() as u64, ns: Figure::of(parts) }
    }
}

/// The share of the mapping at an address that is in huge pages.
fn huge_share(address: u64) -> Option<f64> {
    let maps = Process::myself().ok()?.smaps().ok()?;
    let map = maps.into_iter().find(|map| (map.address.0..map.address.1).contains(&address))?;
    let bytes = |name| map.extension.map.get(name).copied();
    Some(bytes("AnonHugePages")? as f64 / bytes("Rss").filter(|&bytes| bytes > 0)? as f64)
}

/// Makes every line's first word the place of the next line's.
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

/// 0 to `count`, page 0 first, the others shuffled.
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
    use std::time::Duration;

    use super::super::SMALL;
    use super::*;

    #[test]
    fn the_chase_visits_every_line_once_and_comes_back() {
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
    fn a_load_takes_longer_than_nothing_and_less_than_a_millisecond() {
        let idle = idle_latency(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert!(idle.ns.median > 0.1 && idle.ns.median < 1e6 && idle.ns.spread >= 0.0, "{idle:?}");
        assert!(idle.huge.is_none_or(|share| (0.0..=1.0).contains(&share)), "{idle:?}");
    }

    #[test]
    fn a_chase_ends_at_its_limit() {
        let effort = Effort { loads: 1_000_000, limit: Duration::ZERO, ..SMALL };
        let run = Chase::new(CpuId(0), NodeId(0), &effort).unwrap().run(&effort);
        assert_eq!(run.loads, 200_000);
    }

    #[test]
    fn a_node_that_does_not_exist_is_an_error() {
        let error = idle_latency(CpuId(0), NodeId(63), &SMALL).unwrap_err();
        assert!(error.to_string().contains("node 63"), "{error}");
    }
}
