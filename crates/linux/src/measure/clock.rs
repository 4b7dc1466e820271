//! The clock of a core under load.

use std::hint::black_box;
use std::time::{Duration, Instant};

use memtide_core::CpuId;

use super::{MeasureError, pinned};

/// Dependent steps per part.
const STEPS: u64 = 2_000_000;

/// Separately timed parts; interruptions only add to them.
const PARTS: u32 = 10;

/// Cycles of a step: a 64-bit multiplication (3) and an exclusive or (1), each of which waits for the one
/// before. Agner Fog's instruction tables: Intel since Nehalem and AMD since Zen.
const STEP_CYCLES: f64 = 4.0;

/// Clock of a core in MHz, from a chain of multiplications; `None` on processors without known latencies.
///
/// # Errors
/// If the CPU is not available.
pub fn clock_mhz(cpu: CpuId) -> Result<Option<f64>, MeasureError> {
    pinned(cpu)?;
    if !cfg!(target_arch = "x86_64") {
        return Ok(None);
    }
    let part = || {
        let start = Instant::now();
        black_box(multiplied(black_box(1)));
        start.elapsed()
    };
    let least = (0..PARTS).map(|_| part()).min().unwrap_or(Duration::MAX);
    Ok(Some(mhz(least)))
}

fn mhz(part: Duration) -> f64 {
    STEPS as f64 * STEP_CYCLES * 1e3 / part.as_nanos() as f64
}

/// A chain that a compiler cannot shorten, as the two operations do not distribute.
fn multiplied(mut number: u64) -> u64 {
    let (by, bits) = (black_box(0x9E37_79B9_7F4A_7C15_u64), black_box(0x5555));
    for _ in 0..STEPS {
        number = number.wrapping_mul(by) ^ bits;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_cycles_over_time() {
        assert_eq!(mhz(Duration::from_millis(2)), 4000.0);
    }
}
