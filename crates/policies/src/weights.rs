//! Small whole weights in a given proportion.

/// The largest sum of weights.
const SUM_MAX: u32 = 4000;

/// Pages by which what a thread got of a tier may be ahead of the tier's share, at any time.
const AHEAD_MAX: f64 = 50.0;

/// Relative error of a share at which weights are good enough.
const TOLERANCE: f64 = 0.005;

/// Whole weights, at least 1 each, in proportion to `amounts` (all above zero).
///
/// They are those with the least sum that give every share within 0.5 % of itself. Where these would put a thread that
/// goes through tier after tier more than 50 pages off its shares in between, it is those within that bound whose
/// largest relative error is least: small weights count for more than the last per mille.
pub(crate) fn in_proportion(amounts: &[f64]) -> Vec<u32> {
    let total: f64 = amounts.iter().sum();
    let shares: Vec<f64> = amounts.iter().map(|amount| amount / total).collect();
    let mut best = (f64::INFINITY, vec![1; amounts.len()]);
    for scale in amounts.len() as u32..=SUM_MAX {
        let weights: Vec<u32> =
            shares.iter().map(|share| (libm::round(share * f64::from(scale)) as u32).max(1)).collect();
        let error = worst_error(&shares, &weights);
        if error < best.0 && pages_ahead(&weights) <= AHEAD_MAX {
            best = (error, weights);
        }
        if best.0 <= TOLERANCE {
            break;
        }
    }
    best.1
}

/// How far a tier is ahead of its share when its turn in a cycle ends, at most.
fn pages_ahead(weights: &[u32]) -> f64 {
    let sum = f64::from(weights.iter().sum::<u32>());
    weights.iter().map(|&w| f64::from(w) * (1.0 - f64::from(w) / sum)).fold(0.0, f64::max)
}

fn worst_error(shares: &[f64], weights: &[u32]) -> f64 {
    let sum = f64::from(weights.iter().sum::<u32>());
    let errors =
        shares.iter().zip(weights).map(|(share, &weight)| (f64::from(weight) / sum / share - 1.0).abs());
    errors.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ratios_of_whole_numbers_stay_as_they_are() {
        assert_eq!(in_proportion(&[4000.0, 2000.0]), [2, 1]); // bmpm section 3.2: 4 GB/s and 2 GB/s
        assert_eq!(in_proportion(&[17000.0, 3400.0]), [5, 1]);
        assert_eq!(in_proportion(&[17000.0, 1700.0]), [10, 1]);
        assert_eq!(in_proportion(&[30.0, 20.0, 10.0]), [3, 2, 1]);
        assert_eq!(in_proportion(&[5.0]), [1]);
        assert_eq!(in_proportion(&[76.8, 42.0]), [11, 6]);
    }

    proptest! {
        #[test]
        fn shares_are_within_half_a_per_cent_of_the_whole(powers in prop::collection::vec(0.0..3.0f64, 1..=4)) {
            let amounts: Vec<f64> = powers.into_iter().map(libm::exp10).collect();
            let weights = in_proportion(&amounts);
            let sum: u32 = weights.iter().sum();
            let total: f64 = amounts.iter().sum();
            prop_assert!(weights.iter().all(|&w| w > 0) && pages_ahead(&weights) <= AHEAD_MAX);
            for (amount, weight) in amounts.iter().zip(&weights) {
                prop_assert!((amount / total - f64::from(*weight) / f64::from(sum)).abs() <= 0.005 + 1e-12);
            }
        }
    }
}
