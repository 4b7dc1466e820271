//! A decoded row group.

use crate::columns::{Columns, is_access};
use crate::{Trace, TraceError};

/// A row group in memory, with the places of each thread's rows.
pub(crate) struct RowGroup {
    index: usize,
    columns: Columns,
    slices: Vec<Slice>,
    /// Accesses of the row groups before it.
    before: u64,
    /// Its accesses.
    accesses: u64,
}

/// A thread's rows of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    epoch: u32,
    thread: u32,
    pub start: u32,
    pub end: u32,
    /// Accesses of the row group before it.
    pub accesses: u32,
}

impl RowGroup {
    /// Decodes and checks a row group; the memory of `spare` is used again.
    pub fn decode(trace: &Trace, index: usize, spare: Columns) -> Result<RowGroup, TraceError> {
        let mut columns = spare;
        trace.load(index, &mut columns)?;
        let mut slices: Vec<Slice> = Vec::new();
        let mut accesses = 0;
        for row in 0..columns.len() {
            let place = (columns.epoch[row] as u32, columns.thread[row] as u32);
            let end = row as u32 + 1;
            match slices.last_mut() {
                Some(slice) if (slice.epoch, slice.thread) == place => slice.end = end,
                _ => {
                    let (epoch, thread) = place;
                    slices.push(Slice { epoch, thread, start: end - 1, end, accesses });
                }
            }
            accesses += u32::from(is_access(columns.kind[row]));
        }
        let before = trace.groups()[..index].iter().map(|group| group.accesses).sum();
        Ok(RowGroup { index, columns, slices, before, accesses: accesses.into() })
    }

    pub fn index(&self) -> usize {
        self.index
    }

    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The columns, whose memory can be used again.
    pub fn into_columns(self) -> Columns {
        self.columns
    }

    /// Accesses of the row groups before it.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// The rows of a thread in an epoch.
    pub fn slice(&self, epoch: u32, thread: u32) -> Option<Slice> {
        let found = self.slices.binary_search_by_key(&(epoch, thread), |slice| (slice.epoch, slice.thread));
        found.ok().map(|at| self.slices[at])
    }

    /// Accesses of the whole trace before the epoch that follows one of this row group.
    pub fn accesses_before_next(&self, epoch: u32) -> u64 {
        let at = self.slices.partition_point(|slice| slice.epoch <= epoch);
        self.before + self.slices.get(at).map_or(self.accesses, |slice| u64::from(slice.accesses))
    }
}
