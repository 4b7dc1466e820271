//! Programs: loading, and events of their threads between accesses.

use memtide_core::policy::{RuleState, Task};
use memtide_core::{Batch, CpuId, Stage, TaskId, Then, ThreadId, Time, VirtAddr, Vpn};

use super::{Engine, Timer};
use crate::SimError;
use crate::core::Trap;
use crate::cpus::cpus_of;
use crate::feed::{Feed, Load};
use crate::os::{PAGES, Space, TASKS};
use crate::thread::{Cause, Spent, State, Thread, ThreadCounts};

/// Maximum consecutive batches of a thread without accesses and work. A trace with skipped accesses has up to
/// three per epoch.
const EMPTY_BATCHES: u32 = 1 << 22;

/// A program of the run.
pub(crate) struct Running<'p> {
    pub name: String,
    pub feed: Feed<'p>,
    /// Number of threads that have started and not ended.
    pub live: usize,
    /// Threads among them that have arrived at the barrier.
    pub at_barrier: usize,
    /// When the barrier last opened.
    pub opened: Time,
    pub ended: Time,
    /// By its own marks.
    pub stage: Stage,
    /// Whether its region of interest has begun, when it last did, and its time before that.
    pub has_begun: bool,
    pub region_since: Time,
    pub region_time: Time,
    /// When its first thread starts.
    pub start: Time,
    pub has_started: bool,
    cpus: Vec<CpuId>,
    first_thread: usize,
}

impl<'p> Engine<'p> {
    /// Loads a program; its first thread starts now, or at its time.
    pub(super) fn load(&mut self, job: Load<'p>) -> Result<(), SimError> {
        let number = self.programs.len();
        let before: usize = self.programs.iter().map(|program| program.feed.threads()).sum();
        let cpus = cpus_of(&self.setup.machine, &job.cpus, before, job.feed.threads());
        let marked = job.feed.has_region();
        self.programs.push(Running {
            stage: if marked { Stage::Initialisation } else { Stage::Region },
            has_begun: !marked,
            region_since: job.start,
            region_time: Time::ZERO,
            name: job.name,
            feed: job.feed,
            live: 0,
            at_barrier: 0,
            opened: Time::ZERO,
            ended: Time::ZERO,
            start: job.start,
            has_started: false,
            cpus,
            first_thread: 0,
        });
        if job.start > self.now { Ok(()) } else { self.start_program(number) }
    }

    /// Starts the programs that are due.
    pub(super) fn start_programs(&mut self) -> Result<(), SimError> {
        for number in 0..self.programs.len() {
            let Running { start, has_started, .. } = self.programs[number];
            if !has_started && start <= self.now {
                self.start_program(number)?;
                self.change_stage();
            }
        }
        self.await_programs();
        Ok(())
    }

    /// Sets the timer to the next program's start.
    pub(super) fn await_programs(&mut self) {
        let waiting = self.programs.iter().filter(|program| !program.has_started);
        let next = waiting.map(|program| program.start).min();
        self.set_timer(Timer::Start, next.unwrap_or(Time::NEVER));
    }

    /// Creates a program's task and threads, and starts its first thread.
    fn start_program(&mut self, number: usize) -> Result<(), SimError> {
        let first_thread = self.threads.len();
        let Running { name, feed, cpus, .. } = &self.programs[number];
        let (name, threads, cpus) = (name.clone(), feed.threads(), cpus.clone());
        let task = self.new_task(&name, number, threads, None)?;
        for (index, cpu) in cpus.into_iter().enumerate() {
            let id = ThreadId::from(first_thread + index);
            let rule = &self.os.spaces[task.index()].rule;
            self.threads.push(Thread {
                id,
                task,
                program: number,
                number: ThreadId::from(index),
                cpu,
                state: State::NotStarted,
                batch: Batch { accesses: Vec::new(), then: Then::Continue },
                records: None,
                cursor: 0,
                empty_batches: 0,
                done_bytes: 0,
                dispatched: false,
                left_at: Time::ZERO,
                placement: RuleState::new(rule, self.setup.seed, id),
                spent: Spent::default(),
                counts: ThreadCounts::default(),
            });
        }
        let program = &mut self.programs[number];
        (program.first_thread, program.has_started) = (first_thread, true);
        self.start_thread(number, ThreadId(0), task)
    }

    fn new_task(
        &mut self,
        name: &str,
        program: usize,
        threads: usize,
        parent: Option<TaskId>,
    ) -> Result<TaskId, SimError> {
        if self.os.spaces.len() == TASKS {
            let why = format!("it starts process {}, one more than can be simulated", TASKS + 1);
            return Err(SimError::Broken { program: name.to_owned(), why });
        }
        let id = TaskId::from(self.os.spaces.len());
        let task = Task { id, name: name.to_owned(), threads: threads as u32 };
        let rule = self.tasks.add(&self.setup.machine, &task, program);
        let space = match parent {
            Some(parent) => self.os.spaces[parent.index()].fork(id, rule),
            None => Space::new(id, rule),
        };
        self.os.spaces.push(space);
        self.record_task(id, true);
        Ok(id)
    }

    fn start_thread(&mut self, program: usize, number: ThreadId, task: TaskId) -> Result<(), SimError> {
        let first = self.programs[program].first_thread;
        let index = first + number.index();
        if number.index() >= self.programs[program].feed.threads()
            || self.threads[index].state != State::NotStarted
        {
            let why = format!("it starts thread {}, which does not exist or runs already", number.0);
            return Err(SimError::Broken { program: self.programs[program].name.clone(), why });
        }
        self.programs[program].live += 1;
        self.threads[index].task = task;
        let rule = &self.os.spaces[task.index()].rule;
        self.threads[index].placement = RuleState::new(rule, self.setup.seed, self.threads[index].id);
        self.threads[index].left_at = self.now;
        self.record_cpu(index);
        self.make_ready(index, self.now);
        Ok(())
    }

    /// Records that a task's thread runs on its CPU from now on.
    fn record_cpu(&mut self, thread: usize) {
        let Thread { task, cpu, .. } = self.threads[thread];
        self.tasks.record_cpu(task, cpu);
    }

    /// Gets the thread's next batch; returns its trap if it needs the operating system.
    pub(super) fn refill(&mut self, cpu: usize, thread: usize) -> Result<Option<Trap>, SimError> {
        let t = &mut self.threads[thread];
        let work = match std::mem::take(&mut t.batch.then) {
            Then::Continue => 0,
            Then::Work(instructions) => instructions,
            then => return Ok(Some(Trap::Then(then))),
        };
        if !self.cores[cpu].clock.can_run(work) {
            let program = self.programs[t.program].name.clone();
            return Err(SimError::TooLong {
                program,
                instructions: t.counts.instructions.saturating_add(work),
            });
        }
        self.cores[cpu].work(t, work);
        let running = &mut self.programs[t.program];
        let is_empty = running.feed.refill(t)?;
        if let Some(records) = &t.records {
            self.cores[cpu].count_hits(&records.chunk.hits);
        }
        let does_nothing = is_empty && !matches!(t.batch.then, Then::Work(1..) | Then::End);
        t.empty_batches = if does_nothing { t.empty_batches + 1 } else { 0 };
        if t.empty_batches > EMPTY_BATCHES {
            let why = format!("thread {} returns {EMPTY_BATCHES} batches without an access", t.number.0);
            return Err(SimError::Broken { program: running.name.clone(), why });
        }
        Ok(None)
    }

    /// Performs what a thread does between two batches.
    pub(super) fn carry_out(&mut self, cpu: usize, thread: usize, then: Then) -> Result<(), SimError> {
        let (task, program) = (self.threads[thread].task, self.threads[thread].program);
        match then {
            Then::Continue | Then::Work(_) => {}
            Then::Map(mapping) => self.os.spaces[task.index()].map(mapping),
            Then::Unmap { start, bytes } => self.unmap(cpu, task, start, bytes),
            Then::Exec => {
                self.os.free_pages(task, Vpn(0), Vpn(PAGES));
                self.os.spaces[task.index()].clear();
                self.cancel_unmapped(task);
                self.shoot_down(Some(cpu), Cause::Unmap);
            }
            Then::Spawn(number) => self.start_thread(program, number, task)?,
            Then::Fork(number) => {
                let name = self.programs[program].name.clone();
                let child = self.new_task(&name, program, 1, Some(task))?;
                self.start_thread(program, number, child)?;
            }
            Then::Message(kind) => self.record_message(task, kind),
            Then::Mark(mark) => self.mark(program, mark),
            Then::OnCpu(to) => return self.change_cpu(cpu, thread, to),
            Then::Barrier => return self.come_to_barrier(cpu, thread),
            Then::End => return self.end_thread(cpu, thread),
        }
        self.go_on(cpu)
    }

    fn unmap(&mut self, cpu: usize, task: TaskId, start: VirtAddr, bytes: u64) {
        let (first, end) = Space::whole_pages(start, bytes);
        self.os.free_pages(task, first, end);
        self.os.spaces[task.index()].unmap(start, bytes);
        self.cancel_unmapped(task);
        self.shoot_down(Some(cpu), Cause::Unmap);
    }

    fn change_cpu(&mut self, cpu: usize, thread: usize, to: CpuId) -> Result<(), SimError> {
        let to = to.index() % self.cores.len();
        if to == cpu {
            return self.go_on(cpu);
        }
        self.leave_cpu(cpu);
        self.threads[thread].cpu = CpuId::from(to);
        self.record_cpu(thread);
        self.make_ready(thread, self.now);
        Ok(())
    }

    fn come_to_barrier(&mut self, cpu: usize, thread: usize) -> Result<(), SimError> {
        self.threads[thread].state = State::AtBarrier;
        self.programs[self.threads[thread].program].at_barrier += 1;
        self.leave_cpu(cpu);
        self.open_barrier(self.threads[thread].program);
        Ok(())
    }

    /// Releases all threads at the barrier once every live one has arrived.
    fn open_barrier(&mut self, program: usize) {
        let running = &mut self.programs[program];
        if running.live == 0 || running.at_barrier < running.live {
            return;
        }
        running.at_barrier = 0;
        running.opened = self.now;
        let threads = running.first_thread..running.first_thread + running.feed.threads();
        for thread in threads {
            if self.threads[thread].state == State::AtBarrier {
                self.make_ready(thread, self.now);
            }
        }
    }

    fn end_thread(&mut self, cpu: usize, thread: usize) -> Result<(), SimError> {
        let Thread { task, program, .. } = self.threads[thread];
        self.threads[thread].state = State::Ended;
        self.leave_cpu(cpu);
        self.programs[program].live -= 1;
        let alive = |t: &Thread| t.task == task && !matches!(t.state, State::Ended | State::NotStarted);
        if !self.threads.iter().any(alive) {
            self.end_task(task);
        }
        if self.programs[program].live == 0 {
            return self.end_program(program);
        }
        self.open_barrier(program);
        Ok(())
    }

    /// Frees a task's memory, after recording its nodes.
    fn end_task(&mut self, task: TaskId) {
        self.tasks.last_pages = self.mapped_pages();
        let frames = &self.os.frames;
        let pages = &mut self.tasks.pages_of_ended;
        self.os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |_, size, entry| {
            if entry.has(crate::os::Entry::PRESENT) {
                pages[frames.node_of(entry.frame()).index()] += size.base_pages();
            }
            true
        });
        self.os.free_pages(task, Vpn(0), Vpn(PAGES));
        self.tasks.end(task);
        self.uncore.end(self.class_of(task));
        self.record_task(task, false);
        self.cancel_unmapped(task);
        self.shoot_down(None, Cause::Unmap);
    }

    /// Fails if no thread can ever continue.
    pub(super) fn check_progress(&self) -> Result<(), SimError> {
        let idle = self.cores.iter().all(|core| core.running.is_none() && core.ready.is_empty());
        match self.programs.iter().find(|p| p.live > 0) {
            Some(stuck) if idle => Err(SimError::Broken {
                program: stuck.name.clone(),
                why: format!("{} of its {} live threads wait at a barrier", stuck.at_barrier, stuck.live),
            }),
            _ => Ok(()),
        }
    }
}
