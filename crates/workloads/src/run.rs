//! A traced workload, as a [`Program`] of the simulator.

use std::ops::Range;

use memtide_core::{Batch, Mapping, Mark, Program, ProgramError, Then, ThreadId};

use crate::array::Space;
use crate::memory::Traced;
use crate::workload::{Part, Workload};

/// Minimum accesses of a batch, except the last of a phase.
const BATCH_ACCESSES: usize = 4096;

/// A workload whose accesses are recorded while it computes on one host thread.
pub struct TracedProgram<W: Workload> {
    workload: W,
    parts: Vec<Part<W::Step>>,
    workers: Vec<Worker<W::Local>>,
    /// Thread 0's events before the first part, last first: maps the arrays, starts the other threads.
    opening: Vec<Then>,
    /// The threads' current part, and the number of threads at its end.
    part: usize,
    arrived: usize,
    items_done: u64,
    items: u64,
}

/// A thread of a traced program.
struct Worker<L> {
    local: L,
    memory: Traced,
    part: usize,
    /// Remaining items of the phase; `None` before it begins.
    todo: Option<Range<usize>>,
    /// Whether the part is done, with its barrier or the thread's end still to be returned.
    finished: bool,
}

impl<W: Workload> TracedProgram<W> {
    /// The program of this workload, whose arrays are in `space`.
    pub fn new(workload: W, space: Space) -> TracedProgram<W> {
        let workers: Vec<_> = (0..workload.threads())
            .map(|thread| Worker {
                local: workload.local(thread),
                memory: Traced::default(),
                part: 0,
                todo: None,
                finished: false,
            })
            .collect();
        let items = workload.phases().iter().map(|phase| phase.items as u64).sum();
        TracedProgram {
            opening: opening(space.into_mappings(), workers.len()),
            items,
            parts: Part::of(&workload),
            workload,
            workers,
            part: 0,
            arrived: 0,
            items_done: 0,
        }
    }

    /// The workload, with its results so far.
    pub fn workload(&self) -> &W {
        &self.workload
    }

    /// Records a thread's arrival at the end of its part; returns its next event.
    fn arrive(&mut self, thread: usize) -> Then {
        let worker = &mut self.workers[thread];
        worker.part += 1;
        worker.todo = None;
        worker.finished = false;
        self.arrived += 1;
        if self.arrived == self.workers.len() {
            self.part += 1;
            self.arrived = 0;
        }
        if self.workers[thread].part == self.parts.len() { Then::End } else { Then::Barrier }
    }

    /// Runs a thread's next items, until the batch is full or the phase ends. Returns the mark that it makes
    /// instead.
    fn advance(&mut self, thread: usize) -> Option<Mark> {
        let Worker { local, memory, part, todo, finished } = &mut self.workers[thread];
        let phase = match &self.parts[*part] {
            Part::Phase(phase) => phase,
            Part::Mark(mark) => {
                *finished = true;
                return (thread == 0).then_some(*mark);
            }
        };
        let todo = match todo {
            Some(todo) => todo,
            None => {
                self.workload.begin(memory, phase.step, local);
                todo.insert(phase.share(thread, self.workload.threads()))
            }
        };
        let before = todo.len();
        while memory.accesses.len() < BATCH_ACCESSES
            && let Some(item) = todo.next()
        {
            self.workload.run(memory, phase.step, item, local);
        }
        self.items_done += (before - todo.len()) as u64;
        if todo.start == todo.end {
            self.workload.finish(memory, phase.step, local);
            *finished = true;
        }
        None
    }
}

/// Thread 0's first events, in reverse.
fn opening(mappings: Vec<Mapping>, threads: usize) -> Vec<Then> {
    let spawns = (1..threads).rev().map(|thread| Then::Spawn(ThreadId::from(thread)));
    spawns.chain(mappings.into_iter().rev().map(Then::Map)).collect()
}

impl<W: Workload> Program for TracedProgram<W> {
    fn threads(&self) -> usize {
        self.workers.len()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        batch.clear();
        let index = thread.index();
        if index == 0
            && let Some(then) = self.opening.pop()
        {
            batch.then = then;
            return Ok(());
        }
        let ahead = |worker: &Worker<_>| worker.part >= self.parts.len() || worker.part > self.part;
        if self.workers.get(index).is_none_or(ahead) {
            return Err(ProgramError(format!("{thread} was asked to go on although it waits or has ended")));
        }
        if !self.workers[index].finished {
            std::mem::swap(&mut batch.accesses, &mut self.workers[index].memory.accesses);
            let mark = self.advance(index);
            let memory = &mut self.workers[index].memory;
            memory.earlier += memory.accesses.len() as u64;
            std::mem::swap(&mut batch.accesses, &mut memory.accesses);
            if let Some(mark) = mark {
                batch.then = Then::Mark(mark);
                return Ok(());
            }
        }
        let Worker { memory, finished, .. } = &mut self.workers[index];
        batch.then = match (*finished, memory.pending) {
            (false, _) => Then::Continue,
            (true, 0) => self.arrive(index),
            (true, _) => Then::Work(std::mem::take(&mut memory.pending)),
        };
        Ok(())
    }

    fn has_region(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Mark(Mark::Begin)))
    }

    fn progress(&self) -> Option<f64> {
        Some(self.items_done as f64 / self.items.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::stream::Stream;
    use crate::testing::traced;

    fn next(program: &mut TracedProgram<Stream>, thread: usize) -> Result<Batch, ProgramError> {
        let mut batch = Batch::default();
        program.next(ThreadId::from(thread), &mut batch)?;
        Ok(batch)
    }

    #[test]
    fn thread_0_maps_and_spawns_before_anything_else() {
        let mut program = traced::<Stream>("footprint_mib=1,threads=3,page=2MiB");
        for name in ["a", "b", "c"] {
            let Then::Map(mapping) = next(&mut program, 0).unwrap().then else { panic!("no mapping") };
            assert_eq!((mapping.name.as_str(), mapping.start.0 % (2 << 20)), (name, 0));
        }
        assert_eq!(next(&mut program, 0).unwrap().then, Then::Spawn(ThreadId(1)));
        assert_eq!(next(&mut program, 0).unwrap().then, Then::Spawn(ThreadId(2)));
        assert!(!next(&mut program, 0).unwrap().accesses.is_empty());
    }

    /// The events of a thread that follow its accesses, up to its end; the others run as far as needed.
    fn events(program: &mut TracedProgram<Stream>) -> Vec<(usize, Then)> {
        let mut events = Vec::new();
        let mut live: Vec<usize> = (0..program.threads()).collect();
        while !live.is_empty() {
            live.retain(|&thread| {
                loop {
                    match next(program, thread).unwrap().then {
                        Then::Continue | Then::Map(_) | Then::Spawn(_) | Then::Work(_) => {}
                        Then::Barrier => return true,
                        Then::End => return false,
                        then => events.push((thread, then)),
                    }
                }
            });
        }
        events
    }

    #[test]
    fn thread_0_marks_warm_up_and_region_once() {
        let mut program = traced::<Stream>("footprint_mib=1,threads=3,kernel=copy,iterations=3");
        assert!(program.has_region());
        let marks = [Mark::WarmUp, Mark::Begin].map(|mark| (0, Then::Mark(mark)));
        assert_eq!(events(&mut program), marks);
        let mut program = traced::<Stream>("footprint_mib=1,threads=3,kernel=copy,iterations=1");
        assert_eq!(events(&mut program), [(0, Then::Mark(Mark::Begin))]);
    }

    #[test]
    fn waiting_or_unknown_thread_is_refused() {
        let mut program = traced::<Stream>("footprint_mib=1,threads=2");
        while next(&mut program, 0).unwrap().then != Then::Barrier {}
        assert!(next(&mut program, 0).is_err());
        assert!(next(&mut program, 1).is_ok());
        assert!(next(&mut program, 2).is_err());
    }
}
