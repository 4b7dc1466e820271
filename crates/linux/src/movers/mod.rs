//! Moves pages between nodes.

mod frames;
mod move_pages;
mod transfer;

pub use move_pages::{Mover, nodes_of};
pub use transfer::{ProcMemory, ProcessMemory, Tally, Transfer};

pub use crate::sys::pagemap::Present;
