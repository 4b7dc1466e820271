//! Tables.

use serde_json::Value;

use super::cell::Cell;

/// A column: its key in JSON and CSV (unit last), and its title in tables.
#[derive(Clone, Debug)]
pub struct Column {
    /// Such as `time_ms`.
    pub key: String,
    /// Such as `time, ms`.
    pub title: String,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Key of the rows in JSON.
    pub name: &'static str,
    /// Number of key columns, leftmost.
    pub keys: usize,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, with a cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Print each row as a block of lines, one per column.
    pub vertical: bool,
}

impl Table {
    /// An empty table with columns `(key, title)`, of which the first is the key column.
    pub fn new(name: &'static str, columns: &[(&str, &str)]) -> Table {
        let columns =
            columns.iter().map(|(key, title)| Column { key: (*key).into(), title: (*title).into() });
        Table { name, keys: 1, columns: columns.collect(), rows: Vec::new(), vertical: false }
    }

    /// With this number of key columns.
    pub fn with_keys(self, keys: usize) -> Table {
        Table { keys, ..self }
    }

    /// With each row printed as a block of lines, one per nonblank column.
    pub fn vertical(self) -> Table {
        Table { vertical: true, ..self }
    }

    /// Adds a column on the right, before any row is added.
    pub fn column(&mut self, key: impl Into<String>, title: impl Into<String>) {
        self.columns.push(Column { key: key.into(), title: title.into() });
    }

    /// Appends the columns of another table with the same rows, except for its first column.
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
