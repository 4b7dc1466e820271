//! A core's own time.

use memtide_core::Time;
use memtide_core::machine;

/// Fractions of a picosecond that the clock counts.
const FRACTIONS: u64 = 1 << 16;

/// Latest time that a run may reach: 53 days. What follows within a batch still fits into a [`Time`].
const LATEST: Time = Time(1 << 62);

/// Runs at the core's full rate, and jumps where the core waits.
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

    /// Whether so many instructions can be retired within the time that a run may take.
    pub fn can_run(&self, instructions: u64) -> bool {
        let fractions = u128::from(instructions) * u128::from(self.per_instruction);
        u128::from(self.now.0) + fractions / u128::from(FRACTIONS) <= u128::from(LATEST.0)
    }

    /// Retires instructions; gives the time that takes.
    #[inline]
    pub fn run(&mut self, instructions: u64) -> Time {
        let fractions = self.fraction + instructions * self.per_instruction;
        let took = Time(fractions / FRACTIONS);
        self.fraction = fractions % FRACTIONS;
        self.now += took;
        took
    }

    /// As [`run`](Clock::run), for any number of instructions that [can be run](Clock::can_run).
    pub fn run_any(&mut self, instructions: u64) -> Time {
        let fractions =
            u128::from(self.fraction) + u128::from(instructions) * u128::from(self.per_instruction);
        let took = Time((fractions / u128::from(FRACTIONS)) as u64);
        self.fraction = (fractions % u128::from(FRACTIONS)) as u64;
        self.now += took;
        took
    }

    /// Waits until `time`, if that is later; gives how long.
    #[inline]
    pub fn wait_until(&mut self, time: Time) -> Time {
        let waited = time.since(self.now);
        self.now += waited;
        waited
    }
}
