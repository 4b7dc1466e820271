//! Quotas of the last cache level: a task is a class of the uncore.

use std::num::NonZeroU16;

use memtide_core::policy::{Outcome, Refusal};
use memtide_core::{CacheId, LINE_BYTES, PAGE_BYTES, TaskId};
use memtide_memory::Class;

use super::Engine;

impl Engine<'_> {
    /// The class of a task's accesses. On ideal memory it is its program, whose tasks share lines.
    pub(crate) fn class_of(&self, task: TaskId) -> Class {
        Class(if self.setup.is_ideal { self.tasks.program(task) as u32 } else { task.0 })
    }

    /// Caches of the last level that a task's threads have used, in order; none if it is not shared.
    pub(crate) fn caches_of(&self, task: TaskId) -> Vec<CacheId> {
        let cpus = self.tasks.cpus(task).iter();
        let mut caches: Vec<CacheId> = cpus.filter_map(|cpu| self.uncore.cache_of(*cpu)).collect();
        caches.sort_unstable();
        caches.dedup();
        caches
    }

    /// A task's quota in all these caches.
    pub(crate) fn quota(&self, task: TaskId, caches: &[CacheId]) -> Option<NonZeroU16> {
        let mut quotas = caches.iter().map(|cache| self.uncore.quota(*cache, self.class_of(task)));
        let first = quotas.next()?;
        quotas.all(|quota| quota == first).then_some(first).flatten()
    }

    /// Limits the ways that a task fills, at once and without cost, as a write to a processor's register.
    pub(super) fn set_quota(&mut self, task: TaskId, ways: Option<NonZeroU16>) -> Outcome {
        if task.index() >= self.os.spaces.len() || !self.tasks.is_alive(task) {
            return Outcome::Refused(Refusal::Gone);
        }
        if self.uncore.ways().is_none() {
            return Outcome::Refused(Refusal::Unsupported);
        }
        let (caches, class) = (self.caches_of(task), self.class_of(task));
        let has_room = |cache: &CacheId| ways.is_none_or(|ways| self.uncore.has_ways(*cache, class, ways));
        if !caches.iter().all(has_room) {
            return Outcome::Refused(Refusal::NoRoom);
        }
        let frames = &self.os.frames;
        for cache in caches {
            let owns = |line| frames.page_in((line / (PAGE_BYTES / LINE_BYTES)) as u32).task == task;
            self.uncore.set_quota(cache, class, ways, owns);
        }
        Outcome::MADE
    }
}
