//! What memtide promises in the lab: on real kernels in virtual machines whose clocks feel the machine. One program, so that long tests
//! run beside short ones; `lab_ends.rs`, which looks for what other runs would leave, is another one.

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
mod measure;
mod monitors;
mod nodes;
mod place;
mod shell;
#[path = "../support/mod.rs"]
mod support;
mod topo;
mod truth;
