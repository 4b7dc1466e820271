//! A mean and its confidence interval.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest values for a Student's t interval; fewer use the range.
pub const LEAST_FOR_T: usize = 3;

/// Two-sided 95 % quantile of Student's t.
const UPPER: f64 = 0.975;

/// Mean of several values and its 95 % confidence interval (Student's t, for normally distributed values); of
/// one or two values, their range.
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
    /// Of one or more values.
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
    fn three_or_more_values_use_students_t() {
        // Tabulated t of 0.975 with 2 and 4 degrees of freedom: 4.3027 and 2.7764.
        let three = Interval::of(&[1.0, 2.0, 3.0]);
        assert_eq!(three.mean, 2.0);
        assert!((three.high - (2.0 + 4.30265 / 3.0_f64.sqrt())).abs() < 1e-4, "{three:?}");
        let five = Interval::of(&[2.0, 4.0, 4.0, 4.0, 6.0]);
        assert!((five.low - (4.0 - 2.77645 * (2.0_f64 / 5.0).sqrt())).abs() < 1e-4, "{five:?}");
    }

    #[test]
    fn fewer_values_use_their_range() {
        assert_eq!(Interval::of(&[3.0, 1.0]), Interval { mean: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Interval::of(&[3.0]), Interval { mean: 3.0, low: 3.0, high: 3.0 });
    }
}
