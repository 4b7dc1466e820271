//! Tables.

use serde_json::Value;

use super::cell::Cell;

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
    pub vertical: bool,
}

impl Table {
    /// An empty table with columns given as `(key, title)`, the first of which tells what a row is about.
    pub fn new(name: &'static str, columns: &[(&str, &str)]) -> Table {
        let columns =
            columns.iter().map(|(key, title)| Column { key: (*key).into(), title: (*title).into() });
        Table { name, keys: 1, columns: columns.collect(), rows: Vec::new(), vertical: false }
    }

    /// The table, of whose columns so many tell what a row is about.
    pub fn with_keys(self, keys: usize) -> Table {
        Table { keys, ..self }
    }

    /// The table, of which people see each row as a block of lines, one a column that says something.
    pub fn vertical(self) -> Table {
        Table { vertical: true, ..self }
    }

    /// Adds a column on the right. To be done before rows.
    pub fn column(&mut self, key: impl Into<String>, title: impl Into<String>) {
        self.columns.push(Column { key: key.into(), title: title.into() });
    }

    /// This table with the columns of another one, its first left out, on the right.
    pub fn join(mut self, right: Table) -> Table {
        self.columns.extend(right.columns.into_iter().skip(1));
        for (row, more) in self.rows.iter_mut().zip(right.rows) {
            row.extend(more.into_iter().skip(1));
        }
        self
    }

    /// The rows as a list of objects.
    pub fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let entries =
                self.columns.iter().zip(row).map(|(column, cell)| (column.key.clone(), cell.json()));
            Value::Object(entries.collect())
        };
        self.rows.iter().map(object).collect()
    }
}
