//! State of virtual CPUs readable by all of QEMU's threads: progress and clocks.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use memtide_core::Time;
use memtide_lab_model::Clock;

use crate::lab::Executed;
use crate::op::MAX_VCPUS;
use crate::vcpu::VCPUS;

/// Counters that QEMU updates inline for each virtual CPU, in aligned words.
#[repr(C)]
pub struct Score {
    /// Instructions of all blocks begun.
    pub instructions: AtomicU64,
    /// Of them, the kernel's.
    pub kernel_instructions: AtomicU64,
    /// Instructions, and time waited in instructions, since its turn began; and [`BUSY`].
    pub turn: AtomicU64,
}

/// Set in [`Score::turn`] while each block is to call the plugin.
const BUSY: u64 = 1 << 62;

/// A virtual CPU's state readable by all of QEMU's threads.
pub struct Shared {
    pub score: AtomicPtr<Score>,
    pub cpu: AtomicPtr<c_void>,
    offset: AtomicU64,
    per_instruction: AtomicU64,
    pub idle: AtomicBool,
}

/// All virtual CPUs; unused entries have no score.
pub static SHARED: [Shared; MAX_VCPUS] = [const { Shared::new() }; MAX_VCPUS];

/// The guest's last clock value, in ns, without sleep.
pub static LATEST: AtomicU64 = AtomicU64::new(0);

/// Time skipped by QEMU while all virtual CPUs slept, as of the last read, in ns.
pub static SKIPPED_NS: AtomicU64 = AtomicU64::new(0);

/// Time on the guest's clock. QEMU's own is not readable everywhere; skipped time is as of the guest's last
/// read.
pub fn guest_time(time: Time) -> Time {
    time + Time::from_ns(SKIPPED_NS.load(Ordering::Relaxed) as f64)
}

impl Shared {
    const fn new() -> Shared {
        Shared {
            score: AtomicPtr::new(null_mut()),
            cpu: AtomicPtr::new(null_mut()),
            offset: AtomicU64::new(0),
            per_instruction: AtomicU64::new(0),
            idle: AtomicBool::new(true),
        }
    }

    #[inline]
    fn score(&self) -> Option<&Score> {
        // SAFETY: null, or QEMU's scoreboard, which lives as long as the plugin. It moves only while a
        // virtual CPU is initialised, and then no other runs.
        unsafe { self.score.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub fn instructions(&self) -> u64 {
        self.score().map_or(0, |score| score.instructions.load(Ordering::Relaxed))
    }

    fn user_instructions(&self) -> u64 {
        let kernel = self.score().map_or(0, |score| score.kernel_instructions.load(Ordering::Relaxed));
        // Those of a block that has just begun may be in one count only.
        self.instructions().saturating_sub(kernel)
    }

    /// Called on the thread of the virtual CPU, the only one that changes the turn.
    pub fn set_turn(&self, turn: u64) {
        let score = self.score().expect("a virtual CPU that was initialised");
        score.turn.store(turn | score.turn.load(Ordering::Relaxed) & BUSY, Ordering::Relaxed);
    }

    /// Instructions and time in instructions since its turn began.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.score().map_or(0, |score| score.turn.load(Ordering::Relaxed) & !BUSY)
    }

    /// Whether each block is to call the plugin, not only one that ends a turn. As for
    /// [`Shared::set_turn`].
    #[inline]
    pub fn set_busy(&self, busy: bool) {
        let score = self.score().expect("a virtual CPU that was initialised");
        let turn = score.turn.load(Ordering::Relaxed) & !BUSY;
        score.turn.store(turn | if busy { BUSY } else { 0 }, Ordering::Relaxed);
    }

    /// As for [`Shared::set_turn`].
    #[inline]
    pub fn add_turn(&self, turn: u64) {
        let score = self.score().expect("a virtual CPU that was initialised");
        score.turn.store(score.turn.load(Ordering::Relaxed) + turn, Ordering::Relaxed);
    }

    pub fn runs(&self) -> bool {
        !self.score.load(Ordering::Relaxed).is_null() && !self.idle.load(Ordering::Relaxed)
    }

    pub fn publish(&self, clock: Clock) {
        self.offset.store(clock.offset.0, Ordering::Relaxed);
        self.per_instruction.store(clock.per_instruction, Ordering::Relaxed);
    }

    pub fn time(&self) -> Time {
        self.time_at(self.instructions())
    }

    /// Its time after a number of instructions, as far as its waits are known.
    pub fn time_at(&self, instructions: u64) -> Time {
        let offset = Time(self.offset.load(Ordering::Relaxed));
        let clock = Clock { offset, per_instruction: self.per_instruction.load(Ordering::Relaxed) };
        clock.at(instructions)
    }
}

/// Time of the machine, in ns, without sleep: that of the slowest running virtual CPU.
pub fn common_time_ns() -> u64 {
    let known = || SHARED.iter().filter(|shared| !shared.score.load(Ordering::Relaxed).is_null());
    let slowest = known().filter(|shared| shared.runs()).map(Shared::time).min();
    let time = slowest.or_else(|| known().map(Shared::time).max()).unwrap_or_default();
    LATEST.fetch_max(time.0 / 1000, Ordering::Relaxed).max(time.0 / 1000)
}

/// What each of the first `count` virtual CPUs has executed.
pub fn executed(count: usize) -> Vec<Executed> {
    (0..count).map(executed_by).collect()
}

/// What a virtual CPU has executed.
pub fn executed_by(cpu: usize) -> Executed {
    let shared = &SHARED[cpu];
    Executed {
        instructions: shared.instructions(),
        user_instructions: shared.user_instructions(),
        accesses: VCPUS[cpu].accesses(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpu_with_score_has_time() {
        let shared = Shared::new();
        assert_eq!((shared.instructions(), shared.runs()), (0, false));
        let score = Box::into_raw(Box::new(Score {
            instructions: AtomicU64::new(1000),
            kernel_instructions: AtomicU64::new(600),
            turn: AtomicU64::new(5),
        }));
        shared.score.store(score, Ordering::Relaxed);
        shared.idle.store(false, Ordering::Relaxed);
        assert!(shared.runs());
        assert_eq!((shared.instructions(), shared.user_instructions()), (1000, 400));
        let clock = Clock { offset: Time(77), per_instruction: 1 << 33 };
        shared.publish(clock);
        assert_eq!(shared.time(), clock.at(1000));
        shared.add_turn(3);
        shared.set_busy(true);
        assert_eq!(shared.turn(), 8);
        shared.set_turn(8);
        shared.add_turn(1);
        assert_eq!((shared.turn(), shared.time_at(0)), (9, Time(77)));
        shared.set_busy(false);
        // SAFETY: a box from above, with no readers left.
        let score = unsafe { Box::from_raw(score) };
        assert_eq!(score.turn.into_inner(), 9);
    }
}
