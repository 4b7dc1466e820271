//! The journal's records.

use std::iter;

use memtide_core::policy::{Event, HintFault, Message, MessageKind, Move, Plan, Planned, View};
use memtide_core::{ActionId, PageSize, Vpn};
use serde::{Deserialize, Serialize};

use super::faults::Faults;
use super::runs::{MoveOutcome, PlanEntry, Run, plan_entries};

/// Format version: the one written, and the only one read.
pub const FORMAT: u32 = 2;

/// Maximum moves per epoch: 4 GiB of base pages.
pub const MOVES_MAX: u64 = 1 << 20;

/// Maximum action id: 292 years at a billion actions a second.
const ACTIONS_MAX: u64 = u64::MAX >> 1;

/// Number of addressable base pages, more than any machine has.
const PAGES_MAX: u64 = 1 << 52;

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Start of a part.
    Head(Head),
    /// An epoch.
    Epoch(Box<Epoch>),
}

/// Everything needed to restore the policy as it was when a part began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The journal format's version.
    pub format: u32,
    /// memtide version that wrote it.
    pub memtide: String,
    /// Time in seconds since 1970.
    pub begun_unix_s: u64,
    /// The migration policy with its parameters.
    pub policy: String,
    /// The machine file used by the policy.
    pub machine: String,
    /// The policy's saved state.
    pub state: String,
}

/// A policy's input and plan in an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Its view; the time is since the daemon's start.
    pub view: View,
    /// Its events, in the order of delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventEntry>,
    /// The id of the plan's first action.
    pub first_action: ActionId,
    /// The plan.
    pub plan: Vec<PlanEntry>,
}

/// Events of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventEntry {
    /// Completions of moves.
    Moves(MoveOutcome),
    /// NUMA hint faults.
    HintFaults(Faults),
    /// Any other event.
    Other(Event),
}

impl Head {
    /// The head of a part that starts now.
    pub fn new(policy: &str, machine: String, state: String) -> Head {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Head {
            format: FORMAT,
            memtide: env!("CARGO_PKG_VERSION").to_owned(),
            begun_unix_s: now.as_secs(),
            policy: policy.to_owned(),
            machine,
            state,
        }
    }
}

impl Epoch {
    /// Records an epoch from its events, view and plan.
    pub fn new(events: &[Event], view: &View, plan: &Plan) -> Epoch {
        let first_action = plan.actions().first().map_or(plan.next_id(), |planned| planned.id);
        Epoch {
            view: view.clone(),
            events: event_entries(events),
            first_action,
            plan: plan_entries(plan.actions()),
        }
    }

    /// The policy's events. Runs expand to millions of them, so they are never all in memory.
    pub fn each_event(&self) -> impl Iterator<Item = Event> + '_ {
        let each = |entry: &EventEntry| -> Box<dyn Iterator<Item = Event>> {
            match entry {
                EventEntry::Moves(run) => Box::new(run.each().map(Event::Completion)),
                EventEntry::HintFaults(run) => Box::new(run.each().map(Event::HintFault)),
                EventEntry::Other(event) => Box::new(iter::once(event.clone())),
            }
        };
        self.events.iter().flat_map(each)
    }

    /// Checks that it is possible on a machine with this many nodes. Returns the number of pages in its runs
    /// of events and moves.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, nodes: usize) -> Result<u64, String> {
        self.view.check(nodes)?;
        check_sizes(&self.view)?;
        if self.first_action.0 > ACTIONS_MAX {
            return Err(format!("action {} is beyond the last one, {ACTIONS_MAX}", self.first_action.0));
        }
        let mut left = MOVES_MAX;
        for entry in &self.events {
            match entry {
                EventEntry::Moves(outcome) => check_run("events", &outcome.run, nodes, &mut left)?,
                EventEntry::HintFaults(run) => check_faults(run, nodes, &mut left)?,
                EventEntry::Other(event) => check_event(event, nodes)?,
            }
        }
        let events = MOVES_MAX - left;
        let mut left = MOVES_MAX;
        for entry in &self.plan {
            match entry {
                PlanEntry::Moves(run) => check_run("plan", run, nodes, &mut left)?,
                PlanEntry::Other(planned) => check_planned("plan", planned, nodes)?,
            }
        }
        Ok(events + MOVES_MAX - left)
    }
}

/// Events as runs, in order.
fn event_entries(events: &[Event]) -> Vec<EventEntry> {
    let mut entries: Vec<EventEntry> = Vec::new();
    for event in events {
        let entry = match event {
            Event::HintFault(fault) => EventEntry::HintFaults(Faults::of(fault)),
            Event::Completion(done) => match MoveOutcome::of(done) {
                Some(outcome) => EventEntry::Moves(outcome),
                None => EventEntry::Other(event.clone()),
            },
            _ => EventEntry::Other(event.clone()),
        };
        let adds = match (entries.last_mut(), &entry) {
            (Some(EventEntry::Moves(last)), EventEntry::Moves(next)) => last.add(next),
            (Some(EventEntry::HintFaults(last)), EventEntry::HintFaults(next)) => last.add(&next.first),
            _ => false,
        };
        if !adds {
            entries.push(entry);
        }
    }
    entries
}

/// The base page after this many pages; `None` if it is not addressable.
fn end(start: Vpn, pages: u64, size: PageSize) -> Option<u64> {
    pages.checked_mul(size.base_pages())?.checked_add(start.0).filter(|&end| end <= PAGES_MAX)
}

/// Takes moves or faults from an epoch's allowance.
fn take(what: &str, pages: u64, left: &mut u64) -> Result<(), String> {
    *left = left.checked_sub(pages).ok_or_else(|| format!("{what}: more than {MOVES_MAX} in an epoch"))?;
    Ok(())
}

/// Refuses page counts that no machine has, which could overflow a policy's arithmetic.
fn check_sizes(view: &View) -> Result<(), String> {
    if let Some(node) = view.nodes.iter().find(|node| node.pages > PAGES_MAX) {
        return Err(format!("nodes: {node:?} has more than {PAGES_MAX} pages"));
    }
    let is_large = |pages: &u64| *pages > PAGES_MAX;
    match view.tasks.iter().find(|task| is_large(&task.resident_pages) || task.footprint.iter().any(is_large))
    {
        Some(task) => Err(format!("tasks: {task:?} has more than {PAGES_MAX} pages")),
        None => Ok(()),
    }
}

fn check_faults(run: &Faults, nodes: usize, left: &mut u64) -> Result<(), String> {
    let HintFault { page, size, node, time, .. } = run.first;
    let lasts = run.step.0.checked_mul(run.pages).and_then(|all| all.checked_add(time.0));
    if node.index() >= nodes || run.pages == 0 || end(page, run.pages, size).is_none() || lasts.is_none() {
        return Err(format!("faults: {run:?} on a machine with {nodes} nodes"));
    }
    take("faults", run.pages, left)
}

fn check_run(what: &str, run: &Run, nodes: usize, left: &mut u64) -> Result<(), String> {
    let is_sound = is_sound(&run.first, run.pages, nodes) && run.id.0.checked_add(run.pages).is_some();
    if !is_sound || run.pages == 0 {
        return Err(format!("{what}: {run:?} on a machine with {nodes} nodes"));
    }
    take(what, run.pages, left)
}

fn check_planned(what: &str, planned: &Planned, nodes: usize) -> Result<(), String> {
    match planned.action.moves().iter().all(|wanted| is_sound(wanted, 1, nodes)) {
        true => Ok(()),
        false => Err(format!("{what}: {planned:?} on a machine with {nodes} nodes")),
    }
}

fn check_event(event: &Event, nodes: usize) -> Result<(), String> {
    let is_sound = match event {
        Event::AccessSample(sample) => sample.node.index() < nodes && sample.page.0 < PAGES_MAX,
        Event::Message(Message { kind: MessageKind::Send { start, pages }, .. }) => {
            end(*start, *pages, PageSize::Base).is_some()
        }
        Event::Message(_) => true,
        Event::Completion(done) => return check_planned("events", &done.planned, nodes),
        Event::HintFault(fault) => fault.node.index() < nodes && end(fault.page, 1, fault.size).is_some(),
        Event::TlbMiss(miss) => miss.node.index() < nodes && end(miss.page, 1, miss.size).is_some(),
        Event::Task(_) => true,
    };
    if is_sound { Ok(()) } else { Err(format!("events: {event:?} on a machine with {nodes} nodes")) }
}

fn is_sound(wanted: &Move, pages: u64, nodes: usize) -> bool {
    let Move { page, size, from, to, .. } = *wanted;
    from.index() < nodes && to.index() < nodes && end(page, pages, size).is_some()
}
