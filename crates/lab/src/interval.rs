//! A mean and how far it can be trusted.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest values for which Student's t gives an interval; with fewer it is from the least to the greatest.
pub const LEAST_FOR_T: usize = 3;

/// The quantile of Student's t that leaves 95 % between it and its negative.
const UPPER: f64 = 0.975;

/// A mean of several values, and the interval that holds the mean of all possible ones with 95 % confidence if they are
/// normally distributed (Student's t); of one or two values from the least to the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Interval {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < LEAST_FOR_T {
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            return Interval { mean, low: least, high: greatest };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("degrees of freedom above 0");
        let half = student.inverse_cdf(UPPER) * (variance / count).sqrt();
        Interval { mean, low: mean - half, high: mean + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_values_or_more_get_students_interval() {
        // t of 0.975 with 2 and 4 degrees of freedom: 4.3027 and 2.7764 in every table of it.
        let three = Interval::of(&[1.0, 2.0, 3.0]);
        assert_eq!(three.mean, 2.0);
        assert!((three.high - (2.0 + 4.30265 / 3.0_f64.sqrt())).abs() < 1e-4, "{three:?}");
        let five = Interval::of(&[2.0, 4.0, 4.0, 4.0, 6.0]);
        assert!((five.low - (4.0 - 2.77645 * (2.0_f64 / 5.0).sqrt())).abs() < 1e-4, "{five:?}");
    }

    #[test]
    fn fewer_get_their_range() {
        assert_eq!(Interval::of(&[3.0, 1.0]), Interval { mean: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Interval::of(&[3.0]), Interval { mean: 3.0, low: 3.0, high: 3.0 });
    }
}
