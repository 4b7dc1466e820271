//! Tests in the lab: real kernels in virtual machines with modelled clocks. One test program, so that long
//! and short tests run in parallel. `lab_ends.rs` is separate: it checks for leftovers, which other runs
//! would add.

mod access_samples;
#[path = "../../../lab-model/tests/support/closed_form.rs"]
mod closed_form;
mod compare;
mod conformance;
mod costs;
mod counters;
mod cxl;
mod daemon;
mod damo;
mod doctor;
mod exact;
mod faults;
mod fidelity;
mod hints;
mod host_load;
mod hot_set;
mod huge_pages;
mod measure;
mod monitors;
mod nodes;
mod non_temporal;
mod place;
mod shared_memory;
mod shell;
mod steady;
#[path = "../support/mod.rs"]
mod support;
mod topo;
mod truth;
