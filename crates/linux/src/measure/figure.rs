//! A figure and how sure it is.

/// The median of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// How far the least and the greatest are apart, as a share of the median.
    pub spread: f64,
}

impl Figure {
    /// Of some measurements; of none, a figure that is no number.
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
    fn an_outlier_shows_in_the_spread_alone() {
        assert_eq!(Figure::of(vec![9.0, 100.0, 10.0]), Figure { median: 10.0, least: 9.0, spread: 9.1 });
        assert_eq!(Figure::of(vec![4.0, 2.0]), Figure { median: 3.0, least: 2.0, spread: 2.0 / 3.0 });
        assert!(Figure::of(Vec::new()).median.is_nan());
    }
}
