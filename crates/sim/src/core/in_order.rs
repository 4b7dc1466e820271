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

    /// Adds one, in the order of numbers. Of neighbours with the same end, the first counts.
    #[inline]
    pub fn push(&mut self, number: u64, end: End) {
        match self.unfinished.back() {
            Some(&(last, _)) if last > number => self.insert(number, end),
            Some(&(_, last)) if last == end => {}
            _ => self.unfinished.push_back((number, end)),
        }
    }

    fn insert(&mut self, number: u64, end: End) {
        let later = self.unfinished.iter().rev().take_while(|&&(other, _)| other > number).count();
        let at = self.unfinished.len() - later;
        if at == 0 || self.unfinished[at - 1].1 != end {
            self.unfinished.insert(at, (number, end));
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
