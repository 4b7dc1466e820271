//! Watermarks of the nodes' free memory.

use std::io;

use memtide_core::policy::{Answer, Event, Sensor, View};

use super::{Sense, SensorSetup, Watched};
use crate::zones::{ZONEINFO, Zones};

#[derive(Debug)]
struct NodeWatermarks;

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let opened = || std::fs::metadata(ZONEINFO).map(|_| Box::new(NodeWatermarks) as Box<dyn Sense>);
    (*sensor == Sensor::Watermarks).then(opened)
}

impl Sense for NodeWatermarks {
    fn answer(&self) -> Answer {
        Answer::Observed(ZONEINFO.to_owned())
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, _: &mut Vec<Event>) {
        match Zones::read() {
            Ok(zones) => {
                for (node, id) in view.nodes.iter_mut().zip(&watched.numbers.nodes) {
                    node.watermarks = Some(zones.watermarks(*id));
                }
            }
            Err(error) => watched.troubles.push(format!("{ZONEINFO}: {error}")),
        }
    }
}
