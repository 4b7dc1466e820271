//! A command's whole output.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::cell::Cell;
use super::escape::escaped;
use super::format::Format;
use super::layout;
use super::parquet;
use super::table::Table;
use crate::failure::Failure;

/// A command's output: facts, tables and notes.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Facts about the run, as `(key, value)`: machine, seed, version.
    pub about: Vec<(&'static str, Cell)>,
    /// Tables; CSV prints one of them only.
    pub tables: Vec<Table>,
    /// Name of the table that CSV prints; the last one if empty.
    pub main: &'static str,
    /// Notes, printed below the tables in the table format.
    pub notes: Vec<String>,
}

impl Document {
    /// A document of one table.
    pub fn of(table: Table) -> Document {
        Document { tables: vec![table], ..Document::default() }
    }

    /// Prints it on standard output.
    pub fn print(&self, format: Format) -> Result<(), Failure> {
        print(&self.text(format, layout::width_of(io::stdout())))
    }

    /// The text of a format; tables and notes wrap at `width` columns, if given.
    pub fn text(&self, format: Format, width: Option<usize>) -> String {
        match format {
            Format::Table => self.table(width),
            Format::Json => pretty(&self.json()),
            Format::Csv => self.csv(),
        }
    }

    fn table(&self, width: Option<usize>) -> String {
        let about = self.about.iter().filter(|(_, cell)| !cell.is_blank());
        let about: Vec<String> =
            about.map(|(key, cell)| format!("{} {}", key.replace('_', " "), cell.display())).collect();
        let paragraphs = |lines: &[String]| lines.iter().map(|line| layout::paragraph(line, width)).collect();
        let mut parts: Vec<String> = Vec::new();
        if about.iter().any(|line| line.len() > 60) {
            parts.push(paragraphs(&about));
        } else if !about.is_empty() {
            parts.push(paragraphs(&[about.join(", ")]));
        }
        // Of several tables, empty ones are left out.
        let shown = |table: &&Table| self.tables.len() == 1 || !table.rows.is_empty();
        parts.extend(self.tables.iter().filter(shown).map(|table| layout::table(table, width)));
        if !self.notes.is_empty() {
            parts.push(paragraphs(&self.notes));
        }
        escaped(&parts.join("\n")).into_owned()
    }

    /// The document as one JSON object.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.extend(self.about.iter().map(|(key, cell)| ((*key).to_owned(), cell.json())));
        object.extend(self.tables.iter().map(|table| (table.name.to_owned(), table.json())));
        Value::Object(object)
    }

    /// The main table as a Parquet file, with the facts as columns.
    pub fn parquet(&self) -> Vec<u8> {
        let Some(table) = self.main_table() else { return parquet::parquet(&[]) };
        let facts = self.about.iter().map(|(key, cell)| (*key, vec![cell; table.rows.len()]));
        let column = |index: usize| table.rows.iter().map(|row| &row[index]).collect();
        let columns = table.columns.iter().enumerate();
        let columns = columns.map(|(index, of)| (of.key.as_str(), column(index)));
        parquet::parquet(&facts.chain(columns).collect::<Vec<_>>())
    }

    fn main_table(&self) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == self.main).or(self.tables.last())
    }

    fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let Some(table) = self.main_table() else { return String::new() };
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

/// Writes to standard error; ignores errors, since the exit status is enough.
pub fn print_to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let mut table = Table::new("rows", &[("name", "name"), ("time_ms", "time, ms")]);
        table.rows = vec![vec![Cell::text("a, b"), Cell::Real(1.25, 1)], vec![Cell::text("c"), Cell::Absent]];
        Document { about: vec![("seed", Cell::Whole(7))], ..Document::of(table) }
    }

    #[test]
    fn csv_repeats_facts_in_each_row_and_quotes_cells() {
        assert_eq!(document().csv(), "seed,name,time_ms\n7,\"a, b\",1.25\n7,c,\n");
    }

    #[test]
    fn csv_has_main_table_wherever_it_is() {
        let mut two = document();
        two.tables.push(Table::new("others", &[("key", "key")]));
        assert_eq!(two.csv(), "seed,key\n");
        two.main = "rows";
        assert_eq!(two.csv(), document().csv());
    }

    #[test]
    fn json_keeps_numbers_exact_and_names_the_rows() {
        let json = document().json();
        assert_eq!(json["seed"], 7);
        assert_eq!(json["rows"][0]["time_ms"], 1.25);
        assert!(json["rows"][1]["time_ms"].is_null());
    }

    #[test]
    fn table_rounds_numbers_and_aligns_them_right() {
        assert_eq!(document().table(None), "seed 7\n\nname  time, ms\na, b       1.2\nc            -\n");
    }
}
