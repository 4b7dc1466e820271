//! TLB misses by page, counted by faults on marked page table entries (BadgerTrap).
//!
//! ```text
//!  marking step          TLB miss                       next access
//!  entry marked   ──▶  walk faults: counted  ──▶  walk ignores the mark, fills the TLB
//!  translations          │
//!  dropped               └ without `every_miss`: unmarked until the next step
//! ```
//!
//! Invariant: one fault per counted miss. The walk that follows a fault ignores the mark once
//! ([`Core::counted`](crate::core::Core::counted)), as the kernel's handler loads the translation itself.

use memtide_core::policy::{Answer, TlbMissSampling};
use memtide_core::policy::{Answers, Delivery, Event, RegionSampling, Sensor, TlbMiss, View};
use memtide_core::{NodeId, PageSize, Time, Vpn};
use memtide_memory::PageKey;

use super::runs::list_pages;
use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::{Entry, Touch};

struct TlbMisses {
    sampling: TlbMissSampling,
    /// Number of epochs in which the counts were read.
    observations: u64,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    let Sensor::TlbMisses(sampling) = *sensor else { return None };
    Some(Box::new(TlbMisses { sampling, observations: 0 }))
}

impl Sense for TlbMisses {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.observations += 1;
        if has_regions(&view.answers) {
            return;
        }
        list_pages(engine, view, |entry| {
            let misses = entry.take_misses();
            entry.has(Entry::PRESENT).then(|| u32::from(misses))
        });
    }

    fn tlb_misses(&self) -> Option<TlbMissSampling> {
        Some(self.sampling)
    }

    /// Faults are system time of the threads.
    fn cost(&self) -> Option<(Time, u64)> {
        Some((Time::ZERO, self.observations))
    }
}

fn has_regions(answers: &Answers) -> bool {
    let answer = answers.get(&Sensor::Regions(RegionSampling::default()));
    answer.is_some_and(|answer| !matches!(answer, Answer::Refused(_)))
}

impl Engine<'_> {
    /// Counts a TLB miss of a thread on a CPU. An in-kernel policy gets it at once.
    pub(crate) fn marked_miss(&mut self, cpu: usize, touch: Touch, page: Vpn, size: PageSize, node: NodeId) {
        let every_miss = self.sensors.tlb_misses().is_some_and(|sampling| sampling.every_miss);
        let Touch { task, thread, write, address, .. } = touch;
        self.os.counts.marked_misses += 1;
        if let Some((entry, _)) = self.os.spaces[task.index()].table.find(page) {
            entry.count_miss();
            if !every_miss {
                entry.clear(Entry::MARKED);
            }
        }
        if every_miss {
            self.cores[cpu].counted = Some(PageKey::new(task.0, address.page().0, false));
        }
        let event = Event::TlbMiss(TlbMiss { time: self.now, task, thread, page, size, node, write });
        match self.sensors.delivery {
            Delivery::InKernel => self.deliver(cpu, &event),
            Delivery::Deployable => self.sensors.note(event),
        }
    }
}
