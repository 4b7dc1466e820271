//! Output formats.

use clap::ValueEnum;

/// How output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One object.
    Json,
    /// A header and one line a row; what holds for all rows is repeated in each.
    Csv,
}
