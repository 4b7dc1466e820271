//! What moves cost, measured: the processor time of an epoch's actions, beyond the copies, as far as other
//! programs want the CPUs.

use memtide_core::Time;
use serde::{Deserialize, Serialize};

/// Minimum moves of an epoch to measure their cost.
const MOVES_MIN: f64 = 100.0;

/// Weight of earlier epochs beside a new one.
const KEPT: f64 = 0.5;

/// Costs of moves, as far as they were measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Costs {
    /// Moves since the last epoch, and what their copies take in ns.
    moves: f64,
    copies_ns: f64,
    /// Whether huge pages were to be made since the last epoch: that takes time, too.
    is_mixed: bool,
    /// Processor time beyond the copies in ns, and moves. They count less with each measured epoch.
    beyond_ns: f64,
    measured: f64,
    /// Share of the CPUs' time that other processes take. Earlier epochs' count less.
    busy: f64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { moves: 0.0, copies_ns: 0.0, is_mixed: false, beyond_ns: 0.0, measured: 0.0, busy: 1.0 }
    }
}

impl Costs {
    /// Adds a move that was made, whose copy takes this long.
    pub fn add_move(&mut self, copy_ns: f64) {
        self.moves += 1.0;
        self.copies_ns += copy_ns;
    }

    /// Notes that base pages were collapsed, or refused to be.
    pub fn add_collapse(&mut self) {
        self.is_mixed = true;
    }

    /// Ends an epoch whose actions took this processor time, while other processes took this share of the
    /// CPUs' time, in 1/100 %.
    pub fn end_epoch(&mut self, took: Option<Time>, busy_bp: Option<u16>) {
        if let Some(busy_bp) = busy_bp {
            let busy = (f64::from(busy_bp) / 10_000.0).min(1.0);
            self.busy = self.busy * KEPT + busy * (1.0 - KEPT);
        }
        if let Some(took) = took.filter(|_| self.moves >= MOVES_MIN && !self.is_mixed) {
            self.beyond_ns = self.beyond_ns * KEPT + (took.as_ns() - self.copies_ns).max(0.0);
            self.measured = self.measured * KEPT + self.moves;
        }
        (self.moves, self.copies_ns, self.is_mixed) = (0.0, 0.0, false);
    }

    /// What the move of a page takes from other programs beyond its copy, at least as long as the machine's
    /// kernel says, in ns: on idle CPUs, moves cost no more than that.
    pub fn move_ns(&self, kernel_ns: f64) -> f64 {
        if self.measured > 0.0 {
            kernel_ns.max(self.busy * self.beyond_ns / self.measured)
        } else {
            kernel_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_that_of_the_last_epochs_with_many_moves() {
        let mut costs = Costs::default();
        let mut epoch = |moves: u32, took_us: u64| {
            (0..moves).for_each(|_| costs.add_move(1000.0));
            costs.end_epoch(Some(Time::from_us(took_us)), None);
            costs.move_ns(800.0)
        };
        assert_eq!(epoch(0, 5), 800.0);
        assert_eq!(epoch(99, 1_000_000), 800.0, "too few");
        assert_eq!(epoch(1000, 8000), 7000.0);
        assert_eq!(epoch(1000, 8000), 7000.0);
        assert_eq!(epoch(3000, 6000), (7000.0 * 750.0 + 1000.0 * 3000.0) / 3750.0);
        (0..20).for_each(|_| _ = epoch(1000, 900));
        assert_eq!(epoch(1000, 900), 800.0, "the kernel's costs at least");
        costs.end_epoch(None, None);
        (0..1000).for_each(|_| costs.add_move(1000.0));
        costs.add_collapse();
        costs.end_epoch(Some(Time::from_us(1_000_000)), None);
        assert_eq!(costs.move_ns(800.0), 800.0, "collapses took a part of it");
        assert_eq!(Costs::default().move_ns(5.0), 5.0);
    }

    #[test]
    fn idle_cpus_move_pages_at_the_kernels_cost() {
        let mut costs = Costs::default();
        let mut epoch = |busy_bp| {
            (0..1000).for_each(|_| costs.add_move(1000.0));
            costs.end_epoch(Some(Time::from_us(9000)), busy_bp);
            costs.move_ns(800.0)
        };
        assert_eq!(epoch(None), 8000.0, "busy as long as nothing is known");
        assert_eq!(epoch(Some(10_000)), 8000.0);
        assert_eq!(epoch(Some(0)), 4000.0);
        assert_eq!(epoch(None), 4000.0, "as last known");
        (0..10).for_each(|_| _ = epoch(Some(0)));
        assert_eq!(epoch(Some(0)), 800.0);
        (0..10).for_each(|_| _ = epoch(Some(u16::MAX)));
        assert!((epoch(Some(10_000)) / 8000.0 - 1.0).abs() < 0.01);
    }
}
