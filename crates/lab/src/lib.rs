//! The lab: a virtual machine made from a machine file, with a stock kernel, in which programs of the host run.
//!
//! [`run`] makes the machine that a machine file describes in QEMU ([`Layout`]), puts the program with its libraries into an
//! initial file system, boots, and comes back with what the program did ([`Outcome`]). The machine's memory is as slow as
//! the machine file says if memtide's clock plugin is there ([`Tools::clock`]); without it, it is a plain NUMA machine.

mod archive;
mod cache;
mod compare;
mod cxl;
mod damo;
mod error;
mod guest;
mod guest_clock;
mod guest_files;
mod host_files;
mod hotplug;
mod image;
mod layout;
mod libraries;
mod memory;
mod memtide;
mod modules;
mod numbers;
mod options;
mod outcome;
mod qemu;
mod result_cache;
mod run;
mod run_dir;
mod running;
mod setup;
mod shared;
mod spec;
mod subjects;
mod tools;

pub use cache::results_folder;
pub use compare::{Compared, Comparison, Step};
pub use damo::Damo;
pub use error::LabError;
pub use hotplug::Hotplug;
pub use layout::{GuestNode, Layout};
pub use memory::Memory;
pub use memtide::{Memtide, Policies};
pub use memtide_lab_protocol::agent::{MemoryPolicy, RegionOfInterest, Write};
pub use options::{GuestFile, Options, Output};
pub use outcome::{NodeOutcome, Outcome};
pub use run::run;
pub use running::{HotplugNode, Running, running};
pub use setup::{SetupOptions, SetupReport, setup};
pub use subjects::{SUBJECTS, Setting, Subject};
pub use tools::Tools;
