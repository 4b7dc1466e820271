//! Moves pages between nodes, splits huge ones, and collapses base pages.

mod collapse;
mod frames;
mod move_pages;
mod split;
mod transfer;

pub use collapse::collapse;
pub use move_pages::{Moved, Mover, nodes_of};
pub use split::split;
pub use transfer::{ProcMemory, ProcessMemory, Tally, Transfer};

pub use crate::sys::pagemap::Present;
