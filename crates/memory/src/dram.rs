//! Dram nodes: channels behind an address map.

use memtide_core::Time;
use memtide_core::machine::Dram;

use crate::channel::{AddressMap, Channel};
use crate::counters::{BankCounters, Counters};
use crate::node::{Completion, MemoryNode, Request};

/// A dram node: all its channels.
#[derive(Clone, Debug)]
pub struct DramNode {
    map: AddressMap,
    channels: Vec<Channel>,
    /// Time of each channel's next event.
    next: Vec<Time>,
    controller: Time,
}

impl DramNode {
    /// The node of a checked device.
    pub fn new(dram: &Dram) -> DramNode {
        let channels = usize::from(dram.channels);
        DramNode {
            map: AddressMap::new(dram),
            channels: vec![Channel::new(dram); channels],
            next: vec![Time::NEVER; channels],
            controller: Time::from_ns(dram.controller_ns),
        }
    }

    /// Its address map.
    pub fn map(&self) -> &AddressMap {
        &self.map
    }
}

impl MemoryNode for DramNode {
    #[inline]
    fn push(&mut self, at: Time, request: Request) {
        let (channel, place) = self.map.locate(request.line);
        self.channels[channel].push(at, place, request.write, request.id);
        self.next[channel] = self.next[channel].min(at);
    }

    fn next_event(&self) -> Time {
        self.next.iter().copied().min().unwrap_or(Time::NEVER)
    }

    fn advance(&mut self, until: Time, done: &mut Vec<Completion>) {
        let first = done.len();
        for (channel, next) in self.channels.iter_mut().zip(&mut self.next) {
            if *next <= until {
                channel.advance(until, done);
                *next = channel.next_event();
            }
        }
        if self.controller != Time::ZERO {
            done[first..].iter_mut().for_each(|completion| completion.at += self.controller);
        }
    }

    fn counters(&self, at: Time) -> Counters {
        self.channels.iter().map(|channel| channel.counters(at)).fold(Counters::default(), Counters::plus)
    }

    fn bank_counters(&self) -> Vec<Vec<BankCounters>> {
        self.channels.iter().map(|channel| channel.bank_counters().collect()).collect()
    }
}
