//! The pages that kswapd would demote: what the inactive lists of nodes short of memory end with.
//!
//! Filling in the view is a run of kswapd: it ages the lists, and takes time for each page that it checks.

use memtide_core::policy::{InactivePage, Sensor, View};
use memtide_core::{NodeId, PageSize, Time};

use super::{Sense, SensorSetup};
use crate::engine::Engine;
use crate::os::Owner;

#[derive(Default)]
struct InactivePages {
    /// Its working time.
    system: Time,
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::InactivePages).then(|| Box::new(InactivePages::default()) as Box<dyn Sense>)
}

impl Sense for InactivePages {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        for node in demoting_nodes(engine) {
            // A page to be promoted must fit above the high watermark.
            let has_huge = engine.os.spaces.iter().any(|space| space.has_huge);
            let size = if has_huge { PageSize::Huge } else { PageSize::Base };
            let wanted = engine.os.frames.short_of_promotion(node, size);
            let (pages, checked) = engine.os.idle_pages(node, wanted);
            self.system += engine.os.costs.sample * checked;
            let listed = |Owner { task, page, size }| InactivePage { task, page, size, node };
            view.inactive.extend(pages.into_iter().map(listed));
        }
    }

    fn kernel_time(&self) -> Time {
        self.system
    }
}

/// Nodes with a slower tier below them.
fn demoting_nodes(engine: &Engine<'_>) -> Vec<NodeId> {
    let machine = &engine.setup.machine;
    let slowest = machine.node_ids().map(|node| machine.tier_of(node)).max();
    machine.node_ids().filter(|&node| Some(machine.tier_of(node)) < slowest).collect()
}
