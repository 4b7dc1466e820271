//! The epoch loop: observe, decide, admit, act, record. Simulator and host supply the first and the fourth.

mod cooldown;
mod governor;

pub use governor::{Governor, Limits, Record};

use crate::policy::{Event, Migration, Move, Needs, Observation, Outcome, Plan, Refusal};
use crate::units::Time;

/// What the loop runs on: a simulated machine or a real one.
pub trait Host {
    /// The time now.
    fn now(&self) -> Time;

    /// Adds what happened since the last call to `events`, oldest first, and the regions seen to `seen`, both as far
    /// as `needs` asks for them.
    fn observe(&mut self, needs: &Needs, events: &mut Vec<Event>, seen: &mut Observation);

    /// Makes moves, and tells of each why it could not be made; such a page lies where it lay.
    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>>;
}

/// Is told what happens, to keep or to show it.
pub trait Watcher {
    /// What the policy was given in an epoch, and what it planned.
    fn planned(&mut self, now: Time, events: &[Event], seen: &Observation, plan: &Plan);

    /// What became of a plan.
    fn happened(&mut self, outcomes: &[Outcome]);
}

/// Nobody.
impl Watcher for () {
    fn planned(&mut self, _: Time, _: &[Event], _: &Observation, _: &Plan) {}

    fn happened(&mut self, _: &[Outcome]) {}
}

/// One epoch: the policy gets the outcomes of its last plan, what happened since, and what was seen; what it plans is
/// made as far as the governor admits it.
pub fn step(
    host: &mut impl Host,
    policy: &mut dyn Migration,
    governor: &mut Governor,
    watcher: &mut impl Watcher,
) {
    let mut events: Vec<Event> = governor.take_outcomes().into_iter().map(Event::Outcome).collect();
    let mut seen = Observation::default();
    host.observe(&policy.needs(), &mut events, &mut seen);
    let plan = ask(policy, &events, &seen);
    watcher.planned(host.now(), &events, &seen, &plan);
    governor.start_epoch();
    apply(host, &plan, governor);
    watcher.happened(governor.outcomes());
}

/// What a policy plans once it was given what happened, oldest first, and what was seen. Events with the same time reach it in one
/// slice, as concurrent ones.
pub fn ask(policy: &mut dyn Migration, events: &[Event], seen: &Observation) -> Plan {
    let mut plan = Plan::default();
    for slice in events.chunk_by(|a, b| a.time() == b.time()) {
        policy.on_events(slice, &mut plan);
    }
    policy.decide(seen, &mut plan);
    plan
}

/// In-kernel delivery of one event: what the policy wants is made at once, through the same governor. The outcomes of
/// what it wanted before come with it.
pub fn deliver(host: &mut impl Host, policy: &mut dyn Migration, governor: &mut Governor, event: Event) {
    let mut plan = Plan::default();
    for outcome in governor.take_outcomes() {
        policy.on_events(&[Event::Outcome(outcome)], &mut plan);
    }
    policy.on_events(&[event], &mut plan);
    apply(host, &plan, governor);
}

fn apply(host: &mut impl Host, plan: &Plan, governor: &mut Governor) {
    governor.start_plan();
    let time = host.now();
    let verdicts: Vec<_> = plan.moves.iter().map(|wanted| governor.admit(time, wanted)).collect();
    let admitted = plan.moves.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_ok());
    let admitted: Vec<Move> = admitted.map(|(wanted, _)| *wanted).collect();
    let mut results = host.act(&admitted).into_iter();
    let time = host.now();
    for (wanted, verdict) in plan.moves.iter().zip(verdicts) {
        let result = verdict.and_then(|()| match results.next().expect("a result for each move") {
            Err(why) => {
                governor.take_back(wanted);
                Err(why)
            }
            made => made,
        });
        governor.record(Outcome { time, wanted: *wanted, result });
    }
}

#[cfg(test)]
mod tests;
