//! Moves of neighbouring pages, told as one.

use std::fmt;

use memtide_core::policy::{Move, Outcome, Refusal};
use memtide_core::{PAGE_BYTES, Time, Vpn};
use serde::{Deserialize, Serialize};

/// Moves of neighbouring pages that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// That of the first page.
    pub first: Move,
    /// How many pages of its size.
    pub pages: u64,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveOutcome {
    /// The moves.
    pub run: Run,
    /// When that was known.
    pub time: Time,
    /// Why they were not made, if they were not.
    pub refused: Option<Refusal>,
}

impl Run {
    /// The first base page.
    pub fn start(&self) -> Vpn {
        self.first.page
    }

    /// How many base pages.
    pub fn base_pages(&self) -> u64 {
        self.pages * self.first.size.base_pages()
    }

    /// The base page after the last one.
    pub fn end(&self) -> Vpn {
        Vpn(self.first.page.0 + self.base_pages())
    }

    /// Whether at least half of it is to go from where to where others are: as regions are split and merged, runs shift.
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

    fn takes(&self, next: &Move) -> bool {
        *next == Move { page: self.end(), ..self.first }
    }

    fn moves(&self) -> impl Iterator<Item = Move> + use<> {
        let Run { first, pages } = *self;
        (0..pages).map(move |at| Move { page: Vpn(first.page.0 + at * first.size.base_pages()), ..first })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Move { task, page, size, from, to, reason } = self.first;
        let (pages, kib, address) = (self.pages, size.bytes() >> 10, page.0 * PAGE_BYTES);
        write!(
            f,
            "{pages} pages of {kib} KiB from {address:#x} on of process {}, from {from} to {to}: {reason}",
            task.0
        )
    }
}

impl MoveOutcome {
    /// What became of one move.
    pub fn of(outcome: &Outcome) -> MoveOutcome {
        let Outcome { time, wanted, result } = *outcome;
        MoveOutcome { run: Run { first: wanted, pages: 1 }, time, refused: result.err() }
    }

    /// Adds what became of a move, if it goes on where this ends, and tells whether it did.
    pub fn add(&mut self, outcome: &Outcome) -> bool {
        let alike = (self.time, self.refused) == (outcome.time, outcome.result.err());
        let adds = alike && self.run.takes(&outcome.wanted);
        self.run.pages += u64::from(adds);
        adds
    }

    /// What became of each move.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + use<> {
        let MoveOutcome { run, time, refused } = *self;
        run.moves().map(move |wanted| Outcome { time, wanted, result: refused.map_or(Ok(()), Err) })
    }
}

/// Moves as runs, in their order.
pub fn runs(moves: &[Move]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for wanted in moves {
        match runs.last_mut() {
            Some(last) if last.takes(wanted) => last.pages += 1,
            _ => runs.push(Run { first: *wanted, pages: 1 }),
        }
    }
    runs
}

/// What became of moves as runs, in their order.
pub fn move_outcomes<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Vec<MoveOutcome> {
    let mut runs: Vec<MoveOutcome> = Vec::new();
    for outcome in outcomes {
        if !runs.last_mut().is_some_and(|last| last.add(outcome)) {
            runs.push(MoveOutcome::of(outcome));
        }
    }
    runs
}
