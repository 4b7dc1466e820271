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
        RegionMeter::counting([
            Builder::new(Hardware::INSTRUCTIONS),
            Builder::new(Hardware::CACHE_MISSES),
            Builder::new(tlb),
        ])
    }

    fn counting(mut events: [Builder; 3]) -> RegionMeter {
        let counters = events.each_mut().map(|event| event.inherit(true).build().ok());
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
    use memtide_core::{NodeId, PageSize};
    use perf_event::events::Software;

    use super::*;
    use crate::sys::Words;

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
    fn counters_count_region_of_all_threads_alone() {
        // Page faults, which also systems without hardware counters count.
        let touch = |pages: usize| {
            Words::untouched(pages * 4096, NodeId(0), PageSize::Base).expect("memory").touch();
        };
        let meter = RegionMeter::counting([(); 3].map(|()| Builder::new(Software::PAGE_FAULTS)));
        let step = |pages: usize| {
            std::thread::scope(|scope| {
                scope.spawn(|| touch(pages));
                scope.spawn(|| touch(pages));
            });
        };
        step(3000);
        meter.mark(Mark::Begin);
        step(1000);
        meter.mark(Mark::End);
        step(3000);
        let figures = meter.figures();
        let Some(faults) = figures.instructions else {
            return memtide_testing::not_run_in_part("the system allows no counters");
        };
        assert!((2000..2500).contains(&faults), "{faults} page faults");
        assert_eq!(figures.llc_misses, Some(faults));
    }
}
