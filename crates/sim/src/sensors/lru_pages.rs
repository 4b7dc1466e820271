//! Resident pages on the kernel's LRU lists: all but those that are being moved. Reading them takes no time
//! here.

use memtide_core::Time;
use memtide_core::policy::{Sensor, View};

use super::runs::list_pages;
use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::Entry;

/// Number of epochs in which the pages were read.
struct LruPages(u64);

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::LruPages).then(|| Box::new(LruPages(0)) as Box<dyn Sense>)
}

impl Sense for LruPages {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        self.0 += 1;
        list_pages(engine, view, |entry| is_listed(entry).then_some(0));
    }

    fn cost(&self) -> Option<(Time, u64)> {
        Some((Time::ZERO, self.0))
    }
}

/// A page that is being moved is isolated from its list.
fn is_listed(entry: &Entry) -> bool {
    entry.has(Entry::PRESENT) && !entry.any(Entry::MOVING | Entry::CLAIMED | Entry::COPIED)
}
