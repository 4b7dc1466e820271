//! Workloads for simulated and virtual machines: real algorithms, each written once and generic over
//! [`Memory`], and synthetic profiles of programs known by their measured traffic.
//!
//! A workload consists of parallel phases of items ([`Workload`]). Traced ([`program`]), it computes on one
//! host thread and returns every access with the load that its address depends on; native ([`native`]), it
//! runs on the host's own threads and memory.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod algorithms;
mod array;
mod buffer;
mod entry;
mod error;
mod hash_index;
mod info;
mod later;
mod memory;
mod messages;
mod native_run;
mod non_temporal;
mod params;
mod points;
mod profile;
mod random;
mod reduction;
mod registry;
mod run;
mod run_file;
mod sorted_index;
#[cfg(test)]
mod testing;
mod workload;
mod zipf;

pub use array::{Array, Element, Space};
pub use buffer::Buffer;
pub use entry::{BoxedProgram, OnMark};
pub use error::WorkloadError;
pub use info::Info;
pub use later::begin_later;
pub use memory::{Index, Loaded, Memory, Native, Origin, Traced};
pub use memtide_core::params::{Parameter, Params};
pub use messages::{MESSAGE_PARAMETERS, Messages, mapped_first};
pub use native_run::{Pace, run_native};
pub use params::Settings;
pub use profile::{Bandwidth, Burst, Domains, Locality, Profile, Stage, profiles};
pub use random::Random;
pub use registry::{list, native, program};
pub use run::TracedProgram;
pub use run_file::{RunFile, RunProgram, RunSource, START_MAX_MS};
pub use workload::{Algorithm, Phase, Workload, block};
pub use zipf::Zipf;
