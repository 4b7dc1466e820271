//! Migration policies, one file each.

mod anb;
mod bw_migration;
mod hot_cold;
mod none;
mod runs;
mod shared;
mod trigger;

use crate::entry::MigrationEntry;

/// Every migration policy.
pub(crate) const ALL: &[MigrationEntry] = &[none::ENTRY, anb::ENTRY, bw_migration::ENTRY, hot_cold::ENTRY];

#[cfg(test)]
mod tests;
