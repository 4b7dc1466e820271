//! Virtual CPUs as all of QEMU's threads may see them: what they have executed, and their clocks.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use memtide_core::Time;
use memtide_lab_model::Clock;

use crate::lab::Executed;
use crate::op::MAX_VCPUS;

/// What QEMU counts for each virtual CPU by itself.
#[repr(C)]
pub struct Score {
    /// Instructions of all blocks begun.
    pub instructions: u64,
    /// Of them, those outside the kernel.
    pub user_instructions: u64,
    /// Instructions, and time waited in instructions, since its turn began.
    pub turn: u64,
}

/// A virtual CPU, as all of QEMU's threads may see it.
pub struct Shared {
    pub score: AtomicPtr<Score>,
    pub cpu: AtomicPtr<c_void>,
    offset: AtomicU64,
    per_instruction: AtomicU64,
    pub idle: AtomicBool,
}

/// All virtual CPUs; those that there are not have no score.
pub static SHARED: [Shared; MAX_VCPUS] = [const {
    Shared {
        score: AtomicPtr::new(null_mut()),
        cpu: AtomicPtr::new(null_mut()),
        offset: AtomicU64::new(0),
        per_instruction: AtomicU64::new(0),
        idle: AtomicBool::new(true),
    }
}; MAX_VCPUS];

/// The latest time that the guest was told, in ns, sleep apart.
pub static LATEST: AtomicU64 = AtomicU64::new(0);

/// Time that QEMU has skipped because all virtual CPUs slept, when it was last asked, in ns.
pub static SKIPPED_NS: AtomicU64 = AtomicU64::new(0);

impl Shared {
    pub fn instructions(&self) -> u64 {
        let score = self.score.load(Ordering::Relaxed);
        // SAFETY: QEMU's scoreboard, which lives as long as the plugin; QEMU writes whole words to it.
        if score.is_null() { 0 } else { unsafe { (&raw const (*score).instructions).read_volatile() } }
    }

    pub fn executed(&self) -> Executed {
        let score = self.score.load(Ordering::Relaxed);
        // SAFETY: as above.
        let user = || unsafe {
            if score.is_null() { 0 } else { (&raw const (*score).user_instructions).read_volatile() }
        };
        Executed { instructions: self.instructions(), user_instructions: user() }
    }

    pub fn set_turn(&self, turn: u64) {
        let score = self.score.load(Ordering::Relaxed);
        // SAFETY: as above; called on the thread that QEMU changes it on.
        unsafe { (&raw mut (*score).turn).write_volatile(turn) }
    }

    pub fn add_turn(&self, turn: u64) {
        let score = self.score.load(Ordering::Relaxed);
        // SAFETY: as above.
        unsafe {
            let at = &raw mut (*score).turn;
            at.write_volatile(at.read_volatile() + turn);
        }
    }

    pub fn runs(&self) -> bool {
        !self.score.load(Ordering::Relaxed).is_null() && !self.idle.load(Ordering::Relaxed)
    }

    pub fn publish(&self, clock: Clock) {
        self.offset.store(clock.offset.0, Ordering::Relaxed);
        self.per_instruction.store(clock.per_instruction, Ordering::Relaxed);
    }

    pub fn time(&self) -> Time {
        let offset = Time(self.offset.load(Ordering::Relaxed));
        let clock = Clock { offset, per_instruction: self.per_instruction.load(Ordering::Relaxed) };
        clock.at(self.instructions())
    }
}

/// The time of the whole machine, in ns, sleep apart: that of the slowest virtual CPU that runs.
pub fn common_time_ns() -> u64 {
    let known = || SHARED.iter().filter(|shared| !shared.score.load(Ordering::Relaxed).is_null());
    let slowest = known().filter(|shared| shared.runs()).map(Shared::time).min();
    let time = slowest.or_else(|| known().map(Shared::time).max()).unwrap_or_default();
    LATEST.fetch_max(time.0 / 1000, Ordering::Relaxed).max(time.0 / 1000)
}
