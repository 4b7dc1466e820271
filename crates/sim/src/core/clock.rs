//! A core's clock.

use memtide_core::Time;
use memtide_core::machine;

/// Fractions of a picosecond.
const FRACTIONS: u64 = 1 << 16;

/// Maximum time of a run: 53 days. Whatever follows within a batch still fits into a [`Time`].
const LATEST: Time = Time(1 << 62);

/// Advances at the core's full rate, and jumps over waits.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Time,
    fraction: u64,
    per_instruction: u64,
}

impl Clock {
    pub fn new(core: &machine::Core) -> Clock {
        let ps = 1e6 / (core.clock_mhz * core.instructions_per_cycle);
        Clock { now: Time::ZERO, fraction: 0, per_instruction: (ps * FRACTIONS as f64) as u64 }
    }

    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether this many instructions fit into the maximum time of a run.
    pub fn can_run(&self, instructions: u64) -> bool {
        let fractions = u128::from(instructions) * u128::from(self.per_instruction);
        u128::from(self.now.0) + fractions / u128::from(FRACTIONS) <= u128::from(LATEST.0)
    }

    /// Time of this many instructions, rounded down.
    #[inline]
    pub fn takes(&self, instructions: u64) -> Time {
        Time((u128::from(instructions) * u128::from(self.per_instruction) / u128::from(FRACTIONS)) as u64)
    }

    /// Retires instructions; returns the time taken.
    #[inline]
    pub fn run(&mut self, instructions: u64) -> Time {
        let fractions = self.fraction + instructions * self.per_instruction;
        let took = Time(fractions / FRACTIONS);
        self.fraction = fractions % FRACTIONS;
        self.now += took;
        took
    }

    /// As [`run`](Clock::run), for any number of instructions for which [`can_run`](Clock::can_run) holds.
    pub fn run_any(&mut self, instructions: u64) -> Time {
        let fractions =
            u128::from(self.fraction) + u128::from(instructions) * u128::from(self.per_instruction);
        let took = Time((fractions / u128::from(FRACTIONS)) as u64);
        self.fraction = (fractions % u128::from(FRACTIONS)) as u64;
        self.now += took;
        took
    }

    /// Waits until `time`, if that is later; returns the time waited.
    #[inline]
    pub fn wait_until(&mut self, time: Time) -> Time {
        let waited = time.since(self.now);
        self.now += waited;
        waited
    }
}
