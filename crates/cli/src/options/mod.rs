//! Options and value parsers that several commands share.

mod figures;
mod overrides;
pub mod share;

use std::time::Duration;

use clap::Args;

pub use figures::FiguresFile;
pub use overrides::{Overrides, Settings};

use crate::output::Format;

/// Options of commands that print tables.
#[derive(Clone, Copy, Debug, Args)]
pub struct Common {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    /// Seed for everything random; ignored by commands that draw nothing
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// A time above 0, in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|&seconds| seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or("expected a number of seconds above 0".to_owned())
}
