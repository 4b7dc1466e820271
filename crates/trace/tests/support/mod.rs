//! Shared by several tests.

use std::collections::BTreeMap;

use memtide_core::{Access, Batch, Program, Then, ThreadId};
use memtide_trace::{Header, Replay, Row, Totals, TraceError, TraceWriter};

/// A step of a thread: an access or an event.
#[allow(dead_code, reason = "not every test file runs a trace")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Access(Access),
    Then(Then),
}

pub fn header() -> Header {
    Header {
        program: "prog --flag".to_owned(),
        arch: "x86_64".to_owned(),
        recorder: "test".to_owned(),
        epoch_instructions: 1000,
    }
}

/// Writes a trace of epochs.
#[allow(dead_code, reason = "not every test file writes one")]
pub fn write(path: &std::path::Path, epochs: &[Vec<Row>]) -> Result<Totals, TraceError> {
    let mut writer = TraceWriter::create(path, header())?;
    for epoch in epochs {
        epoch.iter().try_for_each(|row| writer.push(row))?;
        writer.end_epoch()?;
    }
    writer.finish()
}

/// Runs a program to its end as a machine would: a thread waits at a barrier until all live ones have
/// arrived.
#[allow(dead_code, reason = "not every test file runs a trace")]
pub fn run(replay: &mut Replay) -> Result<BTreeMap<u32, Vec<Step>>, String> {
    let mut done: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
    let mut ready = vec![0];
    let mut waiting = Vec::new();
    let mut batch = Batch::default();
    while let Some(thread) = ready.pop() {
        loop {
            replay.next(ThreadId(thread), &mut batch).map_err(|error| error.to_string())?;
            let steps = done.entry(thread).or_default();
            steps.extend(batch.accesses.drain(..).map(Step::Access));
            let then = std::mem::take(&mut batch.then);
            if let Then::Spawn(started) | Then::Fork(started) = then {
                ready.push(started.0);
            }
            match then {
                Then::Continue => continue,
                Then::Barrier => waiting.push(thread),
                Then::End => {}
                then => {
                    steps.push(Step::Then(then));
                    continue;
                }
            }
            break;
        }
        if ready.is_empty() {
            std::mem::swap(&mut ready, &mut waiting);
        }
    }
    Ok(done)
}

/// The accesses of all threads.
#[allow(dead_code, reason = "not every test file looks at accesses")]
pub fn accesses(done: &BTreeMap<u32, Vec<Step>>) -> Vec<Access> {
    let access = |step: &Step| match step {
        Step::Access(access) => Some(*access),
        Step::Then(_) => None,
    };
    done.values().flatten().filter_map(access).collect()
}
