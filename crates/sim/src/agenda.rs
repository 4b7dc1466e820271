//! Who acts next: a tournament over the times of all that can act.

use memtide_core::Time;

/// The next time of each of a fixed number of actors; finds the earliest in one step and takes a changed time in
/// `log2(actors)` steps. Of equal times the lower number comes first.
#[derive(Debug)]
pub(crate) struct Agenda {
    leaves: usize,
    /// `tree[1]` is the winner of all; the leaves are in `tree[leaves..]`.
    tree: Vec<(Time, u32)>,
}

impl Agenda {
    pub fn new(actors: usize) -> Agenda {
        let leaves = actors.next_power_of_two();
        let mut tree = vec![(Time::NEVER, u32::MAX); 2 * leaves];
        for (number, leaf) in tree[leaves..].iter_mut().enumerate() {
            leaf.1 = number as u32;
        }
        let mut agenda = Agenda { leaves, tree };
        for at in (1..leaves).rev() {
            agenda.tree[at] = agenda.tree[2 * at].min(agenda.tree[2 * at + 1]);
        }
        agenda
    }

    /// The earliest time and whose it is.
    pub fn first(&self) -> (Time, usize) {
        let (time, actor) = self.tree[1];
        (time, actor as usize)
    }

    pub fn set(&mut self, actor: usize, time: Time) {
        let mut at = self.leaves + actor;
        if self.tree[at].0 == time {
            return;
        }
        self.tree[at].0 = time;
        while at > 1 {
            at /= 2;
            let winner = self.tree[2 * at].min(self.tree[2 * at + 1]);
            if self.tree[at] == winner {
                return;
            }
            self.tree[at] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_and_then_the_lowest_number_comes_first() {
        let mut agenda = Agenda::new(5);
        assert_eq!(agenda.first(), (Time::NEVER, 0));
        for (actor, time) in [(3, 7), (1, 9), (4, 7)] {
            agenda.set(actor, Time(time));
        }
        assert_eq!(agenda.first(), (Time(7), 3));
        agenda.set(3, Time::NEVER);
        assert_eq!(agenda.first(), (Time(7), 4));
        agenda.set(4, Time(10));
        assert_eq!(agenda.first(), (Time(9), 1));
    }
}
