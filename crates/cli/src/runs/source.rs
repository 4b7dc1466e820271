//! A program to run: a workload or a trace, and what it offers for migration.

use std::path::{Path, PathBuf};

use memtide_core::params::split_name;
use memtide_core::suggest;
use memtide_trace::{ReplayOptions, Trace};
use memtide_workloads::{BoxedProgram, Messages, Params, WorkloadError};

use crate::failure::Failure;
use crate::{advice, interrupt};

/// A program of a run.
#[derive(Clone)]
pub(super) struct Source {
    /// Name in reports.
    pub name: String,
    /// As named on the command line, or the name with what it runs.
    pub text: String,
    /// Service level, if it has one.
    pub priority: Option<u8>,
    pub what: What,
}

/// What a program runs. Equal ones do the same.
#[derive(Clone, PartialEq)]
pub(super) struct What {
    pub runs: Runs,
    /// Messages beside those of a workload's parameters.
    pub messages: Option<Messages>,
}

#[derive(Clone, PartialEq)]
pub(super) enum Runs {
    Workload { name: String, params: Params },
    Trace(PathBuf),
}

impl Source {
    /// Parses `NAME[:KEY=VALUE,..]`.
    pub fn workload(text: &str) -> Result<Source, Failure> {
        let (name, params) = split_name(text);
        let params: Params =
            params.parse().map_err(|error| Failure::Usage(format!("workload '{name}': {error}")))?;
        // The program refuses parameters that are wrong.
        let messages = Messages::take(&mut params.clone()).ok().flatten();
        let runs = Runs::Workload { name: name.to_owned(), params };
        Ok(Source {
            name: name.to_owned(),
            text: text.to_owned(),
            priority: messages.map(|messages| messages.priority),
            what: What { runs, messages: None },
        })
    }

    pub fn of_trace(path: &Path) -> Source {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let what = What { runs: Runs::Trace(path.to_owned()), messages: None };
        Source { text: name.clone(), name, priority: None, what }
    }

    /// Its trace, if it is one.
    pub fn trace(&self) -> Option<&Path> {
        match &self.what.runs {
            Runs::Workload { .. } => None,
            Runs::Trace(path) => Some(path),
        }
    }

    /// Copies of the program: workloads with a seed of their own, replays that share what is decoded.
    pub fn copies(
        &self,
        copies: u64,
        options: ReplayOptions,
        seed: u64,
    ) -> Result<Vec<BoxedProgram>, Failure> {
        let messages = &self.what.messages;
        match &self.what.runs {
            Runs::Workload { name, params } => {
                let workload = |copy: u64| {
                    let program = create(name, params, seed.wrapping_add(copy))?;
                    let program = sending(messages.clone(), program.map_err(workload_error)?);
                    Ok(memtide_workloads::begin_later(program, options.warm_up))
                };
                (0..copies).map(workload).collect()
            }
            Runs::Trace(path) => {
                let failure = |error| Failure::Input(advice::trace::message(&error));
                let replay = open(path)?.program(options).map_err(failure)?;
                Ok((0..copies).map(|_| sending(messages.clone(), Box::new(replay.clone()))).collect())
            }
        }
    }
}

fn sending(messages: Option<Messages>, program: BoxedProgram) -> BoxedProgram {
    match messages {
        Some(messages) => messages.sent_by(program),
        None => program,
    }
}

/// Creates a workload's program, unless the command is interrupted.
pub(super) fn create(
    name: &str,
    params: &Params,
    seed: u64,
) -> Result<Result<BoxedProgram, WorkloadError>, Failure> {
    let (name, params) = (name.to_owned(), params.clone());
    interrupt::interruptible(move || Ok(memtide_workloads::program(&name, &params, seed)))
}

pub(super) fn open(path: &Path) -> Result<Trace, Failure> {
    Trace::open(path).map_err(|error| Failure::Input(advice::trace::message(&error)))
}

fn workload_error(error: WorkloadError) -> Failure {
    Failure::Usage(match &error {
        WorkloadError::UnknownWorkload { name, known } => suggest::unknown("workload", name, known),
        other => other.to_string(),
    })
}
