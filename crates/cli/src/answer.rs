//! What a command answers, as a table for people, as JSON or as CSV.

use std::io::{self, Write};

use chrono::{DateTime, SecondsFormat};
use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::layout;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One object.
    Json,
    /// A header and one line a row; what holds for all rows is repeated in each.
    Csv,
}

/// One value.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// Whether something holds, and the word for it, which people see where it does.
    Flag(bool, &'static str),
    /// A count.
    Whole(u64),
    /// Words that belong together: in JSON a list.
    List(Vec<String>),
    /// A figure, shown with as many digits after the point, or more where it is so small that two would not count; JSON and
    /// CSV have it as it is.
    Real(f64, usize),
    /// A share, shown as per cent; 1 is 100 % in JSON and CSV.
    Percent(f64),
    /// A time in seconds since 1970, shown as a date and time in UTC.
    UnixTime(u64),
    /// Not known or not meant.
    Absent,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// As people see it.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Flag(holds, word) => if *holds { *word } else { "" }.to_owned(),
            Cell::Whole(number) => number.to_string(),
            Cell::List(words) => words.join(" "),
            Cell::Real(number, digits) => {
                let digits = counting_digits(*number).max(*digits);
                format!("{number:.digits$}")
            }
            Cell::Percent(share) => format!("{:.1}", share * 100.0),
            Cell::UnixTime(seconds) => date_time(*seconds),
            Cell::Absent => "-".to_owned(),
        }
    }

    /// Whether people need not see it: what does not hold, or is not known.
    pub fn says_nothing(&self) -> bool {
        matches!(self, Cell::Flag(false, _) | Cell::Absent)
    }

    fn exact(&self) -> String {
        match self {
            Cell::Real(number, _) | Cell::Percent(number) => number.to_string(),
            Cell::Flag(holds, _) => holds.to_string(),
            Cell::UnixTime(seconds) => seconds.to_string(),
            Cell::Absent => String::new(),
            other => other.shown(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => text.as_str().into(),
            Cell::Flag(holds, _) => (*holds).into(),
            Cell::Whole(number) | Cell::UnixTime(number) => (*number).into(),
            Cell::List(words) => words.as_slice().into(),
            Cell::Real(number, _) | Cell::Percent(number) => (*number).into(),
            Cell::Absent => Value::Null,
        }
    }

    /// Whether it is a figure, known or not.
    pub fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_) | Cell::List(_) | Cell::Flag(..))
    }
}

/// Digits after the point with which two of a small figure count; 0 of one from 10 on, of 0 and of what is no number.
fn counting_digits(number: f64) -> usize {
    if number == 0.0 || !number.is_finite() {
        return 0;
    }
    (1.0 - number.abs().log10().floor()).clamp(0.0, 300.0) as usize
}

/// As RFC 3339 has it; the bare number if it is beyond all calendars.
fn date_time(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| unix_s.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// A column: its key in JSON and CSV (unit last), and its title for people.
#[derive(Clone, Debug)]
pub struct Column {
    /// Such as `time_ms`.
    pub key: String,
    /// Such as `time, ms`.
    pub title: String,
}

/// Rows of like things.
#[derive(Clone, Debug)]
pub struct Table {
    /// What the rows are, as the key in JSON.
    pub name: &'static str,
    /// How many columns at the left tell what a row is about.
    pub keys: usize,
    /// Columns.
    pub columns: Vec<Column>,
    /// One cell a column in each.
    pub rows: Vec<Vec<Cell>>,
    /// Whether people see each row as a block of lines, one a column.
    pub upright: bool,
}

impl Table {
    /// An empty table with columns given as `(key, title)`, the first of which tells what a row is about.
    pub fn new(name: &'static str, columns: &[(&str, &str)]) -> Table {
        let columns =
            columns.iter().map(|(key, title)| Column { key: (*key).into(), title: (*title).into() });
        Table { name, keys: 1, columns: columns.collect(), rows: Vec::new(), upright: false }
    }

    /// The table, of whose columns so many tell what a row is about.
    pub fn with_keys(self, keys: usize) -> Table {
        Table { keys, ..self }
    }

    /// The table, of which people see each row as a block of lines, one a column that says something.
    pub fn upright(self) -> Table {
        Table { upright: true, ..self }
    }

    /// Adds a column on the right. To be done before rows.
    pub fn column(&mut self, key: impl Into<String>, title: impl Into<String>) {
        self.columns.push(Column { key: key.into(), title: title.into() });
    }

    /// This table with the columns of another one, its first left out, on the right.
    pub fn beside(mut self, right: Table) -> Table {
        self.columns.extend(right.columns.into_iter().skip(1));
        for (row, more) in self.rows.iter_mut().zip(right.rows) {
            row.extend(more.into_iter().skip(1));
        }
        self
    }

    fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let entries =
                self.columns.iter().zip(row).map(|(column, cell)| (column.key.clone(), cell.json()));
            Value::Object(entries.collect())
        };
        self.rows.iter().map(object).collect()
    }
}

/// All that a command answers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// What holds for the whole answer, as `(key, value)`: machine, seed, version.
    pub about: Vec<(&'static str, Cell)>,
    /// Tables; CSV has the last alone.
    pub tables: Vec<Table>,
    /// Sentences for people, below.
    pub notes: Vec<String>,
}

impl Answer {
    /// An answer that is one table.
    pub fn of(table: Table) -> Answer {
        Answer { tables: vec![table], ..Answer::default() }
    }

    /// Prints it on standard output.
    pub fn print(&self, format: Format) -> Result<(), Failure> {
        print(&self.text(format, layout::width_of(io::stdout())))
    }

    /// The answer as it is printed; for people, tables and sentences keep to the width if there is one.
    pub fn text(&self, format: Format, width: Option<usize>) -> String {
        match format {
            Format::Table => self.table(width),
            Format::Json => pretty(&self.json()),
            Format::Csv => self.csv(),
        }
    }

    fn table(&self, width: Option<usize>) -> String {
        let about = self.about.iter().filter(|(_, cell)| !cell.says_nothing());
        let about: Vec<String> =
            about.map(|(key, cell)| format!("{} {}", key.replace('_', " "), cell.shown())).collect();
        let paragraphs = |lines: &[String]| lines.iter().map(|line| layout::paragraph(line, width)).collect();
        let mut parts: Vec<String> = Vec::new();
        if about.iter().any(|line| line.len() > 60) {
            parts.push(paragraphs(&about));
        } else if !about.is_empty() {
            parts.push(paragraphs(&[about.join(", ")]));
        }
        // Of several tables those without rows say nothing.
        let shown = |table: &&Table| self.tables.len() == 1 || !table.rows.is_empty();
        parts.extend(self.tables.iter().filter(shown).map(|table| layout::table(table, width)));
        if !self.notes.is_empty() {
            parts.push(paragraphs(&self.notes));
        }
        parts.join("\n")
    }

    /// The answer as one object.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.extend(self.about.iter().map(|(key, cell)| ((*key).to_owned(), cell.json())));
        object.extend(self.tables.iter().map(|table| (table.name.to_owned(), table.json())));
        Value::Object(object)
    }

    fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let Some(table) = self.tables.last() else { return String::new() };
        let header =
            self.about.iter().map(|(key, _)| *key).chain(table.columns.iter().map(|c| c.key.as_str()));
        let mut written = writer.write_record(header);
        for row in &table.rows {
            let record = self.about.iter().map(|(_, cell)| cell).chain(row).map(Cell::exact);
            written = written.and_then(|()| writer.write_record(record));
        }
        written.expect("records of equal length go into memory");
        String::from_utf8(writer.into_inner().expect("memory takes all")).expect("cells are text")
    }
}

/// A JSON value over several lines.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::unwritable("standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let mut table = Table::new("rows", &[("name", "name"), ("time_ms", "time, ms")]);
        table.rows = vec![vec![Cell::text("a, b"), Cell::Real(1.25, 1)], vec![Cell::text("c"), Cell::Absent]];
        Answer { about: vec![("seed", Cell::Whole(7))], ..Answer::of(table) }
    }

    #[test]
    fn csv_repeats_what_holds_for_all_and_quotes_what_must_be() {
        assert_eq!(answer().csv(), "seed,name,time_ms\n7,\"a, b\",1.25\n7,c,\n");
    }

    #[test]
    fn json_keeps_figures_exact_and_names_the_rows() {
        let json = answer().json();
        assert_eq!(json["seed"], 7);
        assert_eq!(json["rows"][0]["time_ms"], 1.25);
        assert!(json["rows"][1]["time_ms"].is_null());
        let flags = [true, false].map(|holds| Cell::Flag(holds, "so"));
        assert_eq!(flags.clone().map(|cell| cell.json()), [Value::from(true), Value::from(false)]);
        assert_eq!(flags.map(|cell| cell.shown()), ["so", ""]);
    }

    #[test]
    fn people_see_dates_and_programs_seconds() {
        let time = Cell::UnixTime(1_700_000_000);
        assert_eq!(
            (time.shown(), time.exact()),
            ("2023-11-14T22:13:20Z".to_owned(), "1700000000".to_owned())
        );
        assert_eq!(time.json(), 1_700_000_000);
        assert_eq!(Cell::UnixTime(u64::MAX).shown(), u64::MAX.to_string());
    }

    #[test]
    fn the_table_rounds_and_aligns_numbers_right() {
        let shown = |number, digits| Cell::Real(number, digits).shown();
        assert_eq!([shown(0.0012, 3), shown(0.001, 2), shown(0.5, 0)], ["0.0012", "0.0010", "0.50"]);
        assert_eq!([shown(0.0, 2), shown(12.3, 0), shown(1234.0, 0)], ["0.00", "12", "1234"]);
        assert_eq!(answer().table(None), "seed 7\n\nname  time, ms\na, b       1.2\nc            -\n");
    }
}
