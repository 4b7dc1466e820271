//! Registration of an algorithm: its description, and how it is created and run.

use memtide_core::{Mark, Program};

use crate::array::Space;
use crate::error::WorkloadError;
use crate::info::Info;
use crate::native_run::{Pace, run_native};
use crate::params::Settings;
use crate::run::TracedProgram;
use crate::workload::{Algorithm, Workload};

/// A program that can be sent to any thread.
pub type BoxedProgram = Box<dyn Program + Send>;

/// An algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) info: Info,
    pub(crate) program: fn(&Settings, u64) -> Result<BoxedProgram, WorkloadError>,
    pub(crate) native: Native,
}

/// Receives the marks of a native run, each while all of its threads wait.
pub type OnMark<'a> = &'a (dyn Fn(Mark) + Sync);

pub(crate) type Native = fn(&Settings, u64, Pace, OnMark<'_>) -> Made<f64>;

/// The entry of an algorithm.
pub(crate) const fn entry<A: Algorithm>() -> Entry {
    Entry {
        info: A::INFO,
        program: |settings, seed| traced(settings, |space| A::new(settings, seed, space)),
        native: |settings, seed, pace, at| run(settings, pace, at, |space| A::new(settings, seed, space)),
    }
}

pub(crate) type Made<W> = Result<W, WorkloadError>;

/// The traced program of a workload.
pub(crate) fn traced<W: Workload>(
    settings: &Settings,
    make: impl Fn(&mut Space) -> Made<W>,
) -> Made<BoxedProgram> {
    let mut space = Space::new(settings.page());
    let workload = make(&mut space)?;
    Ok(Box::new(TracedProgram::new(workload, space)))
}

/// Runs a workload natively and returns its result. Its end is the end of its region.
pub(crate) fn run<W: Workload>(
    settings: &Settings,
    pace: Pace,
    at: OnMark<'_>,
    make: impl Fn(&mut Space) -> Made<W>,
) -> Made<f64> {
    let workload = make(&mut Space::new(settings.page()))?;
    run_native(&workload, pace, at);
    at(Mark::End);
    Ok(workload.result())
}
