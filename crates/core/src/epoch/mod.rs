//! The epoch loop: observe, decide, admit, act, complete, record. A host supplies observing and acting; the
//! [`PolicyRunner`] does the rest, and everything that moves a page goes through its [`Governor`].

mod cooldown;
mod governor;
mod runner;

pub use governor::{Governor, Limits, Record};
pub use runner::{PolicyRunner, ask};

use crate::policy::{Completion, Event, Plan, Planned, View};
use crate::units::Time;

/// What the loop runs on: a simulated machine or a real one.
///
/// It is made for the sensors that a policy asks for, and stamps each view with its
/// [`Answers`](crate::policy::Answers).
pub trait Host {
    /// The time now.
    fn now(&self) -> Time;

    /// Fills the view, which is empty, and adds the events since the last call, oldest first. Completions are
    /// no part of them.
    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>);

    /// Begins actions that were admitted, in order. Each has exactly one completion, which
    /// [`completions`](Host::completions) gives, at once or later.
    fn act(&mut self, actions: &[Planned]);

    /// Adds the completions since the last call, oldest first.
    fn completions(&mut self, done: &mut Vec<Completion>);
}

/// Keeps or shows what happens.
pub trait Watcher {
    /// What the policy got in an epoch, and what it planned.
    fn planned(&mut self, events: &[Event], view: &View, plan: &Plan);

    /// What became of actions, a user's requests among them.
    fn completed(&mut self, done: &[Completion]);
}

/// Nobody watches.
impl Watcher for () {
    fn planned(&mut self, _: &[Event], _: &View, _: &Plan) {}

    fn completed(&mut self, _: &[Completion]) {}
}

#[cfg(test)]
mod tests;
