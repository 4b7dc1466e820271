//! Tables that several commands print, or that are long.

pub mod daemon;
pub mod processes;
pub mod simulated;
pub mod verdict;
