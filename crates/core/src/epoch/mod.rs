//! The epoch loop: observe, decide, admit, act, complete, record. A host observes and acts; the
//! [`PolicyRunner`] does the rest, and everything that moves a page passes its [`Governor`].

mod cooldown;
mod governor;
mod runner;

pub use governor::{Governor, Limits, Record};
pub use runner::{Left, PolicyRunner, ask};

use crate::policy::{Completion, Event, Page, Plan, Planned, View};
use crate::units::Time;

/// What the loop runs on: a simulated or a real machine.
///
/// Created for a policy's sensors; stamps each view with its [`Answers`](crate::policy::Answers).
pub trait Host {
    /// The current time.
    fn now(&self) -> Time;

    /// Processor time of this thread until now, if the host measures it: see
    /// [`View::decision_time`](crate::policy::View::decision_time).
    fn processor_time(&self) -> Option<Time> {
        None
    }

    /// Fills the empty view, and appends the events since the last call, oldest first. Completions are not
    /// among them.
    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>);

    /// Updates the nodes' free memory in a view, for an in-kernel policy. Others have the epoch's.
    fn refresh(&mut self, _: &mut View) {}

    /// Begins admitted actions, in order. Each has exactly one completion, now or later, returned by
    /// [`completions`](Host::completions).
    fn act(&mut self, actions: &[Planned]);

    /// Spends CPU time of a policy that has decided, before its actions begin: see
    /// [`Plan::spend`](crate::policy::Plan::spend). A real machine has spent it already.
    fn spend(&mut self, _: Time) {}

    /// Counts the TLB misses of these pages alone from now on: see
    /// [`Plan::count`](crate::policy::Plan::count). For hosts that have this sensor.
    fn count(&mut self, _: &[Page]) {}

    /// Appends the completions since the last call, oldest first.
    fn completions(&mut self, done: &mut Vec<Completion>);
}

/// Observes the epoch loop, for logs and journals.
pub trait Watcher {
    /// The policy's input and plan in an epoch.
    fn planned(&mut self, events: &[Event], view: &View, plan: &Plan);

    /// Completions, including those of users' requests.
    fn completed(&mut self, done: &[Completion]);
}

/// No watcher.
impl Watcher for () {
    fn planned(&mut self, _: &[Event], _: &View, _: &Plan) {}

    fn completed(&mut self, _: &[Completion]) {}
}

#[cfg(test)]
mod tests;
