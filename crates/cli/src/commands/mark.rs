//! `memtide mark`.

use clap::ValueEnum;
use memtide_guest::mark::{BEGIN, END, mark};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which mark
    #[arg(value_enum)]
    edge: Edge,
}

/// Marks of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Edge {
    /// The region of interest begins
    Begin,
    /// It ends
    End,
}

/// Makes the mark.
pub fn run(arguments: &Arguments) {
    let command = match arguments.edge {
        Edge::Begin => BEGIN,
        Edge::End => END,
    };
    mark(command, 0);
}
