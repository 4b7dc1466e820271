//! Workloads by name.

use std::sync::LazyLock;

use memtide_core::params::Params;

use crate::algorithms::ALGORITHMS;
use crate::entry::{BoxedProgram, Entry, OnMark, run, traced};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::messages::Messages;
use crate::native_run::Pace;
use crate::params::Settings;
use crate::profile::{Profile, Synthetic, profiles};

/// Algorithms first, then profiles.
static INFOS: LazyLock<Vec<Info>> = LazyLock::new(|| {
    let algorithms = ALGORITHMS.iter().map(|entry| entry.info);
    algorithms.chain(profiles().iter().map(Profile::info)).collect()
});

/// All workloads.
pub fn list() -> &'static [Info] {
    &INFOS
}

enum Found {
    Algorithm(&'static Entry),
    Profile(&'static Profile),
}

/// The workload with this name, and its settings.
fn find(name: &str, params: &Params) -> Result<(Found, Settings), WorkloadError> {
    let at = list().iter().position(|info| info.name == name).ok_or_else(|| {
        let known = list().iter().map(|info| info.name).collect();
        WorkloadError::UnknownWorkload { name: name.to_owned(), known }
    })?;
    let found = match ALGORITHMS.get(at) {
        Some(entry) => Found::Algorithm(entry),
        None => Found::Profile(&profiles()[at - ALGORITHMS.len()]),
    };
    Ok((found, Settings::new(&list()[at], params)?))
}

/// Checks a workload's name and parameters, without those of its messages, and creates nothing.
pub(crate) fn check(name: &str, params: &Params) -> Result<(), WorkloadError> {
    find(name, params).map(drop)
}

/// Creates the traced program of a workload.
///
/// # Errors
/// If there is no such workload, a parameter is unknown or out of range, or the host has too little memory.
pub fn program(name: &str, params: &Params, seed: u64) -> Result<BoxedProgram, WorkloadError> {
    let mut params = params.clone();
    let messages = Messages::take(&mut params);
    let (found, settings) = find(name, &params)?;
    let messages = messages.map_err(|error| settings.refused(error))?;
    let program = match found {
        Found::Algorithm(entry) => (entry.program)(&settings, seed),
        Found::Profile(profile) => traced(&settings, |space| Synthetic::new(profile, &settings, seed, space)),
    }?;
    Ok(match messages {
        Some(messages) => messages.sent_by_workload(program),
        None => program,
    })
}

/// Runs a workload on the host's own memory and threads, and returns its result. `at` is called for each of
/// its marks while its threads wait, and with [`Mark::End`](memtide_core::Mark::End) when they have ended.
///
/// # Errors
/// As [`program`].
pub fn native(
    name: &str,
    params: &Params,
    seed: u64,
    pace: Pace,
    at: OnMark<'_>,
) -> Result<f64, WorkloadError> {
    let (found, settings) = find(name, params)?;
    match found {
        Found::Algorithm(entry) => (entry.native)(&settings, seed, pace, at),
        Found::Profile(profile) => {
            run(&settings, pace, at, |space| Synthetic::new(profile, &settings, seed, space))
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::params::{Kind, ParamError};

    use super::*;
    use crate::testing::record;

    fn refused(name: &str, params: &str) -> String {
        let params = match params.parse() {
            Ok(params) => params,
            Err(error) => return ParamError::to_string(&error),
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
        assert!(refused("stream", "threads").contains("KEY=VALUE"));
        assert!(refused("stream", "threads=1,threads=2").contains("twice"));
    }

    #[test]
    fn every_workload_runs_at_minimum_size_or_explains() {
        for info in list() {
            for threads in [1, 61] {
                let mut params = Params::new();
                for parameter in info.parameters {
                    match (parameter.name, parameter.kind) {
                        ("threads", _) => params.set("threads", threads).unwrap(),
                        ("instructions_per_line" | "page", _) => {}
                        (name, Kind::Integer { min, .. }) => params.set(name, min).unwrap(),
                        _ => {}
                    }
                }
                match program(info.name, &params, 1) {
                    Ok(mut program) => assert_eq!(record(program.as_mut(), true).streams.len(), threads),
                    Err(error) => assert!(matches!(error, WorkloadError::Unfit { .. }), "{error}"),
                }
            }
        }
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
                params.set(parameter.name, parameter.default()).unwrap();
                Settings::new(info, &params).unwrap();
            }
        }
    }
}
