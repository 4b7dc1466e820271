//! A measured figure and its spread.

/// The median of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// Spread: the distance from minimum to maximum, as a share of the median.
    pub spread: f64,
}

impl Figure {
    /// Summarises measurements; NaN for none.
    pub(super) fn of(mut samples: Vec<f64>) -> Figure {
        samples.sort_by(f64::total_cmp);
        let (Some(&least), Some(&greatest)) = (samples.first(), samples.last()) else {
            return Figure { median: f64::NAN, least: f64::NAN, spread: f64::NAN };
        };
        let half = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[half]
        } else {
            f64::midpoint(samples[half - 1], samples[half])
        };
        Figure { median, least, spread: (greatest - least) / median }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlier_affects_spread_alone() {
        assert_eq!(Figure::of(vec![9.0, 100.0, 10.0]), Figure { median: 10.0, least: 9.0, spread: 9.1 });
        assert_eq!(Figure::of(vec![4.0, 2.0]), Figure { median: 3.0, least: 2.0, spread: 2.0 / 3.0 });
        assert!(Figure::of(Vec::new()).median.is_nan());
    }
}
