//! One pass for several policies.

use std::collections::BTreeSet;
use std::thread;

use memtide_core::machine::Machine;
use memtide_core::{CpuId, Time};
use memtide_front::Shared;

use crate::bound::bound_of_records;
use crate::cpus::assigned_cpus;
use crate::feed::{Feed, Load};
use crate::{IdealRun, Job, Policy, Report, SimError, Unbounded, run_loads};

/// A bound and the reads of pages, or why there is none.
pub(crate) type Bounded = Result<Result<IdealRun, Unbounded>, SimError>;

/// Whether [`run_shared`] can run these jobs on a machine: each thread has a CPU for itself.
pub fn can_share(machine: &Machine, jobs: &[Job<'_>]) -> bool {
    let cpus = assigned_cpus(machine, jobs).concat();
    let distinct: BTreeSet<_> = cpus.iter().collect();
    distinct.len() == cpus.len()
}

/// Runs the same programs under each policy, as [`run`](crate::run) does, with what no policy changes (TLB,
/// private caches, write streaming) done once: crate `memtide-front`, which says what it approximates. All
/// policies run at the same time, each in a thread. `watch` is called as in [`run`](crate::run), with the
/// policy's number.
///
/// # Panics
/// Unless [`can_share`].
///
/// # Errors
/// Those of each policy's run: see [`SimError`].
pub fn run_shared(
    machine: &Machine,
    jobs: Vec<Job<'static>>,
    policies: Vec<Policy>,
    seed: u64,
    watch: &(dyn Fn(usize, Option<f64>) -> bool + Sync),
) -> Vec<Result<Report, SimError>> {
    Pass::new(machine, jobs, policies.len(), seed, watch).run(policies, false).0
}

/// As [`run_shared`], with the programs' run on ideal memory in the same pass; `watch` is called for it with
/// the number after the last policy's.
///
/// # Panics
/// Unless [`can_share`].
///
/// # Errors
/// Those of each policy's run, and of the bound's: see [`SimError`].
pub fn run_shared_with_bound(
    machine: &Machine,
    jobs: Vec<Job<'static>>,
    policies: Vec<Policy>,
    seed: u64,
    watch: &(dyn Fn(usize, Option<f64>) -> bool + Sync),
) -> (Vec<Result<Report, SimError>>, Bounded) {
    let (reports, bound) = Pass::new(machine, jobs, policies.len() + 1, seed, watch).run(policies, true);
    (reports, bound.expect("requested"))
}

/// One pass for several readers.
struct Pass<'m> {
    machine: &'m Machine,
    /// Name, CPUs and start of each program.
    jobs: Vec<(String, Vec<CpuId>, Time)>,
    shared: Shared,
    seed: u64,
    watch: &'m (dyn Fn(usize, Option<f64>) -> bool + Sync),
}

impl<'m> Pass<'m> {
    fn new(
        machine: &'m Machine,
        jobs: Vec<Job<'static>>,
        readers: usize,
        seed: u64,
        watch: &'m (dyn Fn(usize, Option<f64>) -> bool + Sync),
    ) -> Pass<'m> {
        assert!(can_share(machine, &jobs), "threads that share a CPU");
        let split = |job: Job<'static>| (job.program, (job.name, job.cpus, job.start));
        let (programs, jobs) = jobs.into_iter().map(split).unzip();
        Pass { machine, jobs, shared: Shared::new(&machine.reduced(), programs, readers), seed, watch }
    }

    /// Runs each policy and, if requested, the bound, as the last reader.
    fn run(
        &self,
        policies: Vec<Policy>,
        with_bound: bool,
    ) -> (Vec<Result<Report, SimError>>, Option<Bounded>) {
        let last = policies.len();
        thread::scope(|scope| {
            let workers = thread::available_parallelism().map_or(1, usize::from).min(self.jobs.len()).max(1);
            for number in 0..workers {
                scope.spawn(move || self.shared.run_ahead(number, workers));
            }
            let bound = with_bound.then(|| scope.spawn(move || self.bound(last)));
            let policies = policies.into_iter().enumerate();
            let running: Vec<_> =
                policies.map(|(number, policy)| scope.spawn(move || self.policy(number, policy))).collect();
            (running.into_iter().map(joined).collect(), bound.map(joined))
        })
    }

    fn policy(&self, number: usize, policy: Policy) -> Result<Report, SimError> {
        let watch = &mut |done| (self.watch)(number, done);
        run_loads(self.machine, self.loads(number), policy, self.seed, watch)
    }

    fn bound(&self, number: usize) -> Bounded {
        let watch = &mut |done| (self.watch)(number, done);
        bound_of_records(self.machine, self.loads(number), self.seed, watch)
    }

    /// What a reader reads.
    fn loads(&self, number: usize) -> Vec<Load<'_>> {
        let load = |(program, (name, cpus, start)): (usize, &(String, Vec<CpuId>, Time))| Load {
            name: name.clone(),
            feed: Feed::Records(self.shared.reader(number, program)),
            cpus: cpus.clone(),
            start: *start,
        };
        self.jobs.iter().enumerate().map(load).collect()
    }
}

/// The result of a thread, which panics as that did.
fn joined<T>(running: thread::ScopedJoinHandle<'_, T>) -> T {
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
