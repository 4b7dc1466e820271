//! Moves pages between nodes, and splits huge ones.

mod frames;
mod move_pages;
mod split;
mod transfer;

pub use move_pages::{Mover, nodes_of};
pub use split::split;
pub use transfer::{ProcMemory, ProcessMemory, Tally, Transfer};

pub use crate::sys::pagemap::Present;
