//! Output formats.

use clap::ValueEnum;

/// How output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Rounded figures, for people.
    Table,
    /// One object with exact figures.
    Json,
    /// A header and one line per row.
    Csv,
}
