//! The real machine, as a stock Linux kernel shows it.

pub mod measure;
mod sys;
pub mod topology;
