//! Time and hardware counters of a program's region of interest.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memtide_core::{Mark, Stage};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, Counter};
use rustix::thread::disable_transparent_huge_pages;

/// Figures of a run's stages. A counter that the system does not provide, as in most virtual machines, is
/// `None`. Counters are of user mode, summed over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionFigures {
    /// Time of the region of interest.
    pub region: Duration,
    /// Time before the first mark.
    pub initialisation: Duration,
    /// Instructions retired in the region.
    pub instructions: Option<u64>,
    /// Accesses that missed the last cache, by the processor's own definition.
    pub llc_misses: Option<u64>,
    /// Loads that missed the TLB.
    pub tlb_misses: Option<u64>,
}

/// Measures the stages of a program that calls it at its marks.
#[derive(Debug)]
pub struct RegionMeter(Mutex<State>);

#[derive(Debug)]
struct State {
    stage: Stage,
    since: Instant,
    spent: [Duration; Stage::ALL.len()],
    /// Instructions, misses of the last cache, of the TLB.
    counters: [Option<Counter>; 3],
}

impl RegionMeter {
    /// Starts the clock. Counts the threads that the calling thread starts from now on.
    pub fn start() -> RegionMeter {
        let tlb = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        let counters = [
            Builder::new(Hardware::INSTRUCTIONS).inherit(true).build().ok(),
            Builder::new(Hardware::CACHE_MISSES).inherit(true).build().ok(),
            Builder::new(tlb).inherit(true).build().ok(),
        ];
        let (stage, since) = (Stage::Initialisation, Instant::now());
        RegionMeter(Mutex::new(State { stage, since, spent: Default::default(), counters }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a mark.
    pub fn mark(&self, mark: Mark) {
        self.state().mark(mark);
    }

    /// The figures up to the last mark.
    pub fn figures(self) -> RegionFigures {
        let mut state = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [instructions, llc_misses, tlb_misses] =
            state.counters.each_mut().map(|counter| counter.as_mut().and_then(|counter| counter.read().ok()));
        RegionFigures {
            region: state.spent[Stage::Region as usize],
            initialisation: state.spent[Stage::Initialisation as usize],
            instructions,
            llc_misses,
            tlb_misses,
        }
    }
}

impl State {
    fn mark(&mut self, mark: Mark) {
        let next = self.stage.after(mark);
        if self.stage == Stage::Region && next != Stage::Region {
            self.counters.iter_mut().flatten().for_each(|counter| {
                // A counter that cannot be stopped counts too much; none is known to refuse.
                let _ = counter.disable();
            });
        }
        let now = Instant::now();
        self.spent[self.stage as usize] += now - self.since;
        if self.stage != Stage::Region && next == Stage::Region {
            for counter in &mut self.counters {
                if counter.as_mut().is_some_and(|counter| counter.enable().is_err()) {
                    *counter = None;
                }
            }
        }
        (self.stage, self.since) = (next, Instant::now());
    }
}

/// Runs a program in this process, in base pages as far as the kernel allows, between `start` and its last
/// mark.
pub fn in_base_pages<T>(run: impl FnOnce(&RegionMeter) -> T) -> (T, RegionFigures) {
    // Kernels without huge pages refuse it.
    let _ = disable_transparent_huge_pages(true);
    let meter = RegionMeter::start();
    let result = run(&meter);
    (result, meter.figures())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_time_between_their_marks() {
        let whole = Instant::now();
        let meter = RegionMeter::start();
        std::thread::sleep(Duration::from_millis(3));
        meter.mark(Mark::WarmUp);
        meter.mark(Mark::Begin);
        std::thread::sleep(Duration::from_millis(2));
        meter.mark(Mark::End);
        std::thread::sleep(Duration::from_millis(1));
        let (figures, whole) = (meter.figures(), whole.elapsed());
        assert!(figures.initialisation >= Duration::from_millis(3), "{figures:?}");
        assert!(figures.region >= Duration::from_millis(2), "{figures:?}");
        assert!(figures.initialisation + figures.region + Duration::from_millis(1) <= whole, "{figures:?}");
    }

    #[test]
    fn counters_count_region_alone() {
        let spin = |turns: u64| (0..turns).for_each(|turn| _ = std::hint::black_box(turn));
        let count = |before: u64, inside: u64| {
            let meter = RegionMeter::start();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    spin(before);
                    meter.mark(Mark::Begin);
                    spin(inside);
                    meter.mark(Mark::End);
                    spin(before);
                });
            });
            meter.figures().instructions
        };
        let (Some(few), Some(many)) = (count(10_000_000, 1_000), count(0, 10_000_000)) else {
            return memtide_testing::not_run("the system provides no hardware counters");
        };
        assert!(few < 5_000_000 && many >= 10_000_000, "{few} and {many} instructions");
    }
}
