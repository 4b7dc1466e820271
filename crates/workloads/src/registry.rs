//! Workloads by name.

use std::sync::LazyLock;

use memtide_core::Program;

use crate::WorkloadError;
use crate::algorithms::ALGORITHMS;
use crate::array::Space;
use crate::params::{Parameter, Params, Settings};
use crate::run::{TracedProgram, run_native};
use crate::workload::Algorithm;

/// What is known of a workload before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What of a machine it puts to the test.
    pub stresses: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// A program, and what its author computes with it.
pub type BoxedProgram = Box<dyn Program + Send>;

/// A workload in the list of all.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    info: Info,
    program: fn(&Settings, u64) -> Result<BoxedProgram, WorkloadError>,
    native: fn(&Settings, u64) -> Result<f64, WorkloadError>,
}

/// How an algorithm is listed.
pub(crate) const fn entry<A: Algorithm>() -> Entry {
    Entry { info: A::INFO, program: program_of::<A>, native: native_of::<A> }
}

fn program_of<A: Algorithm>(settings: &Settings, seed: u64) -> Result<BoxedProgram, WorkloadError> {
    let mut space = Space::new(settings.page());
    Ok(Box::new(TracedProgram::new(A::new(settings, seed, &mut space)?, space)))
}

fn native_of<A: Algorithm>(settings: &Settings, seed: u64) -> Result<f64, WorkloadError> {
    let workload = A::new(settings, seed, &mut Space::new(settings.page()))?;
    run_native(&workload);
    Ok(workload.result())
}

static INFOS: LazyLock<Vec<Info>> = LazyLock::new(|| ALGORITHMS.iter().map(|entry| entry.info).collect());

/// All workloads.
pub fn list() -> &'static [Info] {
    &INFOS
}

fn find(name: &str) -> Result<&'static Entry, WorkloadError> {
    ALGORITHMS.iter().find(|entry| entry.info.name == name).ok_or_else(|| WorkloadError::UnknownWorkload {
        name: name.to_owned(),
        known: list().iter().map(|info| info.name).collect(),
    })
}

/// Makes the program that runs a workload.
///
/// # Errors
/// If there is no such workload, a parameter is not its own or out of range, or the host has not the memory.
pub fn program(name: &str, params: &Params, seed: u64) -> Result<BoxedProgram, WorkloadError> {
    let entry = find(name)?;
    (entry.program)(&Settings::new(&entry.info, params)?, seed)
}

/// Runs a workload on the host's own memory and threads, and returns its result.
///
/// # Errors
/// As [`program`].
pub fn native(name: &str, params: &Params, seed: u64) -> Result<f64, WorkloadError> {
    let entry = find(name)?;
    (entry.native)(&Settings::new(&entry.info, params)?, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, params: &str) -> String {
        let params = match params.parse() {
            Ok(params) => params,
            Err(error) => return WorkloadError::to_string(&error),
        };
        program(name, &params, 1).err().expect("it was made").to_string()
    }

    #[test]
    fn mistakes_are_refused_with_what_is_allowed() {
        let unknown = refused("steam", "");
        assert!(
            unknown.contains("steam") && unknown.contains("stream") && unknown.contains("gups"),
            "{unknown}"
        );
        let parameter = refused("stream", "thread=4");
        assert!(parameter.contains("thread") && parameter.contains("footprint_mib"), "{parameter}");
        assert!(refused("stream", "threads=0").contains("from 1 to 1024"));
        assert!(refused("stream", "threads=many").contains("'many'"));
        assert!(refused("stream", "kernel=quad").contains("triad"));
        assert!(refused("zipf", "theta=1.5").contains("from 0 to 0.999"));
        assert!(refused("zipf", "theta=NaN").contains("from 0 to 0.999"));
        assert!(refused("stream", "threads").contains("key=value"));
        assert!(refused("stream", "threads=1,threads=2").contains("twice"));
    }

    #[test]
    fn names_are_unique_and_defaults_in_range() {
        for (at, info) in list().iter().enumerate() {
            assert!(
                !list()[..at].iter().any(|other| other.name == info.name),
                "{} is listed twice",
                info.name
            );
            for parameter in info.parameters {
                let mut params = Params::new();
                params.set(parameter.name, parameter.values.default()).unwrap();
                Settings::new(info, &params).unwrap();
            }
        }
    }
}
