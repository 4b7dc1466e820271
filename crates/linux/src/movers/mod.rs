//! How pages get from one node to another.

mod move_pages;

pub use move_pages::{Mover, nodes_of};
