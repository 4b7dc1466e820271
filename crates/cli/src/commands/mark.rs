//! `memtide mark`.

use clap::ValueEnum;
use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};

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
    /// The machine is modelled from here on, but nothing is measured yet
    WarmUp,
    /// The region of interest begins
    Begin,
    /// It ends
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
