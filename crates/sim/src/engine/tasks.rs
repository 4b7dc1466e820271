//! Tasks: their placement rules, their CPUs, and their final pages.

use memtide_core::policy::{Placement, Rule, Task};
use memtide_core::{CpuId, Machine, TaskId};

/// All tasks of a run, by id.
pub(crate) struct Tasks {
    placement: Box<dyn Placement>,
    all: Vec<Known>,
    /// Base pages of ended tasks on each node.
    pub pages_of_ended: Vec<u64>,
    /// Base pages of all tasks on each node, just before the last one to end did.
    pub last_pages: Vec<u64>,
}

struct Known {
    name: String,
    /// Its program in the run.
    program: usize,
    /// Base pages moved.
    migrated_pages: u64,
    /// CPUs that its threads have run on.
    cpus: Vec<CpuId>,
    alive: bool,
    frozen: bool,
}

impl Tasks {
    pub fn new(placement: Box<dyn Placement>, nodes: usize) -> Tasks {
        Tasks { placement, all: Vec::new(), pages_of_ended: vec![0; nodes], last_pages: vec![0; nodes] }
    }

    /// Adds the next task, of a program, and requests its placement rule.
    pub fn add(&mut self, machine: &Machine, task: &Task, program: usize) -> Rule {
        assert_eq!(task.id.index(), self.all.len(), "tasks are numbered in order");
        self.all.push(Known {
            name: task.name.clone(),
            program,
            migrated_pages: 0,
            cpus: Vec::new(),
            alive: true,
            frozen: false,
        });
        self.placement.rule(machine, task)
    }

    pub fn name(&self, task: TaskId) -> &str {
        &self.all[task.index()].name
    }

    pub fn is_alive(&self, task: TaskId) -> bool {
        self.all[task.index()].alive
    }

    /// Whether its threads are stopped.
    pub fn is_frozen(&self, task: TaskId) -> bool {
        self.all[task.index()].frozen
    }

    pub fn set_frozen(&mut self, task: TaskId, frozen: bool) {
        self.all[task.index()].frozen = frozen;
    }

    pub fn end(&mut self, task: TaskId) {
        self.all[task.index()].alive = false;
    }

    /// Counts base pages of a task that were moved.
    pub fn count_migrated(&mut self, task: TaskId, pages: u64) {
        self.all[task.index()].migrated_pages += pages;
    }

    /// The program of a task.
    pub fn program(&self, task: TaskId) -> usize {
        self.all[task.index()].program
    }

    /// Program of each task and its base pages moved so far.
    pub fn migrated_pages(&self) -> impl Iterator<Item = (usize, u64)> {
        self.all.iter().map(|task| (task.program, task.migrated_pages))
    }

    /// CPUs that a task's threads have run on, in order of first use.
    pub fn cpus(&self, task: TaskId) -> &[CpuId] {
        &self.all[task.index()].cpus
    }

    /// Records that a task's thread runs on a CPU from now on.
    pub fn record_cpu(&mut self, task: TaskId, cpu: CpuId) {
        let cpus = &mut self.all[task.index()].cpus;
        if !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
}
