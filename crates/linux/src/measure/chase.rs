//! Idle latency: a pointer chase.

use std::hint::black_box;
use std::time::Instant;

use memtide_core::{CpuId, NodeId};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{MeasureError, pin};
use crate::sys::{Chain, Words};

const LINE_WORDS: usize = 8;
const PAGE_LINES: usize = 64;
/// Lines from one visit of a page to the next; odd, and more than prefetchers look ahead.
const STEP: usize = 27;
/// Parts of a chase that are timed by themselves.
const PARTS: u64 = 5;

/// Mean time of a load that depends on the one before, in ns: `loads` of them over `mib` MiB of a node, from a CPU. It is the mean of
/// the quickest of five parts, since the system's own work interrupts one now and then.
///
/// # Errors
/// If the CPU or the memory cannot be had.
pub fn idle_latency_ns(
    cpu: CpuId,
    node: NodeId,
    mib: usize,
    loads: u64,
    seed: u64,
) -> Result<f64, MeasureError> {
    pin(cpu)?;
    let mut words =
        Words::on_node(mib << 20, node).map_err(|source| MeasureError::Memory { node, mib, source })?;
    link(&mut words, seed);
    let lines = (words.len() / LINE_WORDS) as u64;
    let chain = Chain::new(words);
    // The first round takes the pages in; it is not counted.
    let from = chain.follow(0, lines.min(loads));
    let loads = loads.div_ceil(PARTS).next_multiple_of(16);
    let (mut at, mut least) = (from, f64::INFINITY);
    for _ in 0..PARTS {
        let start = Instant::now();
        at = black_box(chain.follow(at, loads));
        least = least.min(start.elapsed().as_nanos() as f64 / loads as f64);
    }
    Ok(least)
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
        let ns = idle_latency_ns(CpuId(0), NodeId(0), 16, 200_000, 1).unwrap();
        assert!(ns > 0.1 && ns < 1e6, "{ns}");
    }

    #[test]
    fn a_node_that_does_not_exist_is_an_error() {
        let error = idle_latency_ns(CpuId(0), NodeId(63), 1, 10, 1).unwrap_err();
        assert!(error.to_string().contains("node 63"), "{error}");
    }
}
