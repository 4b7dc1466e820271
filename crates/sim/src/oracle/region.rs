//! A run's way through its region of interest: on ideal memory, windows are recorded; on real memory, a
//! plan's moves begin as soon as the programs have retired as many instructions as before the window.

use memtide_core::policy::{Action, Planned, Reason};
use memtide_core::{ActionId, Time};

use super::windows::Windows;
use crate::engine::{Engine, Timer};

/// Time between two looks for moves that are due.
const LOOK: Time = Time::from_us(20);

/// Instructions of all programs in the region of interest.
#[derive(Default)]
pub(crate) struct RegionWork {
    /// Those of its parts that have ended.
    before: u64,
    /// Instructions of the run when the part under way began; `None` outside of the region.
    since: Option<u64>,
    pub(super) windows: Windows,
}

impl Engine<'_> {
    fn instructions(&self) -> u64 {
        self.threads.iter().map(|thread| thread.counts.instructions).sum()
    }

    /// Instructions that the programs have retired in the region.
    fn region_instructions(&self) -> u64 {
        let part = self.region.since.map_or(0, |since| self.instructions() - since);
        self.region.before + part
    }

    pub(crate) fn enter_region(&mut self) {
        self.region.since = Some(self.instructions());
        if self.setup.is_ideal {
            self.forget_reads();
            self.begin_window(self.region.before);
        } else {
            self.await_moves();
        }
    }

    pub(crate) fn leave_region(&mut self) {
        self.end_window();
        self.region.before = self.region_instructions();
        self.region.since = None;
        self.set_timer(Timer::Oracle, Time::NEVER);
    }

    /// Handles the oracle's timer.
    pub(crate) fn follow_region(&mut self) {
        let instructions = self.region_instructions();
        if self.setup.is_ideal {
            self.end_window();
            self.begin_window(instructions);
        } else {
            self.begin_moves(instructions);
            self.await_moves();
        }
    }

    /// Begins the moves that are due after this number of instructions.
    fn begin_moves(&mut self, instructions: u64) {
        while let Some(moves) = self.os.plan.as_mut().and_then(|plan| plan.due(instructions)) {
            for wanted in moves {
                let action = Action::Move(wanted);
                self.begin(&Planned { id: ActionId::default(), action, reason: Reason::Hot }, None);
            }
        }
        self.wake_mover(self.now);
        self.mover.drop_done();
    }

    fn await_moves(&mut self) {
        let moves = self.os.plan.as_ref().is_some_and(|plan| plan.moves_later());
        self.set_timer(Timer::Oracle, if moves { self.now + LOOK } else { Time::NEVER });
    }
}
