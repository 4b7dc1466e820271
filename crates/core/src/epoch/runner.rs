//! Runs a policy on a host.
//!
//! ```text
//!            view, events                 plan                 admitted
//!  Host ───────────────────▶ Migration ────────▶ Governor ─────────────────▶ Host
//!   ▲                            ▲                  │ refused                  │
//!   │                            └──── completions ─┴──────────────────────────┘
//!   └ observe                          made, refused or cancelled: one for each action
//! ```
//!
//! Invariant: every action that a policy plans, or a user requests, has one completion. Only completions
//! count as moves, so actions in flight or cancelled never count.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Governor, Host, Limits, Watcher};
use crate::ids::{ActionId, NodeId};
use crate::policy::{Action, Completion, Event, Migration, Move, Plan, Planned, Reason, View, Wake};
use crate::units::Time;

/// A migration policy with its governor and its actions in flight.
pub struct PolicyRunner {
    policy: Box<dyn Migration>,
    governor: Governor,
    /// The last view.
    view: View,
    /// Processor time of the policy's last epoch, and of its actions.
    decision_time: Option<Time>,
    action_time: Option<Time>,
    next_id: ActionId,
    /// Completions not yet delivered to the policy.
    unseen: Vec<Completion>,
    /// Users' actions in flight.
    requested: BTreeSet<ActionId>,
    /// Completions of users' actions, not yet collected.
    answered: Vec<Completion>,
    left: BTreeMap<NodeId, Left>,
}

/// Pages that a policy left where they are because a node was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Epochs in which it left any.
    pub epochs: u64,
    /// Base pages, summed over these epochs.
    pub pages: u64,
}

impl PolicyRunner {
    /// A runner before its first epoch.
    pub fn new(policy: Box<dyn Migration>, limits: Limits) -> PolicyRunner {
        let governor = Governor::new(limits, policy.sensors().first_epoch);
        PolicyRunner {
            policy,
            governor,
            view: View::default(),
            decision_time: None,
            action_time: None,
            next_id: ActionId(0),
            unseen: Vec::new(),
            requested: BTreeSet::new(),
            answered: Vec::new(),
            left: BTreeMap::new(),
        }
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Migration {
        self.policy.as_ref()
    }

    /// Replaces the policy. The new one gets no completions of the old one's actions.
    pub fn set_policy(&mut self, policy: Box<dyn Migration>) {
        self.policy = policy;
        (self.decision_time, self.action_time) = (None, None);
        self.unseen.clear();
        self.governor.unpin_all();
    }

    /// The governor, with the record of all moves.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Pages that epochs' plans left for want of free memory, by the full node: see [`Plan::leave`].
    pub fn left(&self) -> &BTreeMap<NodeId, Left> {
        &self.left
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.governor.set_limits(limits, self.policy.sensors().first_epoch);
    }

    /// The policy's last view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Runs one epoch: delivers completions and events to the policy, oldest first, lets it decide, and
    /// begins the actions that the governor admits. Returns when the next epoch is due.
    pub fn epoch(&mut self, host: &mut dyn Host, watcher: &mut dyn Watcher) -> Wake {
        self.collect(host, watcher);
        let mut events: Vec<Event> = self.unseen.drain(..).map(Event::Completion).collect();
        self.view =
            View { decision_time: self.decision_time, action_time: self.action_time, ..View::default() };
        host.observe(&mut self.view, &mut events);
        events.sort_by_key(Event::time);
        let mut plan = Plan::new(self.next_id);
        let begun = host.processor_time();
        let wake = ask(self.policy.as_mut(), &events, &self.view, &mut plan);
        self.decision_time = time_since(begun, host);
        watcher.planned(&events, &self.view, &plan);
        self.governor.unpin_tasks_not_in(&self.view);
        self.governor.start_epoch(self.next_id);
        for (&full, pages) in plan.left() {
            let left = self.left.entry(full).or_default();
            left.epochs += 1;
            left.pages += pages;
        }
        let begun = host.processor_time();
        self.apply(host, &plan);
        self.action_time = time_since(begun, host);
        self.collect(host, watcher);
        wake
    }

    /// Delivers one event to an in-kernel policy: its actions begin at once, through the same governor.
    /// Completions of its earlier actions are delivered first. Returns whether the next epoch is due now.
    pub fn deliver(&mut self, host: &mut dyn Host, event: &Event) -> bool {
        self.collect(host, &mut ());
        host.refresh(&mut self.view);
        let mut plan = Plan::new(self.next_id);
        for done in self.unseen.drain(..) {
            self.policy.on_event(&Event::Completion(done), &self.view, &mut plan);
        }
        self.policy.on_event(event, &self.view, &mut plan);
        self.apply(host, &plan);
        plan.decides_now()
    }

    /// Begins moves requested by a user, through the same governor. Returns their ids in order; their
    /// completions are returned by [`take_answered`](PolicyRunner::take_answered), not delivered to the
    /// policy.
    pub fn request(
        &mut self,
        host: &mut dyn Host,
        watcher: &mut dyn Watcher,
        moves: &[Move],
    ) -> std::ops::Range<ActionId> {
        let mut plan = Plan::new(self.next_id);
        for wanted in moves {
            self.requested.insert(plan.push(Action::Move(*wanted), Reason::Request));
        }
        let ids = self.next_id..plan.next_id();
        self.apply(host, &plan);
        self.collect(host, watcher);
        ids
    }

    /// Takes the completions of users' requests since the last call, oldest first.
    pub fn take_answered(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.answered)
    }

    /// Collects and records the host's completions.
    pub fn collect(&mut self, host: &mut dyn Host, watcher: &mut dyn Watcher) {
        let mut done = self.governor.take_refused();
        let refused = done.len();
        host.completions(&mut done);
        done[refused..].iter().for_each(|completion| self.governor.complete(completion));
        done.sort_by_key(|completion| (completion.time, completion.planned.id));
        watcher.completed(&done);
        for completion in done {
            match self.requested.remove(&completion.planned.id) {
                true => self.answered.push(completion),
                false => self.unseen.push(completion),
            }
        }
    }

    fn apply(&mut self, host: &mut dyn Host, plan: &Plan) {
        let actions = plan.actions();
        if plan.work() > Time::ZERO {
            host.spend(plan.work());
        }
        if let Some(pages) = plan.counted() {
            host.count(pages);
        }
        self.next_id = ActionId(self.next_id.0 + actions.len() as u64);
        let time = host.now();
        self.governor.start_plan();
        let admitted: Vec<Planned> =
            actions.iter().filter(|planned| self.governor.admit(time, planned)).cloned().collect();
        host.act(&admitted);
    }
}

/// Processor time since `begun`, if it is measured.
fn time_since(begun: Option<Time>, host: &dyn Host) -> Option<Time> {
    Some(host.processor_time()?.since(begun?))
}

/// Delivers the events to a policy, oldest first, and lets it decide.
pub fn ask<E: Borrow<Event>>(
    policy: &mut dyn Migration,
    events: impl IntoIterator<Item = E>,
    view: &View,
    plan: &mut Plan,
) -> Wake {
    for event in events {
        policy.on_event(event.borrow(), view, plan);
    }
    policy.decide(view, plan)
}
