//! CPUs of a run's threads.

use memtide_core::{CpuId, Machine};

use crate::Job;

/// CPUs of each thread of these programs on a machine, which has not been reduced.
pub fn assigned_cpus(machine: &Machine, jobs: &[Job<'_>]) -> Vec<Vec<CpuId>> {
    let machine = machine.reduced();
    let mut before = 0;
    let of = |job: &Job<'_>| {
        let threads = job.program.threads();
        let cpus = cpus_of(&machine, &job.cpus, before, threads);
        before += threads;
        cpus
    };
    jobs.iter().map(of).collect()
}

/// CPUs of a program's threads, of which others have `before` threads: of a list in turn, or of all CPUs.
pub(crate) fn cpus_of(machine: &Machine, list: &[CpuId], before: usize, threads: usize) -> Vec<CpuId> {
    let list = if list.is_empty() { spread(machine) } else { list.to_vec() };
    let all = machine.cpus();
    (0..threads).map(|thread| CpuId::from(list[(before + thread) % list.len()].index() % all)).collect()
}

/// All CPUs, cycling through the initiators.
fn spread(machine: &Machine) -> Vec<CpuId> {
    let mut cpus: Vec<CpuId> = (0..machine.cpus()).map(CpuId::from).collect();
    let initiators = &machine.initiators;
    let first = |i: usize| initiators[..i].iter().map(|x| usize::from(x.cpus)).sum::<usize>();
    cpus.sort_by_key(|&cpu| {
        let initiator = machine.initiator_of(cpu).index();
        (cpu.index() - first(initiator), initiator)
    });
    cpus
}
