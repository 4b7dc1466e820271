//! Requests that have not entered the channel's queues yet.

use std::collections::VecDeque;

use super::map::Place;

#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Cycle of the command clock, from the start of the run.
    pub at: u64,
    pub id: u64,
    pub place: Place,
    pub write: bool,
}

/// Arrivals in time order; those of one cycle in push order.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog(VecDeque<Arrival>);

impl Backlog {
    #[inline]
    pub fn push(&mut self, arrival: Arrival) {
        let mut place = self.0.len();
        while place > 0 && self.0[place - 1].at > arrival.at {
            place -= 1;
        }
        if place == self.0.len() {
            self.0.push_back(arrival);
        } else {
            self.0.insert(place, arrival);
        }
    }

    #[inline]
    pub fn first(&self) -> Option<&Arrival> {
        self.0.front()
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Arrival> {
        self.0.pop_front()
    }
}
