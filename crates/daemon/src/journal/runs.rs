//! Moves of consecutive pages, recorded as one run.

use std::fmt;

use memtide_core::policy::{Action, Completion, Move, Outcome, Planned, Reason};
use memtide_core::{ActionId, PAGE_BYTES, Time, Vpn};
use serde::{Deserialize, Serialize};

/// Equal moves of consecutive pages that were planned one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Id of the first; the others' ids follow.
    pub id: ActionId,
    /// The move of the first page.
    pub first: Move,
    /// The reason.
    pub reason: Reason,
    /// Number of pages of its size.
    pub pages: u64,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveOutcome {
    /// The moves.
    pub run: Run,
    /// Time of completion.
    pub time: Time,
    /// Outcome of each move.
    pub outcome: Outcome,
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanEntry {
    /// Moves.
    Moves(Run),
    /// Another action.
    Other(Planned),
}

impl Run {
    /// The move of an action, as a run of one; `None` for any other action.
    pub fn of(planned: &Planned) -> Option<Run> {
        match planned.action {
            Action::Move(first) => Some(Run { id: planned.id, first, reason: planned.reason, pages: 1 }),
            _ => None,
        }
    }

    /// The first base page.
    pub fn start(&self) -> Vpn {
        self.first.page
    }

    /// The number of base pages.
    pub fn base_pages(&self) -> u64 {
        self.pages * self.first.size.base_pages()
    }

    /// The base page after the last one.
    pub fn end(&self) -> Vpn {
        Vpn(self.first.page.0 + self.base_pages())
    }

    /// Whether at least half of it moves from and to the same nodes as other runs: runs shift as regions
    /// split and merge.
    pub fn is_much_as<'a>(&self, others: impl Iterator<Item = &'a Run>) -> bool {
        let alike = |run: &Run| (run.first.task, run.first.from, run.first.to);
        let alike = others.filter(|run| alike(run) == alike(self));
        let mut both: Vec<(u64, u64)> = alike
            .map(|run| (run.start().0.max(self.start().0), run.end().0.min(self.end().0)))
            .filter(|(start, end)| start < end)
            .collect();
        both.sort_unstable();
        let (mut pages, mut known) = (0, 0);
        for (start, end) in both {
            pages += end.saturating_sub(start.max(known));
            known = known.max(end);
        }
        2 * pages >= self.base_pages()
    }

    /// Appends a run that continues this one; returns whether it did.
    fn add(&mut self, next: &Run) -> bool {
        let id = ActionId(self.id.0 + self.pages);
        let follows = Run { id, first: Move { page: self.end(), ..self.first }, pages: next.pages, ..*self };
        let adds = follows == *next;
        self.pages += if adds { next.pages } else { 0 };
        adds
    }

    fn each(&self) -> impl Iterator<Item = Planned> + use<> {
        let Run { id, first, reason, pages } = *self;
        (0..pages).map(move |at| {
            let page = Vpn(first.page.0 + at * first.size.base_pages());
            Planned { id: ActionId(id.0 + at), action: Action::Move(Move { page, ..first }), reason }
        })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { task, page, size, from, to, .. } = self.first;
        let (pages, kib, address) = (self.pages, size.bytes() >> 10, page.0 * PAGE_BYTES);
        write!(
            f,
            "{pages} pages of {kib} KiB from {address:#x} of process {}, from {from} to {to}: {}",
            task.0, self.reason
        )
    }
}

impl fmt::Display for PlanEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanEntry::Moves(run) => run.fmt(f),
            PlanEntry::Other(Planned { action, reason, .. }) => write!(f, "{action:?}: {reason}"),
        }
    }
}

impl PlanEntry {
    /// The base pages that it moves.
    pub fn base_pages(&self) -> u64 {
        match self {
            PlanEntry::Moves(run) => run.base_pages(),
            PlanEntry::Other(planned) => {
                planned.action.moves().iter().map(|wanted| wanted.size.base_pages()).sum()
            }
        }
    }
}

impl MoveOutcome {
    /// The outcome of one move; `None` if it is not a move.
    pub fn of(completion: &Completion) -> Option<MoveOutcome> {
        let Completion { time, planned, outcome } = completion;
        Some(MoveOutcome { run: Run::of(planned)?, time: *time, outcome: *outcome })
    }

    /// Appends completions of moves that continue this run; returns whether it did.
    pub fn add(&mut self, next: &MoveOutcome) -> bool {
        (self.time, self.outcome) == (next.time, next.outcome) && self.run.add(&next.run)
    }

    /// The completion of each move.
    pub fn each(&self) -> impl Iterator<Item = Completion> + use<> {
        let MoveOutcome { run, time, outcome } = *self;
        run.each().map(move |planned| Completion { time, planned, outcome })
    }
}

/// A plan as runs, in order.
pub fn plan_entries(actions: &[Planned]) -> Vec<PlanEntry> {
    let mut entries: Vec<PlanEntry> = Vec::new();
    for planned in actions {
        let entry = Run::of(planned).map_or_else(|| PlanEntry::Other(planned.clone()), PlanEntry::Moves);
        let adds = match (entries.last_mut(), &entry) {
            (Some(PlanEntry::Moves(last)), PlanEntry::Moves(next)) => last.add(next),
            _ => false,
        };
        if !adds {
            entries.push(entry);
        }
    }
    entries
}

/// Completions of moves as runs, in order.
pub fn move_outcomes<'a>(done: impl IntoIterator<Item = &'a Completion>) -> Vec<MoveOutcome> {
    let mut runs: Vec<MoveOutcome> = Vec::new();
    for outcome in done.into_iter().filter_map(MoveOutcome::of) {
        if !runs.last_mut().is_some_and(|last| last.add(&outcome)) {
            runs.push(outcome);
        }
    }
    runs
}
