//! The way of requests to a node and back.

use memtide_core::machine::{Hop, Machine, Node};
use memtide_core::{Bandwidth, InitiatorId, NodeId, Time};

use crate::counters::Counters;
use crate::link::{Links, Towards};
use crate::model::model;
use crate::node::{Completion, MemoryNode, Request};

/// Step in which a node advances, so that its lines come to the links in about their order.
const STEP: Time = Time::from_us(1);

/// Minimum requests of a probe, and those of each channel.
const REQUESTS: u64 = 200_000;
const CHANNEL_REQUESTS: u64 = 20_000;

/// What is probed: a node alone, or from an initiator.
#[derive(Clone, Copy, Debug)]
pub struct Target<'m> {
    node: &'m Node,
    route: Option<(&'m Machine, InitiatorId, NodeId)>,
}

impl<'m> Target<'m> {
    /// A node of a checked machine, without caches and links.
    pub fn node(node: &'m Node) -> Target<'m> {
        Target { node, route: None }
    }

    /// A node as a core of the initiator reaches it: load-to-use, links included.
    pub fn path(machine: &'m Machine, from: InitiatorId, to: NodeId) -> Target<'m> {
        Target { node: &machine.nodes[to.index()], route: Some((machine, from, to)) }
    }

    /// The node.
    pub fn at_end(self) -> &'m Node {
        self.node
    }

    /// Requests that tell the rate and latency of loads within about a per cent: they grow with the channels,
    /// as each of them has queues to fill.
    pub fn requests(self) -> u64 {
        let channels = self.node.dram.as_ref().map_or(1, |dram| dram.channels.into());
        REQUESTS.max(CHANNEL_REQUESTS * channels)
    }

    /// Maximum data rate by the figures of node and links, for a share of reads from 0 to 1.
    pub fn peak(self, read_share: f64) -> Bandwidth {
        match self.route {
            Some((machine, from, to)) => machine.path_bandwidth(from, to, read_share),
            None => self.node.bandwidth(read_share),
        }
    }

    /// Node and links, idle.
    pub(super) fn idle(self) -> Path {
        let memory = model(self.node);
        let Some((machine, from, to)) = self.route else {
            let (out, allowance, lag) = (Time::ZERO, Time::ZERO, Time::ZERO);
            return Path { memory, links: None, hops: Vec::new(), out, allowance, lag };
        };
        let out = machine.caches.last().map_or(Time::ZERO, |c| machine.core.cycles(c.latency_cycles));
        Path {
            memory,
            links: Some(Links::new(machine)),
            hops: machine.topology.hops(from, to).to_vec(),
            out,
            allowance: if self.node.fixed.is_some() { out } else { Time::ZERO },
            lag: Time::ZERO,
        }
    }
}

/// A node behind caches and links, timed as the simulator's [`Uncore`](crate::Uncore) does.
pub(super) struct Path {
    memory: Box<dyn MemoryNode + Send>,
    links: Option<Links>,
    hops: Vec<Hop>,
    /// Latency of the caches before the node, and the part of it that the node's own latency includes.
    out: Time,
    allowance: Time,
    lag: Time,
}

impl Path {
    /// Sends a request at `at`.
    pub fn push(&mut self, at: Time, request: Request) {
        let out = at + self.out;
        let there = if request.write { self.carry(Towards::Node, out) } else { self.signal(out) };
        self.memory.push(there, request);
    }

    /// The node's next event: reads that are not reported yet arrive later.
    pub fn next_event(&self) -> Time {
        self.memory.next_event()
    }

    /// Advances the node; appends reads whose arrival became certain.
    ///
    /// In steps: a node reports channel by channel, but links take lines in about their order.
    pub fn advance(&mut self, until: Time, done: &mut Vec<Completion>) {
        while self.memory.next_event() <= until {
            let first = done.len();
            let step = if self.links.is_some() { self.memory.next_event() + STEP } else { until };
            self.memory.advance(step.min(until), done);
            for completion in &mut done[first..] {
                completion.at = self.carry(Towards::Initiator, completion.at - self.allowance);
            }
        }
    }

    /// The longest that a line has waited for links since the last call.
    pub fn take_lag(&mut self) -> Time {
        std::mem::take(&mut self.lag)
    }

    pub fn counters(&self, at: Time) -> Counters {
        self.memory.counters(at)
    }

    fn signal(&self, at: Time) -> Time {
        self.links.as_ref().map_or(at, |links| links.signal(&self.hops, at))
    }

    fn carry(&mut self, towards: Towards, at: Time) -> Time {
        let Some(links) = &mut self.links else { return at };
        let there = links.carry(&self.hops, towards, at);
        self.lag = self.lag.max(there.since(links.signal(&self.hops, at)));
        there
    }
}
