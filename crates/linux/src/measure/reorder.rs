//! Reorder buffer and store queue: how many instructions and stores a core runs ahead of loads that miss.
//!
//! Many chases through memory on one core, one load of each in turn, with S instructions per load. Loads of
//! different chases are independent: a core that runs W instructions ahead has a load in flight for each S of
//! them that it has begun, W / S + 1/2 on average over S, until other limits end it. So the time of a load is
//! the latency of memory divided by that number, from which W follows. The instructions are a mix as in
//! integer programs: what limits them, such as the number of registers, limits programs too. Compare Wong,
//! *Measuring Reorder Buffer Capacity*, 2013, who finds the largest S at which two loads overlap: programs
//! with many loads run less far ahead than that.
//!
//! With S stores per load instead, which hit the first cache, it is stores that the core can no longer run
//! ahead: each stays in the store queue until all older loads have ended.

use std::hint::black_box;
use std::time::Instant;

use memtide_core::{CpuId, NodeId, PageSize};

use super::chase::{LINE_WORDS, link};
use super::{Effort, MeasureError, on};
use crate::sys::Chain;
use crate::sys::run_ahead::{Between, CHASES, INSTRUCTIONS, STORES};

/// Separately timed parts of each number of instructions or stores.
const PARTS: u64 = 5;

/// Loads per number, at most.
const LOADS: u64 = 400_000;

/// Least loads in flight for a point to count: it is no core that runs in order.
const LEAST_IN_FLIGHT: f64 = 1.5;

/// Most loads in flight for a point to count, as a share of the most that any point has: nearer to it, miss
/// registers limit.
const MOST_IN_FLIGHT: f64 = 0.7;

/// Independent loads with this many instructions or stores each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunAheadPoint {
    /// Instructions or stores per load.
    pub per_load: u16,
    /// Time of a load in ns: minimum over parts.
    pub ns: f64,
    /// Loads in flight: latency of memory over `ns`.
    pub in_flight: f64,
}

/// How far a core runs ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunAhead {
    /// With numbers of instructions.
    pub instructions: Vec<RunAheadPoint>,
    /// With numbers of stores.
    pub stores: Vec<RunAheadPoint>,
}

/// Measures all numbers of instructions and stores; empty on processors other than x86-64.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn run_ahead(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<RunAhead, MeasureError> {
    let mut words = on(cpu, node, effort.bytes(), PageSize::Huge)?;
    let lines = words.len() / LINE_WORDS;
    link(&mut words, lines, effort.seed, |line| line);
    let chain = Chain::new(words);
    let loads = LOADS.min(effort.loads).div_ceil(PARTS);
    let (mut alone, steps) = (0, loads.div_ceil(CHASES as u64));
    let latency_ns = least_ns(|| alone = black_box(chain.follow(alone, loads))) / loads as f64;
    let mut at = std::array::from_fn(|chase| (chase * lines / CHASES * LINE_WORDS) as u64);
    let begin = Instant::now();
    let mut point = |per_load, between: fn(u16) -> Between| {
        let mut done = begin.elapsed() <= effort.limit;
        let mut part = || done &= chain.follow_apart(&mut at, steps, between(per_load));
        let ns = least_ns(&mut part) / (steps * CHASES as u64) as f64;
        done.then_some(RunAheadPoint { per_load, ns, in_flight: latency_ns / ns })
    };
    Ok(RunAhead {
        instructions: INSTRUCTIONS
            .into_iter()
            .map_while(|count| point(count, Between::Instructions))
            .collect(),
        stores: STORES.into_iter().map_while(|count| point(count, Between::Stores)).collect(),
    })
}

/// The least time of a part in ns: other work only adds to it.
fn least_ns(mut part: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        part();
        start.elapsed().as_nanos() as f64
    };
    (0..PARTS).map(time).fold(f64::INFINITY, f64::min)
}

impl RunAhead {
    /// How many instructions the core runs ahead; `None` on a core that runs in order.
    pub fn reorder_buffer(&self) -> Option<u32> {
        ahead(&self.instructions)
    }

    /// How many stores the core runs ahead; `None` on a core that runs in order.
    pub fn store_queue(&self) -> Option<u32> {
        ahead(&self.stores)
    }
}

/// The median over the points that nothing else limits; `None` if there are none.
fn ahead(points: &[RunAheadPoint]) -> Option<u32> {
    let most = points.iter().map(|point| point.in_flight).fold(0.0, f64::max);
    let counted =
        points.iter().filter(|point| (LEAST_IN_FLIGHT..=MOST_IN_FLIGHT * most).contains(&point.in_flight));
    let ahead = |point: &RunAheadPoint| f64::from(point.per_load) * (point.in_flight - 0.5);
    let mut windows: Vec<f64> = counted.map(ahead).collect();
    windows.sort_by(f64::total_cmp);
    windows.get(windows.len() / 2).map(|window| window.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    /// A core that runs this many instructions or stores ahead, with up to this many loads in flight.
    fn points(per_load: &[u16], window: u16, most: f64) -> Vec<RunAheadPoint> {
        let point = |&per_load: &u16| {
            let in_flight = f64::from(window.div_ceil(per_load)).min(most);
            RunAheadPoint { per_load, ns: 100.0 / in_flight, in_flight }
        };
        per_load.iter().map(point).collect()
    }

    fn is_found(per_load: &[u16], windows: [u16; 6], tolerance: f64) {
        for (window, most) in windows.iter().flat_map(|&window| [10.0, 16.0, 64.0].map(|most| (window, most)))
        {
            let found = ahead(&points(per_load, window, most)).expect("it runs ahead");
            let off = f64::from(found) / f64::from(window) - 1.0;
            assert!(off.abs() < tolerance, "{window} with {most} misses: {found}");
        }
    }

    #[test]
    fn reorder_buffer_is_found_whatever_the_miss_registers() {
        is_found(&INSTRUCTIONS, [72, 128, 192, 224, 320, 512], 0.15);
    }

    #[test]
    fn store_queue_is_found_whatever_the_miss_registers() {
        is_found(&STORES, [16, 36, 56, 64, 104, 128], 0.2);
    }

    #[test]
    fn core_that_runs_in_order_has_none() {
        assert_eq!(ahead(&points(&INSTRUCTIONS, 1, 10.0)), None);
        assert_eq!(RunAhead::default().store_queue(), None);
    }

    #[test]
    fn single_disturbed_points_change_little() {
        let mut points = points(&INSTRUCTIONS, 256, 24.0);
        points[4].in_flight = 1.6;
        let found = ahead(&points).expect("it runs ahead");
        assert!((230..282).contains(&found), "{found}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn all_chases_advance_with_any_number_between() {
        let mut words = on(CpuId(0), NodeId(0), 1 << 20, PageSize::Base).unwrap();
        let lines = words.len() / LINE_WORDS;
        link(&mut words, lines, 1, |line| line);
        let chain = Chain::new(words);
        let from = std::array::from_fn(|chase| (chase * LINE_WORDS) as u64);
        let steps = 48;
        let expected = chain.follow_together(from, steps);
        for between in INSTRUCTIONS.map(Between::Instructions).into_iter().chain(STORES.map(Between::Stores))
        {
            let mut at = from;
            assert!(chain.follow_apart(&mut at, steps, between));
            assert_eq!(at, expected, "{between:?}");
        }
        for none in [Between::Instructions(33), Between::Stores(4)] {
            assert!(!chain.follow_apart(&mut from.clone(), steps, none));
        }
        let found = run_ahead(CpuId(0), NodeId(0), &SMALL).unwrap();
        assert_eq!((found.instructions.len(), found.stores.len()), (INSTRUCTIONS.len(), STORES.len()));
    }
}
