//! The guest's clock.

/// When it starts, as QEMU's `-rtc` takes it.
pub const START: &str = "base=2025-01-01,clock=vm";

/// The same in seconds since 1970. The guest's files are as old, since gzip, for one, takes a time of 0 for none.
pub const START_SECONDS: u32 = 1_735_689_600;

/// Time of an instruction outside the region of interest, and without a model, in ps.
pub const BOOT_PS: u64 = 10_000;
