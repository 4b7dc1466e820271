//! `pms`: service levels. Applications say which buffers may leave local memory. When free memory runs short,
//! their pages move to remote memory, those of lower service levels first; when there is room again, they
//! return in the reverse order.
//!
//! ```text
//!  messages ──▶ table of processes ──▶ locked buffers come home
//!                                  ──▶ free < migrate: a step of one process's pages leaves  ─┐ one step
//!                                  ──▶ free > return:  a step of one process's pages returns ─┘ at a time
//! ```

mod processes;

use std::collections::BTreeSet;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Delivery, Event, Message, Migration, NodeView, PRIORITY_MAX, Plan, Reason, Region, Sensor, Sensors, View,
    Wake,
};
use memtide_core::{ActionId, Machine, TaskId, Time};

use self::processes::{Processes, Table};
use super::groups::{Draft, Groups, pages_of, pages_per_epoch};
use super::shared::{from_text, to_text};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "pms",
        summary: "buffers that applications offer leave the fastest tier when it runs short of free memory, \
                  those of lower service levels first, and return",
        when: "programs have priorities and can say which of their memory may leave",
        source: "pms sections 4.1 and 4.2, figures 4.1 and 4.2",
        figures: false,
        parameters: &[
            Parameter::integer(
                "migrate",
                "%",
                "migration threshold: pages leave while less of the fastest tier is free",
                [0, 10, 100],
            ),
            Parameter::integer(
                "return",
                "%",
                "return threshold: pages return while more of the fastest tier is free; above `migrate`, or \
                 100: never",
                [1, 20, 100],
            ),
            Parameter::integer(
                "pages",
                "pages/step",
                "maximum of a step, and step of the quotas of the process selection",
                [1, 8192, 1_000_000],
            ),
            Parameter::integer("epoch_ms", "ms", "time between two events of the monitor", [1, 10, 600_000]),
        ],
    },
    check,
    make: |machine, values| Box::new(Pms::new(machine, values)),
};

fn check(values: &Values) -> Result<(), String> {
    let [migrate, back] = ["migrate", "return"].map(|name| values.u32(name));
    match migrate < back || back == 100 {
        true => Ok(()),
        false => Err(format!("return={back} must be above migrate={migrate}")),
    }
}

struct Pms {
    groups: Groups,
    migrate: u128,
    back: u128,
    step: u64,
    epoch: Time,
    processes: Processes,
    /// Actions of the last step without completion: the monitor waits for a step to end.
    pending: BTreeSet<ActionId>,
}

/// Base pages of the fastest tier, and the free ones among them.
struct Memory {
    pages: u64,
    free: u64,
}

impl Memory {
    fn of(view: &View, groups: &Groups) -> Memory {
        let local = || view.nodes.iter().filter(|seen| groups.is_fast(seen.node));
        let sum =
            |pages: fn(&NodeView) -> u64| local().fold(0u64, |all, seen| all.saturating_add(pages(seen)));
        Memory { pages: sum(|seen| seen.pages), free: sum(|seen| seen.free_pages) }
    }

    /// Base pages that are free beyond a share in per cent, rounded down.
    fn above(&self, percent: u128) -> u64 {
        let share = (u128::from(self.pages) * percent).div_ceil(100);
        u128::from(self.free).saturating_sub(share) as u64
    }

    /// Base pages that a share in per cent lacks.
    fn below(&self, percent: u128) -> u64 {
        let share = (u128::from(self.pages) * percent).div_ceil(100);
        share.saturating_sub(u128::from(self.free)) as u64
    }
}

impl Pms {
    fn new(machine: &Machine, values: &Values) -> Pms {
        Pms {
            groups: Groups::new(machine),
            migrate: values.u32("migrate").into(),
            back: values.u32("return").into(),
            step: pages_per_epoch(machine, values) as u64,
            epoch: Time::from_ms(values.u32("epoch_ms").into()),
            processes: Processes::default(),
            pending: BTreeSet::new(),
        }
    }

    /// Free base pages of remote memory.
    fn room(&self, view: &View) -> u64 {
        let remote = view.nodes.iter().filter(|seen| !self.groups.is_fast(seen.node));
        remote.fold(0, |all, seen| all.saturating_add(seen.free_pages))
    }

    /// Locked buffers come home, whatever the thresholds; true if any page has to.
    fn serve_locks(&self, table: &Table<'_>, view: &View, plan: &mut Plan) -> bool {
        let away: Vec<Region> = table.tasks().flat_map(|task| table.locked_away(task)).collect();
        self.step(&away, self.step, Reason::Request, view, plan);
        !plan.actions().is_empty()
    }

    /// A step of a process's pages away, if free memory is short and remote memory has room.
    fn send(&mut self, table: &Table<'_>, view: &View, plan: &mut Plan) {
        let memory = Memory::of(view, &self.groups);
        if memory.below(self.migrate) == 0 {
            return;
        }
        // Beyond the return threshold, pages would come back at once.
        let most = self.step.min(memory.below(self.back));
        if self.room(view) == 0 {
            let movable: Vec<Region> = table.tasks().flat_map(|task| table.movable(task)).collect();
            self.leave(&movable, most, plan);
            return;
        }
        let Some(task) = self.processes.next_to_send(table, self.step) else { return };
        self.step(&table.movable(task), most, Reason::MakeRoom, view, plan);
    }

    /// A step of a process's pages home, if enough memory is free.
    fn bring_back(&mut self, table: &Table<'_>, view: &View, plan: &mut Plan) {
        let room = Memory::of(view, &self.groups).above(self.back);
        if room == 0 {
            return;
        }
        let Some(task) = self.processes.next_to_return(table, self.step) else { return };
        self.step(&table.away(task), self.step.min(room), Reason::Return, view, plan);
    }

    /// Moves the first of these pages to the other memory.
    fn step(&self, runs: &[Region], most: u64, reason: Reason, view: &View, plan: &mut Plan) {
        let mut draft = Draft::new(&self.groups, view, plan);
        let mut left = most;
        for (number, run) in runs.iter().enumerate() {
            for (page, before) in pages_of(*run).zip(0..) {
                let size = page.size.base_pages();
                // A step moves a huge page at least.
                if left == 0 || (left < size && left < most) {
                    return;
                }
                if !draft.cross(page, run.node, reason) {
                    let rest = Region { pages: run.pages - before, ..*run };
                    self.leave(&[&[rest], &runs[number + 1..]].concat(), left, plan);
                    return;
                }
                left = left.saturating_sub(size);
            }
        }
    }

    /// Reports pages of a step that stay because the other memory is full.
    fn leave(&self, runs: &[Region], most: u64, plan: &mut Plan) {
        let Some(full) = runs.first().and_then(|run| self.groups.across(run.node)) else { return };
        let pages = runs.iter().map(|run| run.pages.saturating_mul(run.size.base_pages()));
        plan.leave(full, pages.fold(0, u64::saturating_add).min(most));
    }
}

impl Migration for Pms {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.epoch)
            .require(Sensor::Messages)
            .require(Sensor::LruPages)
            .require(Sensor::TaskLifecycle)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        match event {
            Event::Message(Message { task, kind, .. }) => self.processes.receive(*task, *kind),
            Event::Task(ended) if !ended.started => self.processes.forget(ended.task),
            Event::Completion(done) => _ = self.pending.remove(&done.planned.id),
            _ => {}
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.processes.retain(|task: TaskId| view.task(task).is_some());
        if self.pending.is_empty() {
            let processes = self.processes.clone();
            let table = Table::new(&processes, view, |node| self.groups.is_fast(node));
            if !self.serve_locks(&table, view, plan) {
                self.send(&table, view, plan);
                if plan.actions().is_empty() {
                    self.bring_back(&table, view, plan);
                }
            }
            self.pending = plan.actions().iter().map(|planned| planned.id).collect();
        }
        Wake::After(self.epoch)
    }

    fn state(&self) -> String {
        to_text(&self.processes)
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let processes: Processes = from_text(state)?;
        if !processes.is_sound() {
            return Err(format!("a service level that is not from 1 to {PRIORITY_MAX}"));
        }
        self.processes = processes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
