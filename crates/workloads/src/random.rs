//! Random numbers that are the same on every machine.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A reproducible random number generator.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The `stream`th independent generator of a seed, for instance a thread's or an item's.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(hash(seed ^ hash(stream))))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in 0..`bound`, with a bias below 2^-64; `bound` is at least 1.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.bits(), bound)
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }
}

/// Hashes a number to 64 bits: a bijection (SplitMix64's). Written out, as the library's is inlined only by
/// link-time optimisation, and native programs that are timed call this in their inner loops.
#[inline]
pub fn hash(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Maps 64 random bits to [0, 1).
#[inline]
pub fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Maps 64 random bits to 0..`bound`, keeping their distribution.
#[inline]
pub fn scale(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// A random permutation of 0..n that needs no memory and can be inverted: a Feistel network of four rounds
/// over the bits of n - 1, applied repeatedly until the result is in range.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    low_bits: u32,
    high_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// A permutation of `0..len`; `len` is from 1 to 2^62.
    pub fn new(len: u64, seed: u64) -> Permutation {
        let bits = len.next_power_of_two().trailing_zeros().max(2);
        let keys = [1, 2, 3, 4].map(|round| hash(seed ^ hash(round)));
        Permutation { len, low_bits: bits / 2, high_bits: bits.div_ceil(2), keys }
    }

    /// The image of `x`, which is in range.
    #[inline]
    pub fn forward(&self, x: u64) -> u64 {
        self.walk(x, [0, 1, 2, 3])
    }

    /// The preimage of `y`, which is in range.
    #[inline]
    pub fn inverse(&self, y: u64) -> u64 {
        self.walk(y, [3, 2, 1, 0])
    }

    #[inline]
    fn walk(&self, mut x: u64, rounds: [usize; 4]) -> u64 {
        loop {
            x = rounds.into_iter().fold(x, |x, round| self.mix(x, round));
            if x < self.len {
                return x;
            }
        }
    }

    /// Mixes one half with a function of the other; its own inverse.
    #[inline]
    fn mix(&self, x: u64, round: usize) -> u64 {
        let (low, high) = (x & ((1 << self.low_bits) - 1), x >> self.low_bits);
        if round.is_multiple_of(2) {
            x ^ (hash(low ^ self.keys[round]) >> (64 - self.high_bits)) << self.low_bits
        } else {
            x ^ hash(high ^ self.keys[round]) >> (64 - self.low_bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::SplitMix64;

    use super::*;

    #[test]
    fn hash_is_first_number_of_splitmix64() {
        for x in [0, 1, 7, 1 << 40, u64::MAX] {
            assert_eq!(hash(x), SplitMix64::seed_from_u64(x).next_u64());
        }
    }

    #[test]
    fn permutation_is_bijective_and_inverse_undoes_it() {
        for len in [1, 2, 3, 10, 64, 1000, 4097] {
            let permutation = Permutation::new(len, 7);
            let mut seen = vec![false; len as usize];
            for x in 0..len {
                let y = permutation.forward(x);
                assert_eq!(permutation.inverse(y), x);
                assert!(!std::mem::replace(&mut seen[y as usize], true), "{y} is reached twice");
            }
        }
    }

    #[test]
    fn sources_of_one_seed_are_unlike_and_repeatable() {
        let draw = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(0, 1), draw(1, 0));
    }

    #[test]
    fn units_are_uniform() {
        let mut random = Random::new(3, 0);
        let (mut sum, mut low) = (0.0, 0);
        for _ in 0..100_000 {
            let x = random.unit();
            assert!((0.0..1.0).contains(&x));
            sum += x;
            low += u32::from(random.below(10) == 0);
        }
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005);
        assert!((f64::from(low) - 10_000.0).abs() < 400.0);
    }
}
