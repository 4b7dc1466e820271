//! A real machine as the epoch loop sees it: processes are watched, and their pages moved.

use std::io;
use std::time::{Duration, Instant};

use memtide_core::epoch::Host;
use memtide_core::policy::{Event, Move, Needs, NodeUse, Observation, Refusal, Region};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::process::Pid;

use crate::monitors::{self, Found, Monitor};
use crate::movers::{Mover, nodes_of};
use crate::processes::{self, Process};
use crate::topology::memory_of;

/// Pages of a region of which it is asked where they lie.
const ASKED: u64 = 16;

/// KiB in a base page.
const PAGE_KIB: u64 = 4;

/// This machine, and the processes that are watched on it.
#[derive(Debug)]
pub struct Live {
    /// The system's number of each of the machine's nodes.
    nodes: Vec<NodeId>,
    monitor: Option<Box<dyn Monitor>>,
    mover: Mover,
    watched: Vec<Process>,
    begun: Instant,
    draws: Xoshiro256PlusPlus,
    dry_run: bool,
    /// What went wrong since it was last asked.
    troubles: Vec<String>,
}

/// The task that a process is to a policy.
pub fn task(pid: Pid) -> TaskId {
    TaskId(pid.as_raw_nonzero().get().cast_unsigned())
}

impl Live {
    /// This machine, whose nodes have these numbers in the system, watched as a policy needs it. With `dry_run` nothing is moved.
    ///
    /// # Errors
    /// If there is no monitor for what is needed.
    pub fn new(nodes: Vec<NodeId>, needs: &Needs, stall: Duration, dry_run: bool) -> io::Result<Live> {
        let monitor = needs.regions.as_ref().map(monitors::choose).transpose()?;
        Ok(Live {
            nodes,
            monitor,
            mover: Mover::new(stall),
            watched: Vec::new(),
            begun: Instant::now(),
            draws: Xoshiro256PlusPlus::seed_from_u64(1),
            dry_run,
            troubles: Vec::new(),
        })
    }

    /// The processes that are watched.
    pub fn watched(&self) -> &[Process] {
        &self.watched
    }

    /// How memory is watched, if it is.
    pub fn monitor(&self) -> Option<&'static str> {
        self.monitor.as_ref().map(|monitor| monitor.name())
    }

    /// The node that a page of a process lies on; none if it is not in memory, or on a node that the machine does not have.
    pub fn node_of(&self, process: &Process, page: Vpn) -> Option<NodeId> {
        let nodes = nodes_of(process.pid, &[page.0]).ok()?;
        self.number(nodes.first().copied()??)
    }

    /// What went wrong since the last call.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// Watches these processes, in the order of their numbers, and no others.
    pub fn watch(&mut self, processes: Vec<Process>) {
        let same = |a: &Process, b: &Process| (a.pid, a.started_ticks) == (b.pid, b.started_ticks);
        let unchanged = processes.len() == self.watched.len()
            && processes.iter().zip(&self.watched).all(|(new, old)| same(new, old));
        self.watched = processes;
        if let (false, Some(monitor)) = (unchanged, &mut self.monitor) {
            let pids: Vec<Pid> = self.watched.iter().map(|process| process.pid).collect();
            if let Err(error) = monitor.watch(&pids) {
                self.troubles.push(format!("monitor {}: {error}", monitor.name()));
            }
        }
    }

    /// How full the machine's nodes are.
    fn nodes_use(&self) -> Vec<NodeUse> {
        let used = (0..).zip(&self.nodes).filter_map(|(number, id)| {
            let memory = memory_of(*id)?;
            let pages = |kib: u64| kib / PAGE_KIB;
            Some(NodeUse {
                node: NodeId(number),
                pages: pages(memory.total_kib),
                free_pages: pages(memory.free_kib),
            })
        });
        used.collect()
    }

    /// The machine's number of a node of the system.
    fn number(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.iter().position(|known| *known == id).map(NodeId::from)
    }

    /// Splits what was found into runs that lie on one node, as far as some pages tell.
    fn locate(&mut self, process: &Process, found: &[Found], seen: &mut Observation) {
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.some_pages(found)).collect();
        let Ok(nodes) = nodes_of(process.pid, &asked.concat()) else { return };
        let mut nodes = nodes.into_iter();
        for (found, asked) in found.iter().zip(asked) {
            let at: Vec<(u64, Option<NodeId>)> =
                asked.iter().copied().zip(nodes.by_ref().take(asked.len())).collect();
            for (start, pages, id) in runs(found, &at) {
                if let Some(node) = self.number(id) {
                    let (task, start, size) = (task(process.pid), Vpn(start), PageSize::Base);
                    let Found { reads, writes, age, .. } = *found;
                    seen.push(Region { task, start, pages, size, node, reads, writes, age });
                }
            }
        }
    }

    /// Pages of a region, one drawn from each of so many equal parts.
    fn some_pages(&mut self, found: &Found) -> Vec<u64> {
        let parts = found.pages.min(ASKED);
        (0..parts)
            .map(|part| {
                let (from, to) = (found.pages * part / parts, found.pages * (part + 1) / parts);
                found.start + from + self.draws.next_u64() % (to - from)
            })
            .collect()
    }
}

/// Runs of a region that lie on one node: each page that was asked for stands for its part of the region. Parts that are not in memory
/// are left out.
fn runs(found: &Found, at: &[(u64, Option<NodeId>)]) -> Vec<(u64, u64, NodeId)> {
    let parts = at.len() as u64;
    let mut runs: Vec<(u64, u64, NodeId)> = Vec::new();
    for (part, &(_, node)) in (0..parts).zip(at) {
        let (from, to) =
            (found.start + found.pages * part / parts, found.start + found.pages * (part + 1) / parts);
        let Some(node) = node else { continue };
        match runs.last_mut() {
            Some((start, pages, on)) if *on == node && *start + *pages == from => *pages = to - *start,
            _ => runs.push((from, to - from, node)),
        }
    }
    runs
}

impl Host for Live {
    fn now(&self) -> Time {
        Time::from_ns(self.begun.elapsed().as_nanos() as f64)
    }

    fn observe(&mut self, _: &Needs, _: &mut Vec<Event>, seen: &mut Observation) {
        seen.nodes_use = self.nodes_use();
        let Some(monitor) = &mut self.monitor else { return };
        match monitor.read() {
            Ok(all) => {
                for (process, found) in self.watched.clone().iter().zip(all) {
                    self.locate(process, &found, seen);
                }
            }
            Err(error) => self.troubles.push(format!("monitor {}: {error}", monitor.name())),
        }
    }

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let mut results = Vec::with_capacity(wanted.len());
        for run in wanted.chunk_by(|a, b| a.task == b.task) {
            let process = self.watched.iter().find(|process| task(process.pid) == run[0].task);
            let alive = process.filter(|process| {
                processes::one(process.pid).is_some_and(|now| now.started_ticks == process.started_ticks)
            });
            match alive {
                None => results.extend(run.iter().map(|_| Err(Refusal::Gone))),
                Some(_) if self.dry_run => results.extend(run.iter().map(|_| Err(Refusal::DryRun))),
                Some(process) => {
                    let to = |wanted: &Move| (wanted.page.0, self.nodes[wanted.to.index()]);
                    let pages: Vec<(u64, NodeId)> = run.iter().map(to).collect();
                    results.extend(self.mover.move_pages(process.pid, &pages));
                }
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_split_where_its_node_changes_and_what_is_not_there_is_left_out() {
        let found = Found { start: 1000, pages: 10, reads: 3, writes: 0, age: 7 };
        let (a, b) = (Some(NodeId(0)), Some(NodeId(1)));
        let at = |nodes: [Option<NodeId>; 5]| -> Vec<_> { (1000..).step_by(2).zip(nodes).collect() };
        assert_eq!(
            runs(&found, &at([a, a, b, None, b])),
            [(1000, 4, NodeId(0)), (1004, 2, NodeId(1)), (1008, 2, NodeId(1))]
        );
        assert_eq!(runs(&found, &at([None; 5])), []);
    }
}
