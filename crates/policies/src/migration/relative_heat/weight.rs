//! What samples stand for.

use std::iter::Sum;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Samples, each of which stands for a number of accesses. They count less with each epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Weight {
    /// Accesses that the samples stand for.
    pub accesses: f64,
    /// Sum of the squares of each sample's accesses: the variance of all accesses, if samples come by chance.
    pub squares: f64,
}

impl Weight {
    pub fn of_sample(accesses: f64) -> Weight {
        Weight { accesses, squares: accesses * accesses }
    }

    /// What is left of it as earlier samples count `kept` times as much as before.
    pub fn faded(self, kept: f64) -> Weight {
        Weight { accesses: self.accesses * kept, squares: self.squares * kept * kept }
    }

    /// Number of samples of one weight that say as much.
    pub fn samples(self) -> f64 {
        if self.squares > 0.0 { self.accesses * self.accesses / self.squares } else { 0.0 }
    }
}

impl Add for Weight {
    type Output = Weight;

    fn add(self, other: Weight) -> Weight {
        Weight { accesses: self.accesses + other.accesses, squares: self.squares + other.squares }
    }
}

impl Sub for Weight {
    type Output = Weight;

    fn sub(self, other: Weight) -> Weight {
        Weight { accesses: self.accesses - other.accesses, squares: self.squares - other.squares }
    }
}

impl Sum for Weight {
    fn sum<I: Iterator<Item = Weight>>(all: I) -> Weight {
        all.fold(Weight::default(), Weight::add)
    }
}
