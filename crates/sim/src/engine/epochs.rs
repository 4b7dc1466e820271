//! A migration policy at work: its epochs, and the monitor that watches memory for it.

use memtide_core::Time;
use memtide_core::epoch::{self, Governor, Limits};
use memtide_core::policy::{Event, Migration, Needs, RegionNeeds};

use super::{Engine, Timer, moves};

/// A migration policy at work.
pub(super) struct Policed {
    pub policy: Box<dyn Migration>,
    /// Its times have been divided by the scale.
    pub needs: Needs,
    pub governor: Governor,
    pub events: Vec<Event>,
}

impl Policed {
    pub fn new(policy: Box<dyn Migration>, limits: Limits, scale: u32) -> Policed {
        let needs = scaled(policy.needs(), scale);
        Policed { policy, needs, governor: Governor::new(limits, needs.epoch), events: Vec::new() }
    }
}

fn scaled(needs: Needs, scale: u32) -> Needs {
    let time = |time: Time| Time((time.0 / u64::from(scale)).max(1));
    let regions = needs.regions.map(|regions| RegionNeeds {
        sampling: time(regions.sampling),
        aggregation: time(regions.aggregation),
        ..regions
    });
    Needs { epoch: time(needs.epoch), regions, ..needs }
}

impl Engine<'_> {
    pub(super) fn epoch(&mut self) {
        let Some(mut policed) = self.migration.take() else { return };
        let mut host = moves::Deployed { engine: self, events: std::mem::take(&mut policed.events) };
        epoch::step(&mut host, policed.policy.as_mut(), &mut policed.governor, &mut ());
        self.set_timer(Timer::Epoch, self.now + policed.needs.epoch);
        self.migration = Some(policed);
    }

    pub(super) fn monitor(&mut self) {
        let Some(monitor) = &mut self.monitor else { return };
        monitor.sample(&mut self.os);
        let next = self.now + monitor.sampling;
        self.set_timer(Timer::Monitor, next);
    }
}
