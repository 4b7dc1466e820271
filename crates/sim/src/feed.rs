//! Where a program's accesses come from.

use memtide_core::{CpuId, Program, ProgramError, Time};
use memtide_front::Reader;

use crate::Job;
use crate::thread::{Cursor, Thread};

/// A program of a run, its CPUs and its start as of [`crate::Job`].
pub(crate) struct Load<'p> {
    pub name: String,
    pub feed: Feed<'p>,
    pub cpus: Vec<CpuId>,
    pub start: Time,
}

impl<'p> From<Job<'p>> for Load<'p> {
    fn from(job: Job<'p>) -> Load<'p> {
        Load { name: job.name, feed: Feed::Program(job.program), cpus: job.cpus, start: job.start }
    }
}

/// The source of a program's accesses.
pub(crate) enum Feed<'p> {
    /// The program itself.
    Program(Box<dyn Program + Send + 'p>),
    /// Records of it.
    Records(Reader<'p>),
}

impl Feed<'_> {
    pub fn threads(&self) -> usize {
        match self {
            Feed::Program(program) => program.threads(),
            Feed::Records(reader) => reader.threads(),
        }
    }

    pub fn has_region(&self) -> bool {
        match self {
            Feed::Program(program) => program.has_region(),
            Feed::Records(reader) => reader.has_region(),
        }
    }

    pub fn progress(&self) -> Option<f64> {
        match self {
            Feed::Program(program) => program.progress(),
            Feed::Records(reader) => reader.progress(),
        }
    }

    /// Gives a thread its next batch, or its next records and what follows them; returns whether there are
    /// none.
    pub fn refill(&mut self, thread: &mut Thread) -> Result<bool, ProgramError> {
        thread.cursor = 0;
        match self {
            Feed::Program(program) => {
                program.next(thread.number, &mut thread.batch)?;
                Ok(thread.batch.accesses.is_empty())
            }
            Feed::Records(reader) => {
                let chunk = reader.next(thread.number)?;
                thread.batch.then = chunk.then.clone();
                let is_empty = chunk.records.is_empty();
                thread.records = Some(Cursor { chunk, ..Cursor::default() });
                Ok(is_empty)
            }
        }
    }
}
