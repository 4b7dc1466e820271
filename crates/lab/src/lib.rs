//! The lab: a virtual machine made from a machine file, with a stock kernel, in which programs of the host
//! run.
//!
//! ```text
//! Options --Layout::with--> Layout (nodes, CPUs, addresses)
//!         --GuestSpec::new--> GuestSpec (all that the guest is)
//!              |-- guest_files::archive --> files of the guest, and its agent's task
//!              |-- CommandLine::arguments --> QEMU's command line
//!              |-- clock plugin's configuration
//!              '-- result_cache::key (compare)
//!         --Guest::start, watch, finish--> RunOutcome
//! ```
//!
//! [`run`] does this for one program; [`Comparison`] for each subject, whose [`Setting`] it puts into the
//! `GuestSpec`. With memtide's clock plugin ([`Tools::clock`]), memory has the machine file's latencies;
//! without it, the guest is a plain NUMA machine. A file imports only from files below it.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod archive;
mod cache;
mod compare;
mod cxl;
mod damo;
mod error;
mod free_memory;
mod guest;
mod guest_clock;
mod guest_files;
mod host_files;
mod hotplug;
mod image;
mod interval;
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
mod time_scale;
mod tools;

pub use cache::{cache_folder, results_folder};
pub use compare::{Compared, Comparison, Step};
pub use damo::Damo;
pub use error::{LabError, Remedy};
pub use hotplug::Hotplug;
pub use interval::{Interval, LEAST_FOR_T};
pub use layout::{GuestNode, Layout};
pub use memory::Memory;
pub use memtide::{Memtide, Policies};
pub use memtide_lab_protocol::agent::{MemoryPolicy, RegionOfInterest, Write};
pub use options::{GuestFile, Options, Output};
pub use outcome::{NodeOutcome, RunOutcome};
pub use run::run;
pub use running::{HotplugNode, Running, running};
pub use setup::{SetupOptions, SetupReport, setup};
pub use subjects::{SUBJECTS, Setting, Subject};
pub use time_scale::TimeScale;
pub use tools::Tools;
