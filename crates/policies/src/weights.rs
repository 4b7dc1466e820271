//! Small integer weights in a given proportion.

/// Maximum sum of weights.
const SUM_MAX: u32 = 4000;

/// Relative error of a share at which weights are accepted.
const TOLERANCE: f64 = 0.005;

/// Number of pages after which a thread's shares must be accurate.
const PAGES: f64 = 10_000.0;

/// Maximum error in pages after [`PAGES`] pages: 1 %.
const PAGES_OFF: f64 = 99.0;

/// Integer weights, at least 1 each, in proportion to `amounts` (all above zero).
///
/// The weights with the least sum that give every share within a relative error of 0.5 %. If a thread that
/// cycles through the tiers by these would be more than 1 % off after 10,000 pages, because the cycle is that
/// long: the weights within that limit with the least maximum relative error.
pub(crate) fn in_proportion(amounts: &[f64]) -> Vec<u32> {
    let total: f64 = amounts.iter().sum();
    let shares: Vec<f64> = amounts.iter().map(|amount| amount / total).collect();
    let mut best = ((f64::INFINITY, f64::INFINITY), vec![1; amounts.len()]);
    for scale in amounts.len() as u32..=SUM_MAX {
        let weights: Vec<u32> =
            shares.iter().map(|share| (libm::round(share * f64::from(scale)) as u32).max(1)).collect();
        let errors = (pages_off(&shares, &weights).max(PAGES_OFF), relative_error(&shares, &weights));
        if errors < best.0 {
            best = (errors, weights);
        }
        if best.0 <= (PAGES_OFF, TOLERANCE) {
            break;
        }
    }
    best.1
}

/// Maximum error of a share, relative to the share.
fn relative_error(shares: &[f64], weights: &[u32]) -> f64 {
    let sum = f64::from(weights.iter().sum::<u32>());
    let errors =
        shares.iter().zip(weights).map(|(share, &weight)| (f64::from(weight) / sum / share - 1.0).abs());
    errors.fold(0.0, f64::max)
}

/// Maximum error of a tier's share after [`PAGES`] pages, in pages: the error of its weight, plus its lead at
/// the end of its turn in a cycle.
fn pages_off(shares: &[f64], weights: &[u32]) -> f64 {
    let sum = f64::from(weights.iter().sum::<u32>());
    let off = shares.iter().zip(weights).map(|(share, &weight)| {
        let placed = f64::from(weight) / sum;
        PAGES * (placed - share).abs() + f64::from(weight) * (1.0 - placed)
    });
    off.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn integer_ratios_are_exact() {
        assert_eq!(in_proportion(&[4000.0, 2000.0]), [2, 1]); // bmpm section 3.2: 4 GB/s and 2 GB/s
        assert_eq!(in_proportion(&[17000.0, 3400.0]), [5, 1]);
        assert_eq!(in_proportion(&[17000.0, 1700.0]), [10, 1]);
        assert_eq!(in_proportion(&[30.0, 20.0, 10.0]), [3, 2, 1]);
        assert_eq!(in_proportion(&[5.0]), [1]);
        assert_eq!(in_proportion(&[76.8, 42.0]), [11, 6]);
    }

    #[test]
    fn very_slow_tier_gets_at_most_its_share() {
        assert_eq!(in_proportion(&[17_058.0, 32.4]), [524, 1]); // pms
    }

    proptest! {
        #[test]
        fn shares_are_within_one_per_cent_after_10_000_pages(powers in vec(0.0..2.5f64, 1..=4)) {
            let amounts: Vec<f64> = powers.into_iter().map(libm::exp10).collect();
            let weights = in_proportion(&amounts);
            let (total, cycle) = (amounts.iter().sum::<f64>(), weights.iter().sum::<u32>());
            let (cycles, rest) = (10_000 / cycle, 10_000 % cycle);
            let mut before = 0;
            for (amount, &weight) in amounts.iter().zip(&weights) {
                prop_assert!(weight > 0);
                let pages = cycles * weight + rest.saturating_sub(before).min(weight);
                before += weight;
                prop_assert!((f64::from(pages) - 10_000.0 * amount / total).abs() <= 100.0, "{weights:?}");
            }
        }
    }
}
