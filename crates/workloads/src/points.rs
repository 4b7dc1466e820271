//! Points in clusters, for k-means and streamcluster, and their distances.

use crate::array::Array;
use crate::memory::Memory;
use crate::random::{Random, hash};

/// A vector register (AVX2).
pub const LANES: usize = 8;
/// Per eight coordinates: a subtraction, a fused multiply-add, and the loop's add, compare, branch.
const DISTANCE_INSTRUCTIONS: u64 = 5;

/// Writes the `item`th point with `dims` coordinates: one of `clusters` centres plus noise.
pub fn generate<M: Memory>(m: &mut M, to: &Array<f32>, item: usize, dims: usize, clusters: u64, seed: u64) {
    let mut random = Random::new(seed, item as u64);
    let cluster = hash(seed) ^ random.below(clusters);
    for first in (0..dims).step_by(LANES) {
        let lanes = std::array::from_fn(|lane| {
            let centre = hash(cluster ^ hash((first + lane) as u64)) % 100;
            centre as f32 + 20.0 * random.unit() as f32
        });
        m.work(50);
        m.store_lanes::<_, LANES>(to, item * dims + first, lanes);
    }
}

/// The squared distance of two points.
#[inline(always)]
pub fn distance<M: Memory>(
    m: &mut M,
    a: &Array<f32>,
    a_at: usize,
    b: &Array<f32>,
    b_at: usize,
    dims: usize,
) -> f32 {
    let mut sum = [0.0; LANES];
    for first in (0..dims).step_by(LANES) {
        let x: [f32; LANES] = *m.load_lanes(a, a_at + first);
        let y: [f32; LANES] = *m.load_lanes(b, b_at + first);
        m.work(DISTANCE_INSTRUCTIONS);
        for lane in 0..LANES {
            sum[lane] += (x[lane] - y[lane]) * (x[lane] - y[lane]);
        }
    }
    m.work(5);
    sum.iter().sum()
}
