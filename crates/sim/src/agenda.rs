//! The next actor: a tournament tree over the times of all actors.

use memtide_core::Time;

/// The next time of each of a fixed number of actors. Changing one, or finding the earliest, takes
/// `log2(actors)` steps. Of equal times the lower number comes first.
#[derive(Debug)]
pub(crate) struct Agenda {
    leaves: usize,
    /// `tree[1]` is the earliest time; the actors' own times are in `tree[leaves..]`.
    tree: Vec<Time>,
}

impl Agenda {
    pub fn new(actors: usize) -> Agenda {
        let leaves = actors.next_power_of_two();
        Agenda { leaves, tree: vec![Time::NEVER; 2 * leaves] }
    }

    /// The earliest time and its actor.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        let time = self.tree[1];
        let mut at = 1;
        while at < self.leaves {
            at = 2 * at + usize::from(self.tree[2 * at] != time);
        }
        (time, at - self.leaves)
    }

    #[inline]
    pub fn set(&mut self, actor: usize, time: Time) {
        let mut at = self.leaves + actor;
        let mut earliest = time;
        while self.tree[at] != earliest {
            self.tree[at] = earliest;
            if at == 1 {
                return;
            }
            earliest = earliest.min(self.tree[at ^ 1]);
            at /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_time_then_lowest_number_is_first() {
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
