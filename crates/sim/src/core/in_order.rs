//! A queue of a core that its entries leave in program order.

use std::collections::VecDeque;

use super::window::End;

/// Instructions or stores that leave in program order, each once it has ended.
#[derive(Debug)]
pub(super) struct InOrder {
    /// How many later ones may be dispatched before it has left.
    capacity: u64,
    /// Number and end of those that may not have ended.
    unfinished: VecDeque<(u64, End)>,
}

impl InOrder {
    pub fn new(capacity: u64) -> InOrder {
        InOrder { capacity, unfinished: VecDeque::new() }
    }

    #[inline]
    pub fn push(&mut self, number: u64, end: End) {
        if self.unfinished.back().is_none_or(|&(_, last)| last != end) {
            self.unfinished.push_back((number, end));
        }
    }

    /// The oldest, if it must have left before `number` is dispatched: the number that waits, and its end.
    #[inline]
    pub fn before(&self, number: u64) -> Option<(u64, End)> {
        let &(oldest, end) = self.unfinished.front()?;
        let first = oldest + self.capacity;
        (first <= number).then_some((first, end))
    }

    #[inline]
    pub fn pop(&mut self) {
        self.unfinished.pop_front();
    }
}
