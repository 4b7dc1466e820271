//! Output of commands: as tables, JSON or CSV.

mod cell;
mod document;
mod escape;
mod file;
mod format;
mod layout;
mod parquet;
mod table;

pub use cell::Cell;
pub use document::{Document, pretty, print, print_to_stderr};
pub use escape::escaped;
pub use file::{folder_of, temporary};
pub use format::Format;
pub use layout::{paragraph, width_of};
pub use table::{Column, Table};

/// This version of memtide.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
