//! Zipfian popularity.

use crate::random::{Random, hash, scale, unit};

/// Intervals of the table of ranks.
const INTERVALS: usize = 1 << INTERVAL_BITS;
const INTERVAL_BITS: u32 = 10;
/// Terms of the zeta sum that are added individually; the rest is approximated by an integral.
const EXACT_TERMS: u64 = 1000;

/// Draws ranks 0 .. n-1 with a probability proportional to 1 / (rank + 1)^theta, by the method of Gray et
/// al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), as YCSB does. The method's
/// power function is read from a table of 1024 intervals, exact to 1 in 10,000.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    zeta: f64,
    /// Cumulative probability of the two most popular items, times zeta.
    first_two: f64,
    ranks: Box<[f64]>,
}

impl Zipf {
    /// For `items` items, at least 1; `theta` is from 0 (uniform) to below 1.
    pub fn new(items: u64, theta: f64) -> Zipf {
        let zeta = zeta(items, theta);
        let alpha = 1.0 / (1.0 - theta);
        let first_two = 1.0 + libm::pow(0.5, theta);
        let n = items as f64;
        let eta = (1.0 - libm::pow(2.0 / n, 1.0 - theta)) / (1.0 - first_two / zeta);
        let rank = |point: usize| {
            let u = point as f64 / INTERVALS as f64;
            n * libm::pow((eta * u - eta + 1.0).max(0.0), alpha)
        };
        Zipf { items, zeta, first_two, ranks: (0..=INTERVALS).map(rank).collect() }
    }

    /// A rank: 0 is the most popular.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        // As many as `unit` uses, so that interval and position in it are exactly those of its number.
        let bits = random.bits() & !((1 << 11) - 1);
        let uz = unit(bits) * self.zeta;
        if uz < self.first_two {
            return u64::from(uz >= 1.0).min(self.items - 1);
        }
        let (interval, within) = ((bits >> (64 - INTERVAL_BITS)) as usize, unit(bits << INTERVAL_BITS));
        let (low, high) = (self.ranks[interval], self.ranks[interval + 1]);
        ((low + (high - low) * within) as u64).min(self.items - 1)
    }

    /// An item, with popular ones scattered over `0..items`: the rank's hash, as in YCSB. A few ranks share
    /// an item, and some items are never drawn.
    #[inline]
    pub fn scrambled(&self, random: &mut Random) -> u64 {
        scale(hash(self.rank(random)), self.items)
    }
}

/// The sum of 1 / i^theta over i = 1 ..= n, by the Euler-Maclaurin formula after the first terms.
fn zeta(n: u64, theta: f64) -> f64 {
    let term = |i: f64| libm::pow(i, -theta);
    let exact = n.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|i| term(i as f64)).sum();
    if n == exact {
        return sum;
    }
    let (a, b) = (exact as f64, n as f64);
    let integral = (libm::pow(b, 1.0 - theta) - libm::pow(a, 1.0 - theta)) / (1.0 - theta);
    sum + integral + (term(b) - term(a)) / 2.0 - theta * (term(b) / b - term(a) / a) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_agrees_with_the_plain_sum() {
        for theta in [0.0, 0.5, 0.99] {
            let plain: f64 = (1..=50_000).map(|i| libm::pow(f64::from(i), -theta)).sum();
            assert!((zeta(50_000, theta) / plain - 1.0).abs() < 1e-12, "theta {theta}");
        }
    }

    #[test]
    fn ranks_follow_the_law() {
        let (n, theta, draws) = (10_000, 0.99, 1_000_000);
        let zipf = Zipf::new(n, theta);
        let mut random = Random::new(1, 0);
        let mut count = vec![0u32; n as usize];
        for _ in 0..draws {
            count[zipf.rank(&mut random) as usize] += 1;
        }
        let share = |ranks: std::ops::Range<usize>| {
            let expected: f64 =
                ranks.clone().map(|r| libm::pow(r as f64 + 1.0, -theta)).sum::<f64>() / zipf.zeta;
            let seen = f64::from(count[ranks].iter().sum::<u32>()) / f64::from(draws);
            seen / expected
        };
        // The method is exact for the two most popular items and approximates the others by a continuous
        // curve, which overestimates the first of them by about a tenth.
        assert!((share(0..1) - 1.0).abs() < 0.02);
        assert!((share(1..2) - 1.0).abs() < 0.02);
        for ranks in [2..10, 10..100, 100..1000, 1000..10_000] {
            let ratio = share(ranks.clone());
            assert!((ratio - 1.0).abs() < 0.12, "{ranks:?}: {ratio}");
        }
    }

    #[test]
    fn table_matches_power_function() {
        let (n, theta) = (4_000_000.0, 0.99);
        let zipf = Zipf::new(n as u64, theta);
        let zeta = zeta(n as u64, theta);
        let eta = (1.0 - libm::pow(2.0 / n, 1.0 - theta)) / (1.0 - (1.0 + libm::pow(0.5, theta)) / zeta);
        for i in 1000..10_000 {
            let u = (f64::from(i) + 0.5) / 10_000.0;
            let gray = n * libm::pow(eta * u - eta + 1.0, 1.0 / (1.0 - theta));
            let (at, k) = (u * INTERVALS as f64, (u * INTERVALS as f64) as usize);
            let table = zipf.ranks[k] + (zipf.ranks[k + 1] - zipf.ranks[k]) * (at - k as f64);
            assert!((table / gray - 1.0).abs() < 1e-4, "{u}: {table} for {gray}");
        }
    }

    #[test]
    fn degenerate_sizes_stay_in_range() {
        for items in 1..5 {
            let zipf = Zipf::new(items, 0.99);
            let mut random = Random::new(9, 0);
            for _ in 0..1000 {
                assert!(zipf.rank(&mut random) < items && zipf.scrambled(&mut random) < items);
            }
        }
    }
}
