//! Limits monitoring of idle memory.
//!
//! Between two accesses that are days apart, a policy's sensors and epochs would take millions of turns. Each
//! is cheap only in relation to the accesses that it observes, so a run may have [`IDLE_MIN`] such turns
//! without an access, plus [`IDLE_PER_TURN`] for each turn of a core or node; ordinary programs have far
//! fewer. Skipping idle turns instead would change a policy's decisions.

use memtide_core::Time;

use crate::SimError;

/// Idle turns allowed in any run: some seconds of host time.
const IDLE_MIN: u64 = 1 << 20;

/// Further idle turns for each turn of a core or a memory node.
const IDLE_PER_TURN: u64 = 256;

/// Turns of a run so far.
#[derive(Debug, Default)]
pub(crate) struct IdleTurns {
    idle: u64,
    acts: u64,
    last_act: Time,
}

impl IdleTurns {
    /// Counts a turn of a core or a memory node.
    #[inline]
    pub fn act(&mut self, now: Time) {
        self.acts += 1;
        self.last_act = now;
    }

    /// Counts a turn of the policy's monitoring.
    ///
    /// # Errors
    /// If there were too many idle ones.
    pub fn monitor(&mut self, now: Time) -> Result<(), SimError> {
        self.idle += 1;
        if self.idle <= IDLE_MIN + IDLE_PER_TURN.saturating_mul(self.acts) {
            return Ok(());
        }
        Err(SimError::Idle { idle_seconds: now.since(self.last_act).as_seconds(), rounds: self.idle })
    }
}
