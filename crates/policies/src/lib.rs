//! memtide's policies: where pages are placed at first touch and how they migrate later.
//!
//! A policy is one file in `placement/` or `migration/`, registered by its line in the list there. On a
//! command line it is named as [`parse`] says.

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
pub use policy::{Policy, PolicyError, default_comparison, migrations, parse, placements};
