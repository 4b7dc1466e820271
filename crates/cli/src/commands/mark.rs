//! `memtide mark`.

use clap::ValueEnum;
use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Mark to set
    #[arg(value_enum)]
    edge: Edge,
}

/// Marks of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Edge {
    /// Start the model without measuring
    WarmUp,
    /// Begin the region of interest
    Begin,
    /// End the region of interest
    End,
}

/// Makes the mark.
pub fn run(arguments: &Arguments) {
    let command = match arguments.edge {
        Edge::WarmUp => WARM_UP,
        Edge::Begin => BEGIN,
        Edge::End => END,
    };
    mark(command, 0);
}
