//! Links between sockets, and between a socket and memory not attached to it.

mod lane;

use memtide_core::machine::{Hop, Machine};
use memtide_core::{Bandwidth, LINE_BYTES, Time};

use self::lane::Lane;

/// All links of a machine. Each direction carries one line after another; requests without data use no
/// bandwidth.
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

/// Lines that the caches' write buffers hold in front of a link: assumed.
const WRITE_BUFFERS: u32 = 16;

/// Direction on a route from an initiator to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// To the node: requests and write data.
    Node,
    /// From the node: read data.
    Initiator,
}

impl Links {
    /// Idle links of a machine.
    pub fn new(machine: &Machine) -> Links {
        let links = machine.links.iter().map(|link| {
            let whole_mbps = link.bandwidth_mbps * f64::from(link.sharing_slices);
            let lane = Lane::new(Bandwidth(whole_mbps).time_for(LINE_BYTES), link.sharing_slices);
            Link { half_latency: Time(Time::from_ns(link.latency_ns).0 / 2), lanes: [lane.clone(), lane] }
        });
        Links { links: links.collect() }
    }

    /// Arrival time of a request without data that departs at `at`.
    pub fn signal(&self, hops: &[Hop], at: Time) -> Time {
        hops.iter().fold(at, |at, hop| at + self.links[hop.link].half_latency)
    }

    /// Arrival time of a line that departs at `at`: it queues on each link.
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

    /// When writes to a node can be posted again: once no link on the way has more of them waiting than the
    /// buffers in front of it hold.
    pub fn accepts(&self, hops: &[Hop]) -> Time {
        let lane = |hop: &Hop| &self.links[hop.link].lanes[usize::from(hop.reversed)];
        hops.iter().map(|hop| lane(hop).has_at_most(WRITE_BUFFERS)).max().unwrap_or(Time::ZERO)
    }

    /// Lines carried by a link from its first end to its second, and back.
    pub fn lines(&self, link: usize) -> [u64; 2] {
        self.links[link].lanes.each_ref().map(|lane| lane.lines)
    }
}
