//! What a journal is made of.

use memtide_core::policy::{Event, HintFault, Move, NodeUse, Observation, Plan, Region};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use serde::{Deserialize, Serialize};

use super::faults::{Faults, faults};
use super::runs::{MoveOutcome, Run, move_outcomes, runs};

/// The format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// Moves of an epoch at most: 16 GiB of base pages.
pub const MOVES_MAX: u64 = 1 << 22;

/// Base pages that can be numbered, and more than a machine has.
const PAGES_MAX: u64 = 1 << 52;

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A part begins.
    Head(Head),
    /// An epoch.
    Epoch(Epoch),
}

/// All that is needed to make the policy as it was when a part began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of memtide that wrote it.
    pub memtide: String,
    /// When, in seconds since 1970.
    pub begun_unix_s: u64,
    /// The migration policy with its parameters.
    pub policy: String,
    /// The machine file of the machine that it reckons with.
    pub machine: String,
    /// What the policy remembered.
    pub state: String,
}

/// What a policy was given in an epoch, and what it planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Since the daemon began.
    pub time: Time,
    /// What became of earlier plans.
    pub outcomes: Vec<MoveOutcome>,
    /// How full the nodes were.
    pub nodes_use: Vec<NodeUse>,
    /// What was seen: task, first base page, pages, their size, node, reads, writes, age.
    pub regions: Vec<Seen>,
    /// Hint faults, each later than what became of earlier plans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Faults>,
    /// What was planned.
    pub plan: Vec<Run>,
}

/// A [`Region`] in the order of its fields.
type Seen = (TaskId, Vpn, u64, PageSize, NodeId, u32, u32, u32);

impl Head {
    /// The head of a part that begins now.
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
    /// What a watcher is told.
    pub fn new(time: Time, events: &[Event], seen: &Observation, plan: &Plan) -> Epoch {
        let outcomes = events.iter().filter_map(|event| match event {
            Event::Outcome(outcome) => Some(outcome),
            Event::HintFault(_) => None,
        });
        let hint_faults = events.iter().filter_map(|event| match event {
            Event::HintFault(fault) => Some(fault),
            Event::Outcome(_) => None,
        });
        let region = |Region { task, start, pages, size, node, reads, writes, age }| {
            (task, start, pages, size, node, reads, writes, age)
        };
        Epoch {
            time,
            outcomes: move_outcomes(outcomes),
            nodes_use: seen.nodes_use.clone(),
            regions: seen.iter().map(region).collect(),
            faults: faults(hint_faults),
            plan: runs(&plan.moves),
        }
    }

    /// The events that the policy got.
    pub fn events(&self) -> Vec<Event> {
        let outcomes = self.outcomes.iter().flat_map(MoveOutcome::outcomes).map(Event::Outcome);
        let faults = self.faults.iter().flat_map(Faults::each).map(Event::HintFault);
        outcomes.chain(faults).collect()
    }

    /// What the policy saw. To be called of an epoch that was checked.
    pub fn seen(&self) -> Observation {
        let mut seen = Observation::default();
        seen.nodes_use.clone_from(&self.nodes_use);
        for &(task, start, pages, size, node, reads, writes, age) in &self.regions {
            seen.push(Region { task, start, pages, size, node, reads, writes, age });
        }
        seen
    }

    /// Whether it can have taken place on a machine of so many nodes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, nodes: usize) -> Result<(), String> {
        let outcomes = self.outcomes.iter().map(|outcome| &outcome.run);
        check_runs("outcomes", outcomes, nodes)?;
        check_runs("plan", &self.plan, nodes)?;
        check_faults(&self.faults, nodes)?;
        for used in &self.nodes_use {
            if used.node.index() >= nodes || used.pages > PAGES_MAX || used.free_pages > used.pages {
                return Err(format!("nodes_use: {used:?} on a machine with {nodes} nodes"));
            }
        }
        let mut last = (TaskId(0), 0);
        for region in &self.regions {
            let &(task, start, pages, size, node, ..) = region;
            let end = end(start, pages, size).filter(|_| pages > 0 && node.index() < nodes);
            let Some(end) = end.filter(|_| last <= (task, start.0)) else {
                return Err(format!("regions: {region:?} on a machine with {nodes} nodes, after {last:?}"));
            };
            last = (task, end);
        }
        Ok(())
    }
}

/// The base page after so many pages, if there are as many.
fn end(start: Vpn, pages: u64, size: PageSize) -> Option<u64> {
    pages.checked_mul(size.base_pages())?.checked_add(start.0).filter(|&end| end <= PAGES_MAX)
}

fn check_faults(faults: &[Faults], nodes: usize) -> Result<(), String> {
    let mut all = 0u64;
    for run in faults {
        let HintFault { page, size, node, time, .. } = run.first;
        let lasts = run.step.0.checked_mul(run.pages).and_then(|all| all.checked_add(time.0));
        if node.index() >= nodes || run.pages == 0 || end(page, run.pages, size).is_none() || lasts.is_none()
        {
            return Err(format!("faults: {run:?} on a machine with {nodes} nodes"));
        }
        all += run.pages;
        if all > MOVES_MAX {
            return Err(format!("faults: more than {MOVES_MAX} in an epoch"));
        }
    }
    Ok(())
}

fn check_runs<'a>(what: &str, runs: impl IntoIterator<Item = &'a Run>, nodes: usize) -> Result<(), String> {
    let mut moves = 0u64;
    for run in runs {
        let Move { page, size, from, to, .. } = run.first;
        let there = from.index() < nodes && to.index() < nodes && run.pages > 0;
        if !there || end(page, run.pages, size).is_none() {
            return Err(format!("{what}: {run:?} on a machine with {nodes} nodes"));
        }
        moves += run.pages;
        if moves > MOVES_MAX {
            return Err(format!("{what}: more than {MOVES_MAX} moves in an epoch"));
        }
    }
    Ok(())
}
