//! One pass for several policies.

use std::thread;

use memtide_core::machine::Machine;
use memtide_front::Shared;

use crate::feed::{Feed, Load};
use crate::{Job, Policy, Report, SimError, run_loads};

/// Whether [`run_shared`] can run these jobs on a machine: each thread has a CPU for itself.
pub fn can_share(machine: &Machine, jobs: &[Job<'_>]) -> bool {
    let threads: usize = jobs.iter().map(|job| job.program.threads()).sum();
    threads <= machine.reduced().cpus() && jobs.iter().all(|job| job.cpus.is_empty())
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
    assert!(can_share(machine, &jobs), "threads that share a CPU");
    let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
    let programs = jobs.into_iter().map(|job| job.program).collect();
    let shared = Shared::new(&machine.reduced(), programs, policies.len());
    let run = |number: usize, policy: Policy| {
        let reader = |program| Feed::Records(shared.reader(number, program));
        let load = |(program, name): (usize, &String)| Load {
            name: name.clone(),
            feed: reader(program),
            cpus: Vec::new(),
        };
        let loads = names.iter().enumerate().map(load).collect();
        run_loads(machine, loads, policy, seed, &mut |done| watch(number, done))
    };
    let run = &run;
    thread::scope(|scope| {
        scope.spawn(|| shared.run_ahead());
        let policies = policies.into_iter().enumerate();
        let running: Vec<_> =
            policies.map(|(number, policy)| scope.spawn(move || run(number, policy))).collect();
        let join = |running: thread::ScopedJoinHandle<'_, _>| {
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect()
    })
}
