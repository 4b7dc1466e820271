//! Shares on the command line: `67%` or `0.67`.

/// A share from 0 to 1.
///
/// # Errors
/// A message for the command line's parser.
pub fn parse(text: &str) -> Result<f64, String> {
    let (digits, divisor) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text.trim(), 1.0),
    };
    let value: f64 =
        digits.trim().parse().map_err(|_| format!("'{text}' is not a share; write it as 67% or 0.67"))?;
    let share = value / divisor;
    if (0.0..=1.0).contains(&share) {
        return Ok(share);
    }
    Err(format!("'{text}' is outside 0% to 100%; write it as 67% or 0.67"))
}

/// A share above 0.
///
/// # Errors
/// As [`parse`].
pub fn parse_positive(text: &str) -> Result<f64, String> {
    match parse(text)? {
        0.0 => Err(format!("'{text}' must be above 0%")),
        share => Ok(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_fraction_are_equal() {
        assert_eq!(parse("67%"), parse("0.67"));
        assert_eq!(parse("100%"), Ok(1.0));
        assert_eq!(parse(" 5 % "), Ok(0.05));
    }

    #[test]
    fn invalid_shares_are_refused() {
        for text in ["67", "-1%", "101%", "x", "", "nan"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("67% or 0.67"), "{text}: {error}");
        }
        assert!(parse_positive("0%").unwrap_err().contains("above 0%"));
    }
}
