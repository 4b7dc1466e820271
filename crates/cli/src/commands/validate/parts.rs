//! Which modelled part a deviation points to.
//!
//! Each part is made slower, or quicker where the simulation is too slow, within what a real host may do; the
//! workload is simulated again, and the part that closes most of the gap to the native time is named. A part
//! that the workload hardly uses is not tried. This says where to look, not what is wrong.

use memtide_core::Machine;
use memtide_sim::Report;

use super::{Outcome, simulate};
use crate::failure::Failure;
use crate::progress::Progress;

/// Deviation from which on a cause is looked for.
const LOOK_FROM: f64 = 0.1;

/// Share of the time, or of lines or accesses, below which a part is not used.
const USED: f64 = 0.02;

/// Least share of the gap that a named part closes.
const CLOSES: f64 = 0.2;

/// The part that a deviation points to.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The part, and how it was varied.
    pub part: &'static str,
    /// Simulated over native time with it varied.
    pub ratio: f64,
}

/// A machine with one part varied.
struct Variant {
    part: &'static str,
    machine: Machine,
}

/// Looks for the part that closes most of the gap between an outcome's times; `None` without a gap or such a
/// part.
pub fn cause(machine: &Machine, outcome: &Outcome, seed: u64) -> Result<Option<Cause>, Failure> {
    let ratio = outcome.ratio();
    if (ratio - 1.0).abs() < LOOK_FROM || !ratio.is_finite() {
        return Ok(None);
    }
    let variants = variants(machine, outcome, ratio < 1.0);
    let message = format!("{}: which part deviates", outcome.name());
    let progress = Progress::new(&message, variants.len().max(1));
    let mut best: Option<Cause> = None;
    let closed = |varied: f64| 1.0 - (varied - 1.0).abs() / (ratio - 1.0).abs();
    for (number, variant) in variants.into_iter().enumerate() {
        let report = simulate(&variant.machine, &outcome.workload, seed, (&progress, number))?;
        let varied = report.time_ms / outcome.native_ms();
        if closed(varied) >= best.as_ref().map_or(CLOSES, |best| closed(best.ratio)) {
            best = Some(Cause { part: variant.part, ratio: varied });
        }
    }
    Ok(best)
}

/// The machine with each part that the workload uses varied, in the direction of the native time.
fn variants(machine: &Machine, outcome: &Outcome, slower: bool) -> Vec<Variant> {
    let report = &outcome.simulated;
    let mut all = Vec::new();
    let mut vary = |used: bool, part: &'static str, change: &dyn Fn(&mut Machine)| {
        let mut varied = machine.clone();
        change(&mut varied);
        if used {
            all.push(Variant { part, machine: varied });
        }
    };
    let factor = if slower { 0.5 } else { 2.0 };
    let per_instruction = match outcome.native.instructions {
        // The workload's count is the model's; where the processor counts, its count is the right one.
        Some(counted) if counted > 0 => report.instructions as f64 / counted as f64,
        _ => factor,
    };
    let spent = &report.spent;
    let threads_ms = spent.user_ms + spent.system_ms + spent.stall_ms + spent.idle_ms;
    vary(spent.user_ms > USED * threads_ms, "instruction count", &|machine| {
        machine.core.instructions_per_cycle *= per_instruction;
    });
    vary(spent.stall_ms > USED * threads_ms, "reorder buffer", &|machine| {
        let size = machine.core.reorder_buffer;
        machine.core.reorder_buffer = if slower { size.div_ceil(2) } else { (2 * size).min(4096) };
    });
    vary(spent.stall_ms > USED * threads_ms, "store queue", &|machine| {
        let stores = machine.core.store_queue;
        machine.core.store_queue = if slower { stores.div_ceil(2) } else { (2 * stores).min(1024) };
    });
    let walks = report.tlb_misses as f64 > USED * report.accesses as f64;
    let nested = machine.tlbs.last().is_some_and(|tlb| tlb.nested_walks);
    vary(walks, if nested { "nested page walks" } else { "page walks" }, &|machine| {
        walks_cost(machine, slower);
    });
    let walkers = machine.tlbs.last().map_or(1, |tlb| tlb.walkers);
    vary(walks && (!slower || walkers > 1), "page walks at once", &|machine| {
        if let Some(tlb) = machine.tlbs.last_mut() {
            tlb.walkers = if slower { 1 } else { 64 };
        }
    });
    vary(uses_last_cache(machine, report), "last cache", &|machine| last_cache(machine, slower));
    let prefetched = report.prefetched_lines as f64 > USED * report.llc_misses as f64;
    vary(prefetched, "prefetcher", &|machine| prefetcher(machine, slower));
    let fault_ms = report.pages.faults as f64 * machine.kernel.fault_ns / 1e6;
    vary(fault_ms > USED * report.time_ms, "page faults", &|machine| {
        machine.kernel.fault_ns = if slower { 2.0 * machine.kernel.fault_ns } else { 0.0 };
    });
    all
}

/// All walks cold, or all free.
fn walks_cost(machine: &mut Machine, slower: bool) {
    if let Some(tlb) = machine.tlbs.last_mut() {
        let cold = tlb.cold_walk_cycles.unwrap_or(2.0 * tlb.walk_cycles);
        let cycles = if slower { cold } else { 0.0 };
        (tlb.walk_cycles, tlb.cold_walk_cycles, tlb.nested_walks) = (cycles, None, false);
    }
}

/// Whether a share of the accesses hits in the last, shared cache, or misses it.
fn uses_last_cache(machine: &Machine, report: &Report) -> bool {
    machine.caches.last().is_some_and(|cache| cache.is_shared())
        && report.shared_accesses as f64 > USED * report.accesses as f64
}

/// A quarter of the last cache, as where neighbours use it, or four times as much.
fn last_cache(machine: &mut Machine, slower: bool) {
    if let Some(cache) = machine.caches.last_mut().filter(|cache| cache.is_shared()) {
        let whole_sets = u64::from(cache.ways).div_ceil(16);
        let kib = if slower { (cache.capacity_kib / 4).max(whole_sets) } else { 4 * cache.capacity_kib };
        cache.capacity_kib = kib;
    }
}

/// No prefetcher, or one that reaches as far as its page.
fn prefetcher(machine: &mut Machine, slower: bool) {
    if slower {
        machine.prefetcher = None;
    } else if let Some(prefetcher) = &mut machine.prefetcher {
        prefetcher.distance_lines = 64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtide_linux::measure::RegionFigures;

    use super::*;

    const CHASE: &str = "chase:footprint_mib=8,operations=20000,threads=1";

    /// Cold walks of 200 ns, without large caches.
    fn machine() -> Machine {
        let text = include_str!("../../../../../machines/laptop.toml");
        let mut machine = Machine::parse("laptop", text).expect("a machine");
        machine.scale = 1;
        machine.caches.truncate(1);
        let tlb = machine.tlbs.last_mut().expect("a TLB");
        (tlb.entries, tlb.ways) = (64, 4);
        (tlb.walk_cycles, tlb.cold_walk_cycles) = (30.0, Some(600.0));
        machine
    }

    fn outcome(machine: &Machine, native_of: f64) -> Outcome {
        outcome_of(machine, CHASE, native_of)
    }

    fn outcome_of(machine: &Machine, workload: &str, native_of: f64) -> Outcome {
        let simulated = simulate(machine, workload, 1, (&Progress::new("", 1), 0)).expect("a report");
        let region = Duration::from_secs_f64(simulated.time_ms * native_of / 1e3);
        let native = RegionFigures { region, ..RegionFigures::default() };
        Outcome { workload: workload.to_owned(), native, spread: None, simulated, cause: None }
    }

    #[test]
    fn chase_too_slow_by_its_walks_points_to_them() {
        let machine = machine();
        let mut free = machine.clone();
        walks_cost(&mut free, false);
        let native = outcome(&free, 1.0).simulated.time_ms;
        let all = outcome(&machine, 1.0);
        let deviating = outcome(&machine, native / all.simulated.time_ms);
        let cause = cause(&machine, &deviating, 1).expect("simulations").expect("a cause");
        assert_eq!(cause.part, "page walks");
        assert!((cause.ratio - 1.0).abs() < 1e-6, "{cause:?}");
    }

    #[test]
    fn independent_reads_too_quick_by_the_reorder_buffer_point_to_it() {
        let workload = "uniform:footprint_mib=8,operations=20000,threads=1";
        let time_ms = |machine: &Machine| {
            simulate(machine, workload, 1, (&Progress::new("", 1), 0)).expect("a report").time_ms
        };
        let mut machine = machine();
        walks_cost(&mut machine, false);
        let mut small = machine.clone();
        small.core.reorder_buffer /= 2;
        let native_of = time_ms(&small) / time_ms(&machine);
        let deviating = outcome_of(&machine, workload, native_of);
        let cause = cause(&machine, &deviating, 1).expect("simulations").expect("a cause");
        assert_eq!(cause.part, "reorder buffer");
        // Native times are whole nanoseconds.
        assert!((cause.ratio - 1.0).abs() < 1e-5, "{cause:?}");
    }

    #[test]
    fn right_time_has_no_cause() {
        let machine = machine();
        assert_eq!(cause(&machine, &outcome(&machine, 1.05), 1).expect("no simulation"), None);
    }

    #[test]
    fn unused_parts_are_not_tried() {
        let machine = machine();
        let parts: Vec<&str> =
            variants(&machine, &outcome(&machine, 1.0), true).iter().map(|variant| variant.part).collect();
        assert!(parts.contains(&"page walks") && !parts.contains(&"page walks at once"), "{parts:?}");
        assert!(!parts.contains(&"last cache"), "{parts:?}");
    }
}
