//! Migration: moves pages after placement.

use super::event::Event;
use super::plan::Plan;
use super::sensor::Sensors;
use super::view::View;
use crate::units::Time;

/// Moves pages after placement. Created for a machine; independent of simulator and real host.
pub trait Migration: Send {
    /// The sensors that it needs. Called once, before the first epoch; the host answers for each.
    fn sensors(&self) -> Sensors;

    /// Handles an event and adds the resulting actions. `view` is the epoch's; for an in-kernel policy, that
    /// of its last decision, with the nodes' free memory of now.
    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan);

    /// Adds the actions for an epoch's view; returns when to be called next.
    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake;

    /// Its saved state, as text for [`resume`](Migration::resume); empty if it has none.
    fn state(&self) -> String {
        String::new()
    }

    /// Restores the state of a policy of the same name and parameters, created for the same machine. From
    /// then on both decide alike.
    ///
    /// # Errors
    /// Why the text is not such a state.
    fn resume(&mut self, state: &str) -> Result<(), String> {
        if state.is_empty() { Ok(()) } else { Err("this policy has no state".to_owned()) }
    }
}

/// When the next [`decide`](Migration::decide) is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// This long after the last one.
    After(Time),
    /// Never: it acts on events alone.
    Never,
}

/// How events are delivered to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One at a time in the fault itself; moves are made before the thread continues. For a policy in the
    /// kernel.
    InKernel,
    /// Batched and delayed, once per epoch, as to a process outside the kernel.
    Deployable,
}
