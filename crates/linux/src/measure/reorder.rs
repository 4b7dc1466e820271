//! Reorder buffer: how many instructions a core runs ahead of a load that misses.
//!
//! Two chases through memory on one core, with N instructions after each load. As long as both loads fit into
//! the buffer with the instructions between them, they overlap, and a step takes one latency of memory; else
//! it takes two (Wong, *Measuring Reorder Buffer Capacity*, 2013). The instructions are a mix as in integer
//! programs: what limits it, such as the number of registers, limits programs too.

use std::hint::black_box;
use std::time::Instant;

use memtide_core::{CpuId, NodeId, PageSize};

use super::chase::{LINE_WORDS, link};
use super::{Effort, MeasureError, on};
use crate::sys::Chain;
use crate::sys::run_ahead::INSTRUCTIONS;

/// Separately timed parts of each number of instructions.
const PARTS: u64 = 5;

/// Loads of each chase, at most.
const LOADS: u64 = 100_000;

/// Least rise that counts as the end of overlap, as a share of the time of overlapped loads.
const RISE: f64 = 0.5;

/// Time of two loads with this many instructions after each: minimum over parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunAhead {
    /// Instructions after each load.
    pub instructions: u16,
    /// Time of both loads in ns.
    pub ns: f64,
}

/// Measures all numbers of instructions; empty on processors other than x86-64.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn run_ahead(cpu: CpuId, node: NodeId, effort: &Effort) -> Result<Vec<RunAhead>, MeasureError> {
    let mut words = on(cpu, node, effort.bytes(), PageSize::Huge)?;
    let lines = words.len() / LINE_WORDS;
    link(&mut words, lines, effort.seed, |line| line);
    let chain = Chain::new(words);
    let mut at = [0, (lines / 2 * LINE_WORDS) as u64];
    let steps = LOADS.min(effort.loads).div_ceil(PARTS);
    let begin = Instant::now();
    let mut points = Vec::new();
    for instructions in INSTRUCTIONS {
        let mut least = f64::INFINITY;
        for _ in 0..PARTS {
            let start = Instant::now();
            let Some(end) = chain.follow_apart(at, steps, instructions) else { return Ok(Vec::new()) };
            at = black_box(end);
            least = least.min(start.elapsed().as_nanos() as f64 / steps as f64);
        }
        points.push(RunAhead { instructions, ns: least });
        if begin.elapsed() > effort.limit {
            break;
        }
    }
    Ok(points)
}

/// The most instructions of rising numbers of them at which the loads overlap: those before the largest rise
/// in time over two steps, as one of the numbers can be at the edge. `None` if there is no such rise, as on a
/// core that runs in order.
///
/// Other work on the system only adds to a time: each counts as the least of its own and the later ones.
pub fn reorder_buffer(points: &[RunAhead]) -> Option<u32> {
    let mut least: Vec<RunAhead> = points.to_vec();
    for index in (1..least.len()).rev() {
        least[index - 1].ns = least[index - 1].ns.min(least[index].ns);
    }
    let rise = |steps: &&[RunAhead]| steps[2].ns - steps[0].ns;
    let largest = least.windows(3).max_by(|a, b| rise(a).total_cmp(&rise(b)))?;
    let middle_ns = f64::midpoint(largest[0].ns, largest[2].ns);
    let overlapped = largest.iter().rfind(|point| point.ns < middle_ns)?;
    (rise(&largest) > RISE * least.first()?.ns).then(|| overlapped.instructions.into())
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    /// A core with room for this number of instructions: loads of 100 ns, and a tenth of a ns an instruction.
    fn points(room: u16) -> Vec<RunAhead> {
        let ns = |instructions| {
            let loads = if instructions <= room { 1.0 } else { 2.0 };
            100.0 * loads + 0.1 * f64::from(instructions)
        };
        INSTRUCTIONS.map(|instructions| RunAhead { instructions, ns: ns(instructions) }).into()
    }

    #[test]
    fn reorder_buffer_ends_at_the_largest_rise() {
        for room in [32, 224, 512, 576, 896, 960] {
            assert_eq!(reorder_buffer(&points(room)), Some(room.into()));
        }
        assert_eq!(reorder_buffer(&points(0)), None);
        assert_eq!(reorder_buffer(&points(1024)), None);
        assert_eq!(reorder_buffer(&[]), None);
    }

    #[test]
    fn number_at_the_edge_does_not_hide_the_rise() {
        let mut points = points(320);
        points[10].ns -= 48.0;
        assert_eq!((points[10].instructions, reorder_buffer(&points)), (352, Some(320)));
    }

    #[test]
    fn noise_of_single_points_does_not_end_the_buffer() {
        let mut points = points(352);
        points[2].ns += 250.0;
        points[7].ns += 90.0;
        assert_eq!(reorder_buffer(&points), Some(352));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_chases_advance_with_any_number_of_instructions() {
        let mut words = on(CpuId(0), NodeId(0), 1 << 20, PageSize::Base).unwrap();
        let lines = words.len() / LINE_WORDS;
        link(&mut words, lines, 1, |line| line);
        let chain = Chain::new(words);
        let from = [0, LINE_WORDS as u64];
        let steps = 48;
        let expected = Some(chain.follow_together(from, steps));
        for instructions in INSTRUCTIONS {
            assert_eq!(chain.follow_apart(from, steps, instructions), expected, "{instructions}");
        }
        assert_eq!(chain.follow_apart(from, steps, 33), None);
        assert_eq!(run_ahead(CpuId(0), NodeId(0), &SMALL).unwrap().len(), INSTRUCTIONS.len());
    }
}
