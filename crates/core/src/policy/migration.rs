//! Migration: moves pages after they were placed.

use super::event::Event;
use super::plan::Plan;
use super::sensor::Sensors;
use super::view::View;
use crate::units::Time;

/// Moves pages after they were placed. It gets the machine when it is made, and knows neither simulator nor
/// real host.
pub trait Migration: Send {
    /// What it needs to observe. Asked once, before the first epoch; the host answers for each sensor.
    fn sensors(&self) -> Sensors;

    /// Takes in an event and adds the actions that it calls for. `view` is that of the epoch; of a policy in
    /// the kernel, that of its last decision.
    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan);

    /// Adds the actions that an epoch's view calls for, and says when to be asked again.
    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake;

    /// What it remembers, as text for [`resume`](Migration::resume); empty if it remembers nothing.
    fn state(&self) -> String {
        String::new()
    }

    /// Takes up what one of the same name and parameters, made for the same machine, remembered. From then on
    /// both decide alike.
    ///
    /// # Errors
    /// Why the text is no such state.
    fn resume(&mut self, state: &str) -> Result<(), String> {
        if state.is_empty() { Ok(()) } else { Err("this policy has no state".to_owned()) }
    }
}

/// When a policy's next [`decide`](Migration::decide) is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// This long after the last one.
    After(Time),
    /// Never: it acts on events alone.
    Never,
}

/// When events reach a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One at a time in the fault itself, and its moves are made before the thread goes on: for a policy that
    /// is part of the kernel.
    InKernel,
    /// Batched and late, once an epoch, as a process outside the kernel gets them.
    Deployable,
}
