//! The simulated machine: cores and an operating system on top of memtide's memory model.
//!
//! [`run`] takes a machine, programs and a policy, and returns a [`Report`]. It is deterministic: the same
//! inputs and seed give the same report on any host. `docs/simulator.md` lists what is not modelled.

#![cfg_attr(
    not(test),
    warn(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, clippy::disallowed_types)
)]

mod agenda;
mod bound;
mod comparison;
mod core;
mod cpus;
mod engine;
mod feed;
mod heat;
mod oracle;
mod os;
mod report;
mod samples;
mod sensors;
mod shared;
mod stages;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod thread;
mod totals;

use memtide_core::epoch::Limits;
use memtide_core::machine::Machine;
use memtide_core::policy::{Migration, Placement, SensorRefused};
use memtide_core::{CpuId, NodeId, Program, ProgramError, ThreadId, Time};

pub use self::bound::{Bound, IdealRun, Unbounded, bound};
pub use self::comparison::{Comparison, Level, ORACLE, Reach};
pub use self::cpus::assigned_cpus;
use self::feed::Load;
pub use self::oracle::{ORACLE_PLANS, PagePlan, PageReads, Window, oracle_policies};
pub use self::report::{
    BankReport, ChannelReport, EnergyReport, FullReport, HeatMapReport, HeatRow, KernelReport, LatencyReport,
    LinkReport, MoveReport, NodeReport, PageSamplesReport, PagesReport, Report, SampledNode, SensorReport,
    StageReport, TimeReport, TimelineReport, WearReport,
};
pub use self::shared::{can_share, run_shared, run_shared_with_bound};

/// A program and its CPUs.
pub struct Job<'p> {
    /// Its name, for reports.
    pub name: String,
    /// The program.
    pub program: Box<dyn Program + Send + 'p>,
    /// CPUs that its threads run on, assigned in turn from that of the run's first thread on. If empty: all
    /// CPUs, spread over the initiators.
    pub cpus: Vec<CpuId>,
    /// When its first thread starts, in simulated time.
    pub start: Time,
}

impl<'p> Job<'p> {
    /// A program that starts with the run, on all CPUs.
    pub fn new(name: impl Into<String>, program: Box<dyn Program + Send + 'p>) -> Job<'p> {
        Job { name: name.into(), program, cpus: Vec::new(), start: Time::ZERO }
    }
}

/// A policy, created for the machine before it is reduced: its epoch and its monitor's intervals are divided
/// by the scale, too.
pub struct Policy {
    /// Chooses nodes at first touch.
    pub placement: Box<dyn Placement>,
    /// Moves pages later; `None` never moves any.
    pub migration: Option<Box<dyn Migration>>,
    /// Limits of migration.
    pub limits: Limits,
    /// Nodes that go offline, and when, in simulated time; one with pages in use then stays online.
    pub unplugs: Vec<(Time, NodeId)>,
    /// Nodes of single pages, instead of the placement's, and their moves.
    pub plan: Option<PagePlan>,
}

impl Policy {
    /// A policy without limits, on a machine whose nodes stay online.
    pub fn new(placement: Box<dyn Placement>, migration: Option<Box<dyn Migration>>) -> Policy {
        Policy { placement, migration, limits: Limits::default(), unplugs: Vec::new(), plan: None }
    }
}

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A program cannot continue.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A program uses an invalid user-space address.
    #[error("thread {} accesses address {address:#x}; user addresses end at 2^48", thread.0)]
    Address {
        /// The address.
        address: u64,
        /// The thread that uses it.
        thread: ThreadId,
    },
    /// All memory is in use and none can be reclaimed.
    #[error("out of memory: node {} is full and none of its pages can be reclaimed; use a smaller workload \
        or scale", node.0)]
    OutOfMemory {
        /// The node.
        node: NodeId,
    },
    /// All nodes that a program is bound to are full.
    #[error("out of memory: the policy binds the program to node{} {}, without free memory",
        if .nodes.len() == 1 { "" } else { "s" },
        .nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", "))]
    Bound {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// A program's threads deadlock, refer to threads that do not exist, or continue for ever without doing
    /// anything; or it has too many processes.
    #[error("program '{program}' cannot continue: {why}")]
    Broken {
        /// Its name.
        program: String,
        /// What is wrong.
        why: String,
    },
    /// A program announces a region of interest and ends before it.
    #[error("program '{program}' ends before its region of interest begins")]
    NoRegion {
        /// Its name.
        program: String,
    },
    /// The machine exceeds the model's limits.
    #[error(
        "machine '{machine}' is too large to simulate at its scale, with {memory_gib} GiB of memory: at most \
         1024 GiB (128 GiB for each set of a cache) and 8 GiB of caches and TLB entries; raise its scale"
    )]
    TooLarge {
        /// Its name.
        machine: String,
        /// Its memory at its scale, in GiB.
        memory_gib: u64,
    },
    /// A program's instructions exceed the maximum time of a run.
    #[error(
        "program '{program}' runs for more than 53 days of simulated time: a thread retires {instructions} \
         instructions; check the trace's instruction counts"
    )]
    TooLong {
        /// Its name.
        program: String,
        /// Instructions of the thread, including those beyond the maximum.
        instructions: u64,
    },
    /// The program does not access memory for so long that monitoring of idle memory would take too long.
    #[error(
        "no access to memory in {idle_seconds:.3} s of simulated time, while the policy's monitoring had \
         {rounds} rounds; check the trace's instruction counts, or choose longer intervals for the policy"
    )]
    Idle {
        /// Simulated time since the last access.
        idle_seconds: f64,
        /// Rounds of monitoring without an access, in the whole run.
        rounds: u64,
    },
    /// The policy requires a sensor that the simulator does not provide.
    #[error(transparent)]
    Sensor(#[from] SensorRefused),
    /// The caller stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// Runs programs on a machine under a policy, from their start until all have ended.
///
/// Applies the machine's `slice` and `scale`. Calls `watch` regularly with the share of the work done, if
/// known; the run stops when it returns false.
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
    run_loads(machine, jobs.into_iter().map(Load::from).collect(), policy, seed, watch)
}

fn run_loads(
    machine: &Machine,
    loads: Vec<Load<'_>>,
    policy: Policy,
    seed: u64,
    watch: &mut dyn FnMut(Option<f64>) -> bool,
) -> Result<Report, SimError> {
    let mut engine = engine::Engine::new(machine, loads, policy, seed)?;
    engine.run(watch)?;
    Ok(engine.report())
}
