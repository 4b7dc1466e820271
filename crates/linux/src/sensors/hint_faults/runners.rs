//! The node on whose CPUs a process runs.

use std::collections::BTreeMap;

use memtide_core::{CpuId, ThreadId};
use procfs::process;
use rustix::process::Pid;

/// A thread, and the machine's number of its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The thread.
    pub thread: ThreadId,
    /// The CPU.
    pub cpu: CpuId,
}

/// Minimum share of a process's CPU time on one node's CPUs for that node to stand for all of its accesses.
const MOST: f64 = 0.9;

/// A process's threads.
#[derive(Debug, Default)]
pub struct Threads {
    /// CPU time of each at the last call, in ticks.
    ticks: BTreeMap<i32, u64>,
}

/// A thread's activity since the last call.
#[derive(Clone, Copy, Debug)]
struct Turn {
    runner: Runner,
    ticks: u64,
}

impl Threads {
    /// The busiest thread since the last call, if nearly all of the process's CPU time was on its node;
    /// `None` if the process has exited. `cpus` maps each of the system's CPUs to one of the machine's in the
    /// same initiator.
    ///
    /// # Errors
    /// If the process ran on CPUs of several nodes.
    pub fn runner(&mut self, pid: Pid, cpus: &[CpuId]) -> Result<Option<Runner>, SeveralNodes> {
        let turns = self.turns(pid, cpus).unwrap_or_default();
        most(&turns)
    }

    fn turns(&mut self, pid: Pid, cpus: &[CpuId]) -> Option<Vec<Turn>> {
        let before = std::mem::take(&mut self.ticks);
        let threads =
            process::Process::new(pid.as_raw_nonzero().get()).and_then(|found| found.tasks()).ok()?;
        let mut turns = Vec::new();
        for stat in threads.flatten().filter_map(|thread| thread.stat().ok()) {
            let all = stat.utime + stat.stime;
            self.ticks.insert(stat.pid, all);
            let cpu = stat.processor.and_then(|cpu| cpus.get(usize::try_from(cpu).ok()?).copied());
            let Some(cpu) = cpu else { continue };
            let thread = ThreadId(stat.pid.cast_unsigned());
            let ticks = all - before.get(&stat.pid).copied().unwrap_or(0).min(all);
            turns.push(Turn { runner: Runner { thread, cpu }, ticks });
        }
        Some(turns)
    }
}

/// A process that ran on CPUs of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeveralNodes;

fn most(turns: &[Turn]) -> Result<Option<Runner>, SeveralNodes> {
    // If all threads are idle, they count equally.
    let idle = turns.iter().all(|turn| turn.ticks == 0);
    let weight = |turn: &Turn| if idle { 1 } else { turn.ticks };
    let Some(first) = turns.iter().max_by_key(|turn| (weight(turn), turn.runner.thread)) else {
        return Ok(None);
    };
    let beside = turns.iter().filter(|turn| turn.runner.cpu == first.runner.cpu);
    let (there, all) = (beside.map(weight).sum::<u64>(), turns.iter().map(weight).sum::<u64>());
    if there as f64 >= MOST * all as f64 { Ok(Some(first.runner)) } else { Err(SeveralNodes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(thread: u32, cpu: u16, ticks: u64) -> Turn {
        Turn { runner: Runner { thread: ThreadId(thread), cpu: CpuId(cpu) }, ticks }
    }

    #[test]
    fn process_runs_where_nearly_all_its_time_is_spent() {
        let (a, b) = (turn(1, 0, 50), turn(2, 0, 45));
        assert_eq!(most(&[a, b, turn(3, 8, 5)]), Ok(Some(a.runner)));
        assert_eq!(most(&[a, b, turn(3, 8, 15)]), Err(SeveralNodes));
        assert_eq!(most(&[turn(1, 0, 0), turn(2, 8, 0)]), Err(SeveralNodes), "no thread has run");
        assert_eq!(most(&[turn(1, 8, 0), turn(2, 8, 0)]), Ok(Some(turn(2, 8, 0).runner)));
        assert_eq!(most(&[]), Ok(None));
    }

    #[test]
    fn this_process_is_running() {
        let cpus = vec![CpuId(3); 4096];
        let found = Threads::default().runner(rustix::process::getpid(), &cpus).expect("one node");
        assert_eq!(found.map(|runner| runner.cpu), Some(CpuId(3)));
        assert_eq!(Threads::default().runner(rustix::process::getpid(), &[]), Ok(None), "CPUs of no machine");
    }
}
