//! The simulator against closed forms, statements of papers and invariants. One program, to link once.

mod banks;
mod bound;
mod cache_quota;
mod closed_forms;
mod conformance;
mod copy_on_write;
mod freeze;
mod heat;
mod huge_pages;
mod idle;
mod memos;
mod migration;
mod mix;
mod non_temporal;
mod oracle;
mod os;
mod profiles;
mod reductions;
mod regions;
mod room;
#[path = "support/runs.rs"]
mod runs;
mod sensors;
mod service_levels;
mod shared;
mod stages;
mod support;
mod tiering;
mod time;
mod timeline;
mod tlb_misses;
