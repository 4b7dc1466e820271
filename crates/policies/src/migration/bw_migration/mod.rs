//! `bw-migration`: bmpm's BW-MIGRATION, automatic NUMA balancing that keeps the balance between tiers.

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Cancellation, Completion, Delivery, Event, HintFault, Migration, Move, Outcome, Plan, Reason, Refusal,
    Sensor, Sensors, View, Wake,
};
use memtide_core::{Machine, Time};

use super::shared::{from_text, scan_period, to_text};
use super::trigger::{FILTER, Trigger};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "bw-migration",
        summary: "automatic NUMA balancing that keeps the tiers' shares of pages",
        when: "as bw-local, where threads use other data than they touched first",
        source: "bmpm algorithm 4, section 3.5",
        figures: false,
        parameters: &[
            Parameter::integer(
                "threshold",
                "pages",
                "maximum excess of migrations in one direction between two tiers, M of algorithm 4",
                [1, 10, 1_000_000_000],
            ),
            FILTER,
            Parameter::word(
                "delivery",
                "hint faults in batches, once per scan period, or each in the fault itself as in bmpm",
                &["deployable", "in-kernel"],
            ),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(BwMigration::new(machine, values)),
};

struct BwMigration {
    trigger: Trigger,
    delivery: Delivery,
    epoch: Time,
    tiers: Vec<usize>,
    balance: Balance,
    /// Time of the last hint fault. Faults of a batch with equal times are concurrent: they read the same
    /// counts.
    faulted: Time,
}

impl BwMigration {
    fn new(machine: &Machine, values: &Values) -> BwMigration {
        let delivery = match values.word("delivery") {
            "in-kernel" => Delivery::InKernel,
            _ => Delivery::Deployable,
        };
        BwMigration {
            trigger: Trigger::new(machine, values),
            delivery,
            epoch: scan_period(machine),
            tiers: machine.node_ids().map(|node| machine.tier_of(node).index()).collect(),
            balance: Balance::new(machine.tiers(), i64::from(values.u32("threshold"))),
            faulted: Time::NEVER,
        }
    }

    fn allows(&mut self, wanted: &Move) -> bool {
        let (from, to) = (self.tiers[wanted.from.index()], self.tiers[wanted.to.index()]);
        from == to || self.balance.try_move(from, to)
    }

    fn on_fault(&mut self, fault: &HintFault, plan: &mut Plan) {
        if self.delivery == Delivery::InKernel || fault.time != self.faulted {
            self.balance.read();
            self.faulted = fault.time;
        }
        if let Some(wanted) = self.trigger.on_fault(fault)
            && self.allows(&wanted)
        {
            plan.push_move(wanted, Reason::Locality);
        }
    }

    /// Excludes moves that were not made from the balance.
    fn learn(&mut self, done: &Completion) {
        if done.outcome.is_made() {
            return;
        }
        let gone = [Outcome::Refused(Refusal::Gone), Outcome::Cancelled(Cancellation::Unmapped)]
            .contains(&done.outcome);
        if gone {
            self.trigger.forget_all(&done.planned.action);
        }
        for wanted in done.planned.action.moves() {
            let (from, to) = (self.tiers[wanted.from.index()], self.tiers[wanted.to.index()]);
            if from != to {
                self.balance.take_back(from, to);
            }
        }
    }
}

impl Migration for BwMigration {
    fn sensors(&self) -> Sensors {
        Sensors::new(self.delivery, self.epoch).require(Sensor::HintFaults)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        match event {
            Event::HintFault(fault) => self.on_fault(fault, plan),
            Event::Completion(done) => self.learn(done),
            _ => {}
        }
    }

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        self.faulted = Time::NEVER;
        match self.delivery {
            Delivery::InKernel => Wake::Never,
            Delivery::Deployable => Wake::After(self.epoch),
        }
    }

    fn state(&self) -> String {
        to_text(&(self.trigger.memory(), &self.balance.counts))
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let (memory, counts) = from_text(state)?;
        self.balance.resume(counts)?;
        self.trigger.remember(memory)
    }
}

/// For each pair of tiers, the number of migrations to the faster one minus those to the slower one.
struct Balance {
    threshold: i64,
    counts: Vec<i64>,
    /// The counts as read by concurrent faults.
    read: Vec<i64>,
}

impl Balance {
    fn new(tiers: usize, threshold: i64) -> Balance {
        let pairs = tiers * tiers.saturating_sub(1) / 2;
        Balance { threshold, counts: vec![0; pairs], read: vec![0; pairs] }
    }

    fn resume(&mut self, counts: Vec<i64>) -> Result<(), String> {
        let allowed = -self.threshold..=self.threshold;
        if counts.len() != self.counts.len() || !counts.iter().all(|count| allowed.contains(count)) {
            return Err("counts for other tiers, or beyond the threshold".to_owned());
        }
        self.counts = counts;
        Ok(())
    }

    /// Lets the faults until the next call read the current counts, concurrently.
    fn read(&mut self) {
        self.read.copy_from_slice(&self.counts);
    }

    /// Counts a migration between two tiers if it keeps the balance and no concurrent one took its place.
    fn try_move(&mut self, from: usize, to: usize) -> bool {
        let (pair, step) = step(from, to);
        let current = self.read[pair];
        let next = current + step;
        let allowed = next.abs() <= self.threshold;
        allowed && self.compare_and_set(pair, current, next)
    }

    /// Uncounts a migration. Others may have used up its place, so the threshold still limits it.
    fn take_back(&mut self, from: usize, to: usize) {
        let (pair, step) = step(from, to);
        self.counts[pair] = (self.counts[pair] - step).clamp(-self.threshold, self.threshold);
    }

    fn compare_and_set(&mut self, pair: usize, current: i64, next: i64) -> bool {
        let unchanged = self.counts[pair] == current;
        if unchanged {
            self.counts[pair] = next;
        }
        unchanged
    }
}

/// The pair of two tiers, and how a migration between them changes its count.
fn step(from: usize, to: usize) -> (usize, i64) {
    let (fast, slow) = (from.min(to), from.max(to));
    (slow * (slow - 1) / 2 + fast, if to == fast { 1 } else { -1 })
}

#[cfg(test)]
mod tests;
