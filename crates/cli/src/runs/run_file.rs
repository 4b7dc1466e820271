//! The programs of a run file.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use memtide_core::{Mapping, Time};
use memtide_linux::input;
use memtide_trace::{Trace, TraceError};
use memtide_workloads::{RunFile, RunProgram, RunSource, mapped_first};

use super::source::{Runs, Source, What, create};
use crate::failure::Failure;
use crate::{advice, interrupt};

/// The programs, each with the memory that it sends, and the start of each.
pub(super) fn programs(path: &Path, seed: u64) -> Result<(Vec<Source>, Arc<[Time]>), Failure> {
    let file = path.display().to_string();
    let mix = RunFile::parse(&file, &text(path)?).map_err(|error| Failure::Input(error.to_string()))?;
    for number in 0..mix.programs().len() {
        check(&mix, number, seed)?;
    }
    let starts = mix.programs().iter().map(|program| program.start).collect();
    Ok((mix.programs().iter().map(source).collect(), starts))
}

/// A run file's text, up to just over the size limit: it may be an endless device.
fn text(path: &Path) -> Result<String, Failure> {
    let refused = |why: &str| Failure::Input(format!("{}: {why}", path.display()));
    let unreadable =
        |error: io::Error| refused(&format!("cannot be read ({error}); check the path and its permissions"));
    let mut bytes = Vec::new();
    let limit = RunFile::FILE_BYTES_MAX as u64 + 1;
    input::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| match error.as_bytes() {
        [b'P', b'A', b'R', b'1', ..] => refused("a trace, not a run file; give it by --trace"),
        _ => refused("not a run file: it is not UTF-8 text"),
    })
}

fn source(program: &RunProgram) -> Source {
    let RunProgram { name, source, priority, messages, .. } = program;
    let runs = match source.clone() {
        RunSource::Workload { name, params } => Runs::Workload { name, params },
        RunSource::Trace(path) => Runs::Trace(path),
    };
    Source {
        name: name.clone(),
        text: format!("{name} ({})", program.description()),
        priority: *priority,
        what: What { runs, messages: messages.clone() },
    }
}

/// Refuses a program that cannot be created, or lacks memory that it sends.
fn check(mix: &RunFile, number: usize, seed: u64) -> Result<(), Failure> {
    let program = &mix.programs()[number];
    let refused = |key: &str, message: String| Failure::Input(mix.error(number, key, message).to_string());
    let mapped = match &program.source {
        RunSource::Trace(path) => {
            mapped_by(path, program.messages.is_some()).map_err(|error| match error {
                TraceError::Interrupted => Failure::Interrupted,
                other => refused("trace", advice::trace::message(&other)),
            })?
        }
        RunSource::Workload { .. } if program.messages.is_none() => return Ok(()),
        RunSource::Workload { name, params } => {
            let mut program =
                create(name, params, seed)?.map_err(|error| refused("workload", error.to_string()))?;
            mapped_first(&mut program).map_err(|error| refused("workload", error.to_string()))?
        }
    };
    mix.check_buffers(number, &mapped).map_err(|error| Failure::Input(error.to_string()))
}

/// What a trace's program maps, if that matters; the trace can be opened.
fn mapped_by(path: &Path, matters: bool) -> Result<Vec<Mapping>, TraceError> {
    let trace = Trace::open(path)?;
    if matters { trace.mappings(&mut |_| !interrupt::requested()) } else { Ok(Vec::new()) }
}
