//! A bound on monitoring while nothing happens.
//!
//! Between two accesses that lie days apart, a policy's sensors and epochs would have their turns millions of times.
//! Each is cheap only beside the accesses that it watches, so a run may have [`FREE`] such turns without an access and
//! [`PER_ACT`] for each turn of a core or node; ordinary programs have far fewer. To skip idle turns instead would
//! change what a policy decides.

use memtide_core::Time;

use crate::SimError;

/// Idle turns that any run may have: some seconds of host time.
const FREE: u64 = 1 << 20;

/// Idle turns for each turn of a core or a memory node.
const PER_ACT: u64 = 256;

/// Turns of a run so far.
#[derive(Debug, Default)]
pub(crate) struct IdleTurns {
    idle: u64,
    acts: u64,
    last_act: Time,
}

impl IdleTurns {
    /// A core or a memory node acts.
    #[inline]
    pub fn act(&mut self, now: Time) {
        self.acts += 1;
        self.last_act = now;
    }

    /// The policy's monitoring has a turn.
    ///
    /// # Errors
    /// If it had too many for what there was to watch.
    pub fn monitor(&mut self, now: Time) -> Result<(), SimError> {
        self.idle += 1;
        if self.idle <= FREE + PER_ACT.saturating_mul(self.acts) {
            return Ok(());
        }
        Err(SimError::Idle { idle_seconds: now.since(self.last_act).as_seconds(), rounds: self.idle })
    }
}
