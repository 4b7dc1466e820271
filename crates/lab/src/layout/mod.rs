//! The virtual machine that a machine file describes.

mod addresses;
mod build;
mod nodes;

pub use nodes::{GuestNode, Layout};
