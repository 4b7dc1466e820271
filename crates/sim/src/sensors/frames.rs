//! Cache colours and banks of the frames of listed pages. Reading them takes no time here.

use memtide_core::policy::{Frame, FramesView, Region, Sensor, View};

use super::{Sense, SensorSetup};
use crate::engine::Engine;

struct Frames;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup) -> Option<Box<dyn Sense>> {
    (*sensor == Sensor::Frames).then(|| Box::new(Frames) as Box<dyn Sense>)
}

impl Sense for Frames {
    fn fill(&mut self, engine: &mut Engine<'_>, view: &mut View) {
        let map = engine.os.frames.map();
        let colours = map.colours();
        let banks = engine.setup.machine.node_ids().map(|node| map.banks(node)).collect();
        let bank_groups = engine.setup.machine.node_ids().map(|node| map.bank_groups(node)).collect();
        let os = &mut engine.os;
        let frame = |region: Region| {
            let (entry, _) = os.spaces[region.task.index()].table.find(region.start)?;
            Some(os.frames.place(entry.frame()))
        };
        let pages = view.regions.iter().map(frame).map(|place| place.unwrap_or(Frame::ANY)).collect();
        view.frames = Some(FramesView { colours, banks, bank_groups, pages });
    }
}
