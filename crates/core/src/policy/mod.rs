//! What policies are asked and what they answer.
//!
//! A policy is pure: it gets what was observed and returns what to do. A [`Placement`] chooses the node of a page at
//! first touch, by a [`Rule`]; a [`Migration`] moves pages later, by a [`Plan`]. Neither knows whether a simulator or a
//! real host asks.

mod migration;
mod observation;
mod order;
mod rule;
mod state;

pub use migration::{
    Delivery, Event, HintFault, Migration, Move, Needs, Outcome, Plan, Reason, Refusal, RegionNeeds,
};
pub use observation::{NodeUse, Observation, Region, Traffic};
pub use order::NodeOrder;
pub use rule::{Group, GroupOrder, Placement, Rule, Spill, Task, Within};
pub use state::{FirstTouch, FreeMemory, RuleState};

#[cfg(test)]
mod tests;
