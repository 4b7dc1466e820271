//! The simulated machine: cores and an operating system over memtide's memory model.
//!
//! [`run`] takes a machine, programs and a policy, and gives a [`Report`]. It is deterministic: the same
//! inputs and seed give the same report on any host. What it leaves out is listed in `docs/simulator.md`.

#![cfg_attr(
    not(test),
    warn(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)
)]

mod agenda;
mod comparison;
mod core;
mod engine;
mod os;
mod report;
mod samples;
mod sensors;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod thread;

use memtide_core::epoch::Limits;
use memtide_core::machine::Machine;
use memtide_core::policy::{Migration, Placement, SensorRefused};
use memtide_core::{CpuId, NodeId, Program, ProgramError, ThreadId, Time};

pub use self::comparison::{Comparison, Reach};
pub use self::report::{
    LatencyReport, LinkReport, MoveReport, NodeReport, PagesReport, Report, SensorReport, TimeReport,
    TimelineReport, WearReport,
};

/// A program to run and where.
pub struct Job<'p> {
    /// Its name, for reports.
    pub name: String,
    /// What it does.
    pub program: Box<dyn Program + Send + 'p>,
    /// The CPUs its threads run on, in turn. If empty: all CPUs, spread over the initiators.
    pub cpus: Vec<CpuId>,
}

/// A policy to run under, made for the machine before its scale is carried out: its epoch and its monitor's
/// intervals are divided by the scale, too.
pub struct Policy {
    /// Chooses nodes at first touch.
    pub placement: Box<dyn Placement>,
    /// Moves pages later; none moves nothing.
    pub migration: Option<Box<dyn Migration>>,
    /// How much may move.
    pub limits: Limits,
    /// Nodes that go offline, and when, in simulated time; one that has pages in use then stays online.
    pub unplugs: Vec<(Time, NodeId)>,
}

impl Policy {
    /// A policy without limits, on a machine whose nodes stay.
    pub fn new(placement: Box<dyn Placement>, migration: Option<Box<dyn Migration>>) -> Policy {
        Policy { placement, migration, limits: Limits::default(), unplugs: Vec::new() }
    }
}

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A program cannot go on.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A program uses an address that no process has.
    #[error("thread {} accesses address {address:#x}; user addresses end at 2^48", thread.0)]
    Address {
        /// The address.
        address: u64,
        /// Who uses it.
        thread: ThreadId,
    },
    /// All memory is in use and none can be reclaimed.
    #[error("out of memory: node {} is full and none of its pages can be reclaimed; use a smaller workload or scale", node.0)]
    OutOfMemory {
        /// The node.
        node: NodeId,
    },
    /// A program's threads wait for each other for ever, use threads that they have not, go on without end
    /// doing nothing, or are too many processes.
    #[error("program '{program}' cannot continue: {why}")]
    Broken {
        /// Its name.
        program: String,
        /// What is wrong.
        why: String,
    },
    /// The machine is larger than the model can number or hold.
    #[error(
        "machine '{machine}' is too large to simulate at its scale, with {memory_gib} GiB of memory: at most 1024 GiB \
         (128 GiB for each set of a cache) and 8 GiB of caches and TLB entries; raise its scale"
    )]
    TooLarge {
        /// Its name.
        machine: String,
        /// Its memory at its scale, in GiB.
        memory_gib: u64,
    },
    /// A program's instructions take longer than a run may.
    #[error(
        "program '{program}' runs for more than 53 days of simulated time: a thread retires {instructions} instructions; \
         check the trace's instruction counts"
    )]
    TooLong {
        /// Its name.
        program: String,
        /// Instructions of the thread, those that take too long included.
        instructions: u64,
    },
    /// The program leaves memory alone for so long that monitoring idle memory would never end.
    #[error(
        "no access to memory in {idle_seconds:.3} s of simulated time, while the policy's monitoring had {rounds} rounds; \
         check the trace's instruction counts, or choose longer intervals for the policy"
    )]
    Idle {
        /// Simulated time since the last access.
        idle_seconds: f64,
        /// Rounds of monitoring without an access, in the whole run.
        rounds: u64,
    },
    /// The policy requires a sensor that the simulator does not have.
    #[error(transparent)]
    Sensor(#[from] SensorRefused),
    /// Whoever watches the run has stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// Runs programs on a machine under a policy, from their start until all have ended.
///
/// The machine's `scale` is carried out. `watch` is called now and then with the share of the work that is
/// done, if that is known; the run stops when it returns false.
///
/// # Errors
/// See [`SimError`].
pub fn run(
    machine: &Machine,
    jobs: Vec<Job<'_>>,
    policy: Policy,
    seed: u64,
    watch: &mut dyn FnMut(Option<f64>) -> bool,
) -> Result<Report, SimError> {
    let mut engine = engine::Engine::new(machine, jobs, policy, seed)?;
    engine.run(watch)?;
    Ok(engine.report())
}
