//! Sums over threads.

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::memory::Memory;

/// Distance of two threads' cells in words: a line.
const STRIDE: usize = 8;

/// A sum to which each thread adds its part at a phase's end, and that every thread can read in the next.
pub struct Reduction {
    parts: Array<f64>,
}

impl Reduction {
    /// For this many threads.
    pub fn new(name: &str, threads: usize, space: &mut Space) -> Result<Reduction, WorkloadError> {
        Ok(Reduction { parts: space.array(name, threads * STRIDE)? })
    }

    /// Sets a thread's part.
    pub fn put<M: Memory>(&self, m: &mut M, thread: usize, part: f64) {
        m.store(&self.parts, thread * STRIDE, part);
    }

    /// A thread's part.
    pub fn part<M: Memory>(&self, m: &mut M, thread: usize) -> f64 {
        *m.load(&self.parts, thread * STRIDE)
    }

    /// The sum of all parts.
    pub fn sum<M: Memory>(&self, m: &mut M) -> f64 {
        (0..self.parts.len()).step_by(STRIDE).map(|part| *m.load(&self.parts, part)).sum()
    }

    /// The sum of all parts, without recorded accesses.
    pub fn total(&self) -> f64 {
        self.sum(&mut crate::memory::Native)
    }
}
