//! Links between sockets, and between a socket and memory that is not beside it.

mod lane;

use memtide_core::machine::{Hop, Machine};
use memtide_core::{Bandwidth, LINE_BYTES, Time};

use self::lane::Lane;

/// All links of a machine. Each direction carries lines one after another; requests without data take no room.
#[derive(Clone, Debug)]
pub struct Links {
    links: Vec<Link>,
}

#[derive(Clone, Debug)]
struct Link {
    half_latency: Time,
    /// From the first end to the second, and back.
    lanes: [Lane; 2],
}

/// Which way something travels on an initiator's way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// To the node: requests and data to write.
    Node,
    /// From the node: data that was read.
    Initiator,
}

impl Links {
    /// Idle links of a machine.
    pub fn new(machine: &Machine) -> Links {
        let links = machine.links.iter().map(|link| {
            let lane = Lane::new(Bandwidth(link.bandwidth_mbps).time_for(LINE_BYTES));
            Link { half_latency: Time(Time::from_ns(link.latency_ns).0 / 2), lanes: [lane.clone(), lane] }
        });
        Links { links: links.collect() }
    }

    /// When something without data that sets out at `at` arrives.
    pub fn signal(&self, hops: &[Hop], at: Time) -> Time {
        hops.iter().fold(at, |at, hop| at + self.links[hop.link].half_latency)
    }

    /// When a line that sets out at `at` arrives: on each link it waits for those before it.
    pub fn carry(&mut self, hops: &[Hop], towards: Towards, at: Time) -> Time {
        let mut at = at;
        for index in 0..hops.len() {
            let hop = match towards {
                Towards::Node => hops[index],
                Towards::Initiator => hops[hops.len() - 1 - index],
            };
            let back = hop.reversed != (towards == Towards::Initiator);
            let link = &mut self.links[hop.link];
            at = link.lanes[usize::from(back)].carry(at) + link.half_latency;
        }
        at
    }

    /// Lines that a link carried from its first end to its second, and back.
    pub fn lines(&self, link: usize) -> [u64; 2] {
        self.links[link].lanes.each_ref().map(|lane| lane.lines)
    }
}
