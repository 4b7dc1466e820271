//! Replays a trace as a [`Program`].

use std::sync::Arc;

use memtide_core::{
    Access, Batch, CpuId, Mapping, Mark, PageSize, Program, ProgramError, Then, ThreadId, VirtAddr,
};

use crate::columns::{Columns, Kind, is_access, mark};
use crate::row_group::{RowGroup, Slice};
use crate::{Trace, TraceError};

/// Maximum accesses per batch.
const BATCH: usize = 4096;

/// Which part of a trace to replay, and how.
///
/// If `skip`, `limit` or `warm_up` select a part, that part is the region of interest, and the trace's own
/// marks do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Number of accesses to skip at the start; mappings and thread starts before them are replayed.
    pub skip: u64,
    /// Maximum number of accesses to replay.
    pub limit: u64,
    /// Number of replayed accesses before the region of interest; less than the trace has and `limit` allows.
    pub warm_up: u64,
    /// Replay the CPU of the recording machine on which each thread ran.
    pub cpus: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { skip: 0, limit: u64::MAX, warm_up: 0, cpus: false }
    }
}

impl ReplayOptions {
    /// Whether they select a part of the trace.
    fn selects(&self) -> bool {
        (self.skip, self.limit, self.warm_up) != (0, u64::MAX, 0)
    }

    /// Number of the first access of the region, if it comes after a warm-up.
    fn begin(&self) -> Option<u64> {
        (self.warm_up > 0).then(|| self.skip.saturating_add(self.warm_up))
    }
}

/// A trace being replayed. It holds one row group in memory, which its clones share while they are in it.
#[derive(Clone)]
pub struct Replay {
    trace: Arc<Trace>,
    options: ReplayOptions,
    /// The row group that it is in; `None` if the trace has none.
    group: Option<Arc<RowGroup>>,
    threads: Vec<Thread>,
    handed_out: u64,
    /// Marks of the options that were not returned yet, last first: thread 0 makes the first one at once, and
    /// the thread that makes the region's first access the second.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    state: State,
    epoch: u32,
    /// Rows of the epoch returned so far, and the accesses among them.
    rows: usize,
    accesses: u64,
    retired: u64,
    /// Accesses returned in total.
    made: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    Runs,
    Ended,
}

impl Trace {
    /// Replays the trace; with several threads, each epoch ends in a barrier.
    ///
    /// The order of accesses of different threads within an epoch is not recorded; a thread may access memory
    /// before another one maps it.
    ///
    /// # Errors
    /// If the first row group is damaged. Others are checked when the replay reaches them.
    pub fn program(self, options: ReplayOptions) -> Result<Replay, TraceError> {
        let mut threads = vec![Thread::default(); self.totals().threads as usize];
        threads[0].state = State::Runs;
        let group = match self.groups().is_empty() {
            true => None,
            false => Some(self.row_group(0, Columns::default())?),
        };
        Ok(Replay {
            trace: Arc::new(self),
            options,
            group,
            threads,
            handed_out: 0,
            marks: if options.warm_up > 0 { vec![Mark::Begin, Mark::WarmUp] } else { Vec::new() },
        })
    }
}

impl Replay {
    /// The replayed trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The row group of an epoch, which becomes the loaded one.
    fn enter(&mut self, epoch: u32) -> Result<Arc<RowGroup>, TraceError> {
        let groups = self.trace.groups();
        let index = groups.partition_point(|group| group.first_epoch <= epoch).saturating_sub(1);
        if let Some(group) = self.group.as_ref().filter(|group| group.index() == index) {
            return Ok(group.clone());
        }
        let spare = self.group.take().and_then(Arc::into_inner).map(RowGroup::into_columns);
        let group = self.trace.row_group(index, spare.unwrap_or_default())?;
        Ok(self.group.insert(group).clone())
    }

    fn fill(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), TraceError> {
        if self.marks.pop_if(|mark| *mark == Mark::WarmUp).is_some() {
            batch.then = Then::Mark(Mark::WarmUp);
            return Ok(());
        }
        let id = thread.index();
        let epoch = self.threads[id].epoch;
        let epochs = self.trace.totals().epochs;
        let group = if epoch < epochs { Some(self.enter(epoch)?) } else { None };
        if let Some(group) = &group
            && let Some(slice) = group.slice(epoch, thread.0)
        {
            let rows = slice.start as usize + self.threads[id].rows..slice.end as usize;
            if !rows.is_empty() {
                return self.rows(thread, group, slice, rows, batch);
            }
        }
        let mut next = Thread { epoch: epoch + 1, rows: 0, accesses: 0, ..self.threads[id] };
        let limit = self.options.skip.saturating_add(self.options.limit);
        let is_last = |group: &RowGroup| next.epoch >= epochs || group.accesses_before_next(epoch) >= limit;
        if group.is_none_or(|group| is_last(&group)) {
            next.state = State::Ended;
            batch.then = Then::End;
        } else if self.threads.len() > 1 {
            batch.then = Then::Barrier;
        }
        self.threads[id] = next;
        Ok(())
    }

    /// Returns rows of one thread and epoch up to the next event.
    fn rows(
        &mut self,
        id: ThreadId,
        group: &RowGroup,
        slice: Slice,
        rows: std::ops::Range<usize>,
        batch: &mut Batch,
    ) -> Result<(), TraceError> {
        let wanted = self.options.skip..self.options.skip.saturating_add(self.options.limit);
        let columns = group.columns();
        let thread = &mut self.threads[id.index()];
        for row in rows {
            let retired = columns.instructions[row] as u64;
            let Some(instructions) = retired.checked_sub(thread.retired) else {
                return Err(damaged(&self.trace, id, "its instruction count falls"));
            };
            if !is_access(columns.kind[row]) {
                thread.rows += 1;
                batch.then = event(columns, row, self.options);
                break;
            }
            let number = group.before() + u64::from(slice.accesses) + thread.accesses;
            if self.options.begin() == Some(number)
                && let Some(mark) = self.marks.pop()
            {
                batch.then = Then::Mark(mark);
                break;
            }
            if !wanted.contains(&number) {
                thread.retired = retired;
            } else if let Ok(instructions) = u32::try_from(instructions) {
                thread.retired = retired;
                thread.made += 1;
                let producer = columns.producer[row] as u32;
                batch.accesses.push(Access {
                    address: VirtAddr(columns.address[row] as u64),
                    instructions,
                    producer: if u64::from(producer) < thread.made { producer } else { 0 },
                    size: columns.size[row] as u16,
                    write: columns.write[row],
                    non_temporal: columns.kind[row] == Kind::NonTemporalStore as i32,
                });
            } else {
                thread.retired = retired - 1;
                batch.then = Then::Work(instructions - 1);
                break;
            }
            thread.rows += 1;
            thread.accesses += 1;
            if batch.accesses.len() == BATCH {
                break;
            }
        }
        self.handed_out += batch.accesses.len() as u64;
        self.take_effect(id, &batch.then)
    }

    /// Tracks which threads run.
    fn take_effect(&mut self, id: ThreadId, then: &Then) -> Result<(), TraceError> {
        match *then {
            Then::End => self.threads[id.index()].state = State::Ended,
            Then::Spawn(started) | Then::Fork(started) => {
                let epoch = self.threads[id.index()].epoch;
                if self.threads[started.index()].state != State::Waiting {
                    return Err(damaged(&self.trace, id, "it starts a thread that runs already"));
                }
                self.threads[started.index()] = Thread { state: State::Runs, epoch, ..Thread::default() };
            }
            _ => {}
        }
        Ok(())
    }
}

fn damaged(trace: &Trace, thread: ThreadId, what: &str) -> TraceError {
    TraceError::damaged(trace.path(), format!("{thread}: {what}"))
}

/// The mapping of a row that is one.
pub(crate) fn mapping(columns: &Columns, row: usize) -> Mapping {
    Mapping {
        start: VirtAddr(columns.address[row] as u64),
        bytes: columns.size[row] as u64,
        page: PageSize::Base,
        name: columns.names.get(row).unwrap_or_default().to_owned(),
    }
}

fn event(columns: &Columns, row: usize, options: ReplayOptions) -> Then {
    let address = columns.address[row] as u64;
    match Kind::from_number(columns.kind[row]) {
        Some(Kind::Map) => Then::Map(mapping(columns, row)),
        Some(Kind::Unmap) => Then::Unmap { start: VirtAddr(address), bytes: columns.size[row] as u64 },
        Some(Kind::Spawn) => Then::Spawn(ThreadId(address as u32)),
        Some(Kind::Fork) => Then::Fork(ThreadId(address as u32)),
        Some(Kind::Exec) => Then::Exec,
        Some(Kind::Cpu) if options.cpus => Then::OnCpu(CpuId(address as u16)),
        Some(Kind::End) => Then::End,
        Some(Kind::Mark) if !options.selects() => mark(address).map_or(Then::Continue, Then::Mark),
        Some(Kind::Cpu | Kind::Mark | Kind::Access | Kind::NonTemporalStore) | None => Then::Continue,
    }
}

impl Program for Replay {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        batch.clear();
        let state = self.threads.get(thread.index()).map(|thread| thread.state);
        match state {
            Some(State::Runs) => self.fill(thread, batch).map_err(|error| ProgramError(error.to_string())),
            Some(State::Ended) => {
                batch.then = Then::End;
                Ok(())
            }
            Some(State::Waiting) | None => {
                let what = damaged(&self.trace, thread, "it was not started");
                Err(ProgramError(what.to_string()))
            }
        }
    }

    fn has_region(&self) -> bool {
        if self.options.selects() { self.options.warm_up > 0 } else { self.trace.totals().regions > 0 }
    }

    fn progress(&self) -> Option<f64> {
        let all = self.trace.totals().accesses.saturating_sub(self.options.skip).min(self.options.limit);
        Some(if all == 0 { 1.0 } else { self.handed_out as f64 / all as f64 })
    }
}
