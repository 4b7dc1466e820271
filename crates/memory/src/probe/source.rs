//! Random lines and arrival times.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Draws lines, reads and writes, and gaps between arrivals.
pub(super) struct Source {
    random: Xoshiro256PlusPlus,
    sequential: bool,
    read_share: f64,
    lines: u64,
    next: u64,
}

impl Source {
    pub fn new(seed: u64, sequential: bool, read_share: f64, lines: u64) -> Source {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Source { random, sequential, read_share, lines, next: 0 }
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn line(&mut self) -> u64 {
        let line = match self.sequential {
            true => self.next,
            false => ((u128::from(self.random.next_u64()) * u128::from(self.lines)) >> 64) as u64,
        };
        self.next = (self.next + 1) % self.lines;
        line
    }

    pub fn is_write(&mut self) -> bool {
        self.read_share < 1.0 && self.unit() >= self.read_share
    }

    /// An exponentially distributed gap in ps.
    pub fn gap(&mut self, mean_ps: f64) -> f64 {
        -mean_ps * libm::log(1.0 - self.unit())
    }
}
