//! Reads and writes per node: from the lab's counters, or from the memory controllers' own.

mod controllers;
mod lab;

use std::io;

use memtide_core::NodeId;
use memtide_core::policy::{Answer, Event, Sensor, Traffic, View};

use self::controllers::Controllers;
use self::lab::Lab;
use super::{Sense, SensorSetup, Watched};
use crate::counters::CountersError;

/// Traffic counters of nodes.
#[derive(Debug)]
pub struct NodeTraffic(Source);

#[derive(Debug)]
enum Source {
    Lab(Lab),
    Controllers(Controllers),
}

impl NodeTraffic {
    /// Opens the lab's counters in a guest of it, else those of the memory controllers.
    ///
    /// # Errors
    /// If there are no counters that can be read.
    pub fn open() -> io::Result<NodeTraffic> {
        let source = match Lab::open() {
            Ok(lab) => Source::Lab(lab),
            Err(CountersError::None) => Source::Controllers(Controllers::open()?),
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(NodeTraffic(source))
    }

    /// What counts it.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Source::Lab(_) => "the lab's counters",
            Source::Controllers(controllers) => controllers.name(),
        }
    }

    /// The traffic of each node, where it is counted.
    pub fn read(&mut self, nodes: &[NodeId]) -> Vec<Option<Traffic>> {
        match &mut self.0 {
            Source::Lab(lab) => lab.read(nodes),
            Source::Controllers(controllers) => controllers.read(nodes),
        }
    }
}

pub(super) fn open(sensor: &Sensor, _: &SensorSetup<'_>) -> Option<io::Result<Box<dyn Sense>>> {
    let opened = || NodeTraffic::open().map(|traffic| Box::new(traffic) as Box<dyn Sense>);
    (*sensor == Sensor::NodeTraffic).then(opened)
}

impl Sense for NodeTraffic {
    fn answer(&self) -> Answer {
        Answer::Observed(self.name().to_owned())
    }

    fn fill(&mut self, watched: &mut Watched, view: &mut View, _: &mut Vec<Event>) {
        for (node, traffic) in view.nodes.iter_mut().zip(self.read(&watched.numbers.nodes)) {
            node.traffic = traffic;
        }
    }
}
