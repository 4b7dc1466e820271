//! memtide's policies: page placement at first touch, and page migration.
//!
//! A policy is one file in `placement/` or `migration/`, registered in the list there. [`parse`] documents
//! the syntax of policy names.

#![cfg_attr(
    not(test),
    warn(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)
)]

mod entry;
mod migration;
mod placement;
mod policy;
#[cfg(test)]
mod testing;
mod weights;

pub use entry::Info;
pub use memtide_core::params::{Kind, Parameter};
pub use migration::no_migration;
pub use policy::{Policy, PolicyError, at_time_scale, default_comparison, migrations, parse, placements};
