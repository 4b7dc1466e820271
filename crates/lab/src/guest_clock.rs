//! The guest's clock.

/// Start time, as QEMU's `-rtc` takes it.
pub const START: &str = "base=2025-01-01,clock=vm";

/// The same in seconds since 1970. Also the guest files' time: gzip, for one, treats 0 as no time.
pub const START_SECONDS: u32 = 1_735_689_600;

/// Time per instruction outside the region of interest and without a model, in ps.
pub const BOOT_PS: u64 = 1_000;
