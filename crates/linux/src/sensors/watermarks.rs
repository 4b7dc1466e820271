//! Watermarks of the nodes' free memory (proc_zoneinfo, Documentation/mm/physical_memory.rst).

use std::io;

use memtide_core::NodeId;
use memtide_core::policy::{Answer, Event, Sensor, View, Watermarks};

use super::{Sense, SensorSetup, Watched};

const ZONEINFO: &str = "/proc/zoneinfo";

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
        match std::fs::read_to_string(ZONEINFO) {
            Ok(text) => {
                for (node, id) in view.nodes.iter_mut().zip(&watched.numbers.nodes) {
                    node.watermarks = Some(watermarks(&text, *id));
                }
            }
            Err(error) => watched.troubles.push(format!("{ZONEINFO}: {error}")),
        }
    }
}

/// Sums over a node's zones.
fn watermarks(zoneinfo: &str, node: NodeId) -> Watermarks {
    let head = format!("Node {},", node.0);
    let mut sum = Watermarks { low_pages: 0, high_pages: 0 };
    let mut is_of_node = false;
    for line in zoneinfo.lines() {
        if line.starts_with("Node ") {
            is_of_node = line.starts_with(&head);
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(pages), None) = (words.next(), words.next(), words.next()) else { continue };
        let pages: u64 = pages.parse().unwrap_or(0);
        match name {
            "low" if is_of_node => sum.low_pages += pages,
            "high" if is_of_node => sum.high_pages += pages,
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_are_summed_over_zones_of_a_node() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 5\n  pages free     \
            2816\n        boost    0\n        min      33\n        low      41\n        high     49\n\
            Node 0, zone   Normal\n        low      100\n        high     200\n    cpu: 0\n              \
            high:  7\nNode 10, zone  Normal\n        low      1\n        high     2\n";
        assert_eq!(watermarks(text, NodeId(0)), Watermarks { low_pages: 141, high_pages: 249 });
        assert_eq!(watermarks(text, NodeId(10)), Watermarks { low_pages: 1, high_pages: 2 });
        assert_eq!(watermarks(text, NodeId(1)), Watermarks { low_pages: 0, high_pages: 0 });
    }

    #[test]
    fn this_system_has_watermarks() {
        let text = std::fs::read_to_string(ZONEINFO).expect("procfs");
        let Watermarks { low_pages, high_pages } = watermarks(&text, NodeId(0));
        assert!(low_pages < high_pages, "{low_pages} {high_pages}");
    }
}
