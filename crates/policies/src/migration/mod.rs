//! Migration policies, one file each.

mod anb;
mod bdm;
mod bw_migration;
mod groups;
mod hanb;
mod heterovisor;
mod hot_cold;
mod hot_threshold;
mod linux_tiering;
mod memos;
mod none;
mod pms;
mod relative_heat;
mod room;
mod runs;
mod shared;
mod spread;
mod trigger;
mod utility_cache;
mod vertical;

use memtide_core::policy::Migration;

use crate::entry::MigrationEntry;

/// Every migration policy.
pub(crate) const ALL: &[MigrationEntry] = &[
    none::ENTRY,
    anb::ENTRY,
    bdm::ENTRY,
    bw_migration::ENTRY,
    hanb::ENTRY,
    heterovisor::ENTRY,
    hot_cold::ENTRY,
    hot_threshold::ENTRY,
    linux_tiering::ENTRY,
    memos::ENTRY,
    pms::ENTRY,
    relative_heat::ENTRY,
    utility_cache::ENTRY,
    vertical::ENTRY,
];

/// The policy `none`: pages stay.
pub fn no_migration() -> Box<dyn Migration> {
    Box::new(none::Stay)
}

#[cfg(test)]
mod tests;
