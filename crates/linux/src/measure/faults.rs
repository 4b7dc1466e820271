//! Cost of first-touch page faults.

use std::time::Instant;

use memtide_core::{CpuId, NodeId, PageSize};

use super::{Effort, Figure, MeasureError, pinned};
use crate::sys::Words;

/// Memory touched per round, in bytes.
const BYTES: usize = 32 << 20;

/// Cost of a first touch of a page of this size on a node, zeroing included, in ns: the median of rounds, the
/// first of which is not counted. `None` where the kernel gives base pages instead of huge ones.
///
/// # Errors
/// If the CPU or the memory is not available.
pub fn fault_ns(
    cpu: CpuId,
    node: NodeId,
    size: PageSize,
    effort: &Effort,
) -> Result<Option<Figure>, MeasureError> {
    pinned(cpu)?;
    let pages = BYTES / size.bytes() as usize;
    let begin = Instant::now();
    let mut rounds = Vec::new();
    for round in 0..=effort.rounds {
        let memory = Words::untouched(BYTES, node, size);
        let mut words = memory.map_err(|source| MeasureError::Memory { node, mib: BYTES >> 20, source })?;
        let faults_before = minor_faults();
        let start = Instant::now();
        words.touch();
        let ns = start.elapsed().as_nanos() as f64 / pages as f64;
        // As many faults as pages, but for a few of other memory.
        let faults = minor_faults().saturating_sub(faults_before);
        if size == PageSize::Huge && faults > 2 * pages as u64 + 16 {
            return Ok(None);
        }
        if round > 0 {
            rounds.push(ns);
        }
        if round > 0 && begin.elapsed() > effort.limit {
            break;
        }
    }
    Ok(Some(Figure::of(rounds)))
}

/// Page faults of the calling thread so far that read no file; 0 if the kernel does not report them.
fn minor_faults() -> u64 {
    let thread = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    // The name, in parentheses, may contain spaces; then state, four ids, tty, tpgid, flags, minflt.
    let after = thread.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().nth(7).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::SMALL;
    use super::*;

    #[test]
    fn first_touch_of_base_page_costs_time_and_one_fault() {
        let before = minor_faults();
        let cost = fault_ns(CpuId(0), NodeId(0), PageSize::Base, &SMALL).unwrap().expect("base pages");
        let faults = minor_faults() - before;
        let touched = u64::from(SMALL.rounds + 1) * (BYTES / 4096) as u64;
        assert!(cost.least > 0.0 && faults >= touched, "{cost:?}, {faults} faults of {touched} pages");
    }

    #[test]
    fn huge_page_costs_more_than_base_page() {
        let cost = |size| fault_ns(CpuId(0), NodeId(0), size, &SMALL).unwrap();
        let Some(huge) = cost(PageSize::Huge) else {
            return memtide_testing::not_run("the kernel has no huge pages");
        };
        // 512 times as much is zeroed.
        assert!(huge.least > 4.0 * cost(PageSize::Base).expect("base pages").least, "{huge:?}");
    }
}
