//! Axes that one outlier does not flatten.
//!
//! ```text
//!        common                  a chart beyond it        a spike within a chart
//!   |____________|            |____________________|         ▲ 48 (clipped)
//!   a group's axes end        has axes of its own,        _|‾|_______
//!   at the largest figure     and says so                 axis ends at the 99th percentile
//!   near the median
//! ```

/// Figures more than this many times the median have an axis of their own.
const FAR: f64 = 4.0;

/// Groups whose figures reach less than this part of an axis have an axis of their own.
const FLAT: f64 = 1.0 / 5.0;

/// Spikes more than this many times the 99th percentile are clipped.
const SPIKE: f64 = 1.5;

/// End of an axis for all figures but outliers: the largest figure that is not far above the median of those
/// above zero. 0 without such figures.
pub fn common(figures: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(figures);
    let Some(median) = sorted.get(sorted.len().saturating_sub(1) / 2) else { return 0.0 };
    sorted.iter().copied().filter(|figure| *figure <= FAR * median).fold(0.0, f64::max)
}

/// Ends of the axes of several groups, from the end of each alone: the greatest, except for groups that it
/// would flatten.
pub fn shared(ends: &[f64]) -> Vec<f64> {
    let greatest = ends.iter().copied().fold(0.0, f64::max);
    let is_flat = |end: f64| end > 0.0 && end < FLAT * greatest;
    ends.iter().map(|&end| if is_flat(end) { end } else { greatest }).collect()
}

/// End of an axis for values that may have spikes: the largest, or the 99th percentile if that is far below.
pub fn without_spikes(values: impl IntoIterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let Some(&most) = sorted.last() else { return 0.0 };
    let high = sorted[(sorted.len() * 99).div_ceil(100) - 1];
    if most > SPIKE * high { high } else { most }
}

/// Finite figures above zero, the smallest first.
fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> =
        figures.into_iter().filter(|figure| figure.is_finite() && *figure > 0.0).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlier_does_not_set_common_end() {
        assert_eq!(common([10.0, 11.0, 12.0, 120.0]), 12.0);
        assert_eq!(common([10.0, 100.0]), 10.0);
        assert_eq!(common([10.0, 20.0, 39.0]), 39.0);
        assert_eq!(common([0.0, 0.0, 5.0]), 5.0);
        assert_eq!(common([0.0, f64::NAN]), 0.0);
    }

    #[test]
    fn groups_share_the_greatest_end_unless_flattened() {
        assert_eq!(shared(&[12.0, 3.0, 0.0]), [12.0, 12.0, 12.0]);
        assert_eq!(shared(&[100.0, 10.0, 90.0]), [100.0, 10.0, 100.0]);
        assert_eq!(shared(&[]), [0.0; 0]);
    }

    #[test]
    fn spike_does_not_set_end() {
        let flat = |top: f64| (0..199).map(|_| 3.0).chain([top]);
        assert_eq!(without_spikes(flat(30.0)), 3.0);
        assert_eq!(without_spikes(flat(4.0)), 4.0);
        assert_eq!(without_spikes([1.0, 9.0]), 9.0, "two values have no spike");
        assert_eq!(without_spikes([0.0]), 0.0);
    }
}
