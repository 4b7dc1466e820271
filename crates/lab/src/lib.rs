//! The lab: a virtual machine made from a machine file, with a stock kernel, in which programs of the host run.
//!
//! [`run`] makes the machine that a machine file describes in QEMU ([`Layout`]), puts the program with its libraries into an
//! initial file system, boots, and comes back with what the program did ([`Outcome`]). The machine's memory is as slow as
//! the machine file says if memtide's clock plugin is there ([`Tools::clock`]); without it, it is a plain NUMA machine.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod archive;
mod compare;
mod cxl;
mod damo;
mod error;
mod guest;
mod image;
mod kept;
mod layout;
mod libraries;
mod live;
mod memory;
mod modules;
mod numbers;
mod options;
mod outcome;
mod plug;
mod program;
mod qemu;
mod run;
mod running;
mod setup;
mod shared;
mod subjects;
mod tools;
mod work;

pub use compare::{Compared, Comparison, Step};
pub use damo::Damo;
pub use error::LabError;
pub use layout::{GuestNode, Layout};
pub use live::{Live, Policies};
pub use memory::Memory;
pub use memtide_guest::{MemoryPolicy, Region, Write};
pub use options::{GuestFile, Options, Output};
pub use outcome::{NodeOutcome, Outcome};
pub use plug::Plug;
pub use run::run;
pub use running::{Pluggable, Running, running};
pub use setup::{SetupOptions, SetupReport, results_folder, setup};
pub use subjects::{SUBJECTS, Setting, Subject};
pub use tools::Tools;
