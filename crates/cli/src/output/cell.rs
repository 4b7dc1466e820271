//! Values of tables.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::escape::escaped_line;

/// One value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A boolean, and the word printed in tables if it is true.
    Flag(bool, Cow<'static, str>),
    /// A boolean, printed as yes or no in tables.
    YesNo(bool),
    /// A count.
    Whole(u64),
    /// A list of texts; a list in JSON, too.
    List(Vec<String>),
    /// A figure and its number of decimals in tables, increased for small figures until two digits are
    /// significant. JSON and CSV are not rounded.
    Real(f64, usize),
    /// A share, printed as per cent in tables; 1 is 100 % in JSON and CSV.
    Percent(f64),
    /// A time in seconds since 1970, printed in tables as date and time in UTC.
    UnixTime(u64),
    /// Unknown, or not applicable.
    Absent,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Text in tables: one line, safe for a terminal.
    pub fn display(&self) -> String {
        match self {
            Cell::Text(text) => escaped_line(text).into_owned(),
            Cell::Flag(holds, word) => if *holds { word } else { "" }.to_owned(),
            Cell::YesNo(holds) => if *holds { "yes" } else { "no" }.to_owned(),
            Cell::Whole(number) => number.to_string(),
            Cell::List(words) => escaped_line(&words.join(" ")).into_owned(),
            Cell::Real(number, digits) => {
                let digits = counting_digits(*number).max(*digits);
                format!("{number:.digits$}")
            }
            Cell::Percent(share) => format!("{:.1}", share * 100.0),
            Cell::UnixTime(seconds) => date_time(*seconds),
            Cell::Absent => "-".to_owned(),
        }
    }

    /// Whether tables may leave it out: false or absent.
    pub fn is_blank(&self) -> bool {
        matches!(self, Cell::Flag(false, _) | Cell::Absent)
    }

    /// The text for CSV, not rounded.
    pub fn exact(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::List(words) => words.join(" "),
            Cell::Real(number, _) | Cell::Percent(number) => number.to_string(),
            Cell::Flag(holds, _) | Cell::YesNo(holds) => holds.to_string(),
            Cell::UnixTime(seconds) => seconds.to_string(),
            Cell::Absent => String::new(),
            other => other.display(),
        }
    }

    /// The JSON value, not rounded.
    pub fn json(&self) -> Value {
        match self {
            Cell::Text(text) => text.as_str().into(),
            Cell::Flag(holds, _) | Cell::YesNo(holds) => (*holds).into(),
            Cell::Whole(number) | Cell::UnixTime(number) => (*number).into(),
            Cell::List(words) => words.as_slice().into(),
            Cell::Real(number, _) | Cell::Percent(number) => (*number).into(),
            Cell::Absent => Value::Null,
        }
    }

    /// The number in it, for calculations.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Whole(number) | Cell::UnixTime(number) => Some(*number as f64),
            Cell::Real(number, _) | Cell::Percent(number) => Some(*number),
            Cell::Text(_) | Cell::List(_) | Cell::Flag(..) | Cell::YesNo(_) | Cell::Absent => None,
        }
    }

    /// Whether it is a number, or an absent one.
    pub fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_) | Cell::List(_) | Cell::Flag(..))
    }
}

/// Decimals that show two significant digits of a small number; 0 for 0, NaN, infinity, and numbers from 10
/// on.
fn counting_digits(number: f64) -> usize {
    if number == 0.0 || !number.is_finite() {
        return 0;
    }
    (1.0 - number.abs().log10().floor()).clamp(0.0, 300.0) as usize
}

/// In RFC 3339; the plain number if out of range.
fn date_time(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| unix_s.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_in_tables_and_seconds_elsewhere() {
        let time = Cell::UnixTime(1_700_000_000);
        assert_eq!(
            (time.display(), time.exact()),
            ("2023-11-14T22:13:20Z".to_owned(), "1700000000".to_owned())
        );
        assert_eq!(time.json(), 1_700_000_000);
        assert_eq!(Cell::UnixTime(u64::MAX).display(), u64::MAX.to_string());
    }

    #[test]
    fn flags_are_booleans_in_json_and_words_in_tables() {
        let flags = [true, false].map(|holds| Cell::Flag(holds, "so".into()));
        assert_eq!(flags.clone().map(|cell| cell.json()), [Value::from(true), Value::from(false)]);
        assert_eq!(flags.map(|cell| cell.display()), ["so", ""]);
    }

    #[test]
    fn small_numbers_keep_two_significant_digits() {
        let shown = |number, digits| Cell::Real(number, digits).display();
        assert_eq!([shown(0.0012, 3), shown(0.001, 2), shown(0.5, 0)], ["0.0012", "0.0010", "0.50"]);
        assert_eq!([shown(0.0, 2), shown(12.3, 0), shown(1234.0, 0)], ["0.00", "12", "1234"]);
    }
}
