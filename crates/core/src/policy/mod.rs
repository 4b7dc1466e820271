//! The interface between policies and hosts: contract 2.
//!
//! A policy is pure: its input is what was observed, its output what to do. A [`Placement`] chooses the node
//! of a page at first touch, by a [`Rule`]; a [`Migration`] requests [`Sensors`], receives a [`View`] and
//! [`Event`]s, and returns a [`Plan`] of [`Action`]s. Neither depends on whether the host is a simulator or a
//! real machine. They share the rule of a task: a migration policy sees it in the view, and changes it by its
//! plan.

mod event;
mod migration;
mod order;
mod plan;
mod regions;
mod rule;
mod sensor;
mod state;
mod view;

pub use event::{AccessSample, Event, HintFault, Message, MessageKind, PRIORITY_MAX, TaskEvent, TlbMiss};
pub use migration::{Delivery, Migration, Wake};
pub use order::NodeOrder;
pub use plan::{
    Action, Cancellation, Completion, Frame, Move, Outcome, Page, Plan, Planned, Reason, Refusal,
};
pub use regions::{Region, Regions};
pub use rule::{Group, GroupOrder, Placement, Rule, Spill, Task, Within};
pub use sensor::{
    AccessSampling, Answer, Answers, PageSampling, RegionSampling, Request, Sensor, SensorRefused, Sensors,
    TlbMissSampling,
};
pub use state::{FirstTouch, FreeMemory, RuleState};
pub use view::{
    CacheUtility, FramesView, InactivePage, LlcCounts, NodeView, TaskView, ThreadView, Traffic, View,
    Watermarks,
};

#[cfg(test)]
mod tests;
