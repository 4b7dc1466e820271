//! The last moves, by epoch, process, nodes, reason and outcome.

use std::collections::VecDeque;

use memtide_core::policy::{Completion, Move, Outcome, Reason, Refusal, TaskView};
use memtide_core::{NodeId, TaskId, Time};

/// Maximum number of remembered entries.
const ENTRIES_MAX: usize = 64;

/// Maximum characters of a name: Linux has 15, a journal may have more.
const NAME_MAX: usize = 64;

/// Moves of an epoch that have all this in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moves {
    epoch: u64,
    /// Time of the last one.
    pub time: Time,
    /// Whose pages they are.
    pub task: TaskId,
    /// Its user, if known.
    pub owner: Option<u32>,
    /// Its program's name.
    pub name: String,
    /// Source node.
    pub from: NodeId,
    /// Target node.
    pub to: NodeId,
    /// The reason.
    pub reason: Reason,
    /// Whether they were made, without the frames.
    pub outcome: Outcome,
    /// Base pages.
    pub pages: u64,
}

/// The last moves, oldest first.
#[derive(Debug, Default)]
pub struct Recent {
    epoch: u64,
    all: VecDeque<Moves>,
}

impl Recent {
    /// Ends an epoch.
    pub fn end_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Adds a move's completion; `view` is of its task. Pages that are there already are no moves.
    pub fn add(&mut self, completion: &Completion, wanted: &Move, view: Option<&TaskView>) {
        let outcome = match completion.outcome {
            Outcome::Made(_) => Outcome::MADE,
            Outcome::Refused(Refusal::AlreadyThere) => return,
            other => other,
        };
        let &Move { task, from, to, size, .. } = wanted;
        let (epoch, reason) = (self.epoch, completion.planned.reason);
        let is_alike = |moves: &&mut Moves| {
            (moves.task, moves.from, moves.to, moves.reason, moves.outcome)
                == (task, from, to, reason, outcome)
        };
        let of_epoch = self.all.iter_mut().rev().take_while(|moves| moves.epoch == epoch);
        if let Some(moves) = of_epoch.into_iter().find(is_alike) {
            moves.pages = moves.pages.saturating_add(size.base_pages());
            moves.time = completion.time;
            return;
        }
        if self.all.len() == ENTRIES_MAX {
            self.all.pop_front();
        }
        let name = view.map(|task| task.name.chars().take(NAME_MAX).collect()).unwrap_or_default();
        let (time, owner, pages) = (completion.time, view.and_then(|task| task.owner), size.base_pages());
        self.all.push_back(Moves { epoch, time, task, owner, name, from, to, reason, outcome, pages });
    }

    /// The last moves, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Moves> {
        self.all.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::{Action, Frame, Planned};
    use memtide_core::{ActionId, PageSize, Vpn};

    use super::*;

    #[test]
    fn moves_of_an_epoch_are_counted_by_reason_and_outcome() {
        let mut recent = Recent::default();
        let add = |recent: &mut Recent, page: u64, size, outcome| {
            let (task, page, wish) = (TaskId(7), Vpn(page), Frame::ANY);
            let wanted = Move { task, page, size, from: NodeId(1), to: NodeId(0), wish };
            let planned = Planned { id: ActionId(0), action: Action::Move(wanted), reason: Reason::Hot };
            let completion = Completion { time: Time::from_ms(page.0), planned, outcome };
            recent.add(&completion, &wanted, None);
        };
        add(&mut recent, 1, PageSize::Base, Outcome::MADE);
        add(&mut recent, 2, PageSize::Base, Outcome::Refused(Refusal::Cooling));
        add(&mut recent, 512, PageSize::Huge, Outcome::MADE);
        add(&mut recent, 3, PageSize::Base, Outcome::Refused(Refusal::AlreadyThere));
        recent.end_epoch();
        add(&mut recent, 4, PageSize::Base, Outcome::MADE);
        let told: Vec<(Outcome, u64, Time)> =
            recent.newest_first().map(|moves| (moves.outcome, moves.pages, moves.time)).collect();
        let expected = [
            (Outcome::MADE, 1, Time::from_ms(4)),
            (Outcome::Refused(Refusal::Cooling), 1, Time::from_ms(2)),
            (Outcome::MADE, 513, Time::from_ms(512)),
        ];
        assert_eq!(told, expected);
        for page in 0..2 * ENTRIES_MAX as u64 {
            recent.end_epoch();
            add(&mut recent, page, PageSize::Base, Outcome::MADE);
        }
        assert_eq!(recent.newest_first().count(), ENTRIES_MAX);
    }
}
