//! A real machine as the epoch loop sees it: processes are watched, and their pages moved.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memtide_core::epoch::Host;
use memtide_core::policy::{Event, Move, Needs, NodeUse, Observation, Refusal, Region};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::process::Pid;

use crate::monitors::{self, CLEARED_MAX, Chosen, Found, Kind, SoftDirty};
use crate::movers::{Mover, nodes_of};
use crate::processes::{self, Process};
use crate::sys::pagemap;
use crate::topology::memory_of;

/// Pages of a region of which it is asked where they lie: at most and at least, and of all regions together, for each takes the kernel
/// thousands of instructions.
const ASKED: u64 = 16;
const ASKED_LEAST: u64 = 2;
const ASKED_IN_ALL: u64 = 512;

/// KiB in a base page.
const PAGE_KIB: u64 = 4;

/// A process is watched once it has lived so long: most end earlier, and to take one in costs more than they do.
const SETTLED: Duration = Duration::from_secs(3);

/// Why a process's memory may not be looked at.
pub const FORBIDDEN: &str = "without CAP_SYS_PTRACE the kernel shows only one's own processes, and of those none that has more privileges";

/// This machine, and the processes that are watched on it.
#[derive(Debug)]
pub struct Live {
    /// The system's number of each of the machine's nodes.
    nodes: Vec<NodeId>,
    monitor: Option<Chosen>,
    writes: Option<SoftDirty>,
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
    /// This machine, whose nodes have these numbers in the system, watched as a policy needs it, by this monitor or the best there is. With
    /// `dry_run` nothing is moved.
    ///
    /// # Errors
    /// If there is no monitor for what is needed.
    pub fn new(
        nodes: Vec<NodeId>,
        needs: &Needs,
        wanted: Option<Kind>,
        stall: Duration,
        dry_run: bool,
    ) -> io::Result<Live> {
        let (monitor, writes) = watchers(needs, wanted)?;
        Ok(Live {
            nodes,
            monitor,
            writes,
            mover: Mover::new(stall),
            watched: Vec::new(),
            begun: Instant::now(),
            draws: Xoshiro256PlusPlus::seed_from_u64(1),
            dry_run,
            troubles: Vec::new(),
        })
    }

    /// From now on batches may hold a process up for so long, and moves are made unless it is a `dry_run`.
    pub fn set(&mut self, stall: Duration, dry_run: bool) {
        (self.mover, self.dry_run) = (Mover::new(stall), dry_run);
    }

    /// Has memory watched as another policy needs it, by this monitor or the best there is; processes are to be named anew.
    ///
    /// # Errors
    /// If there is no monitor for that. None is left then.
    pub fn set_needs(&mut self, needs: &Needs, wanted: Option<Kind>) -> io::Result<()> {
        self.watched.clear();
        // The kernel's means are given back before they are asked for again.
        (self.monitor, self.writes) = (None, None);
        (self.monitor, self.writes) = watchers(needs, wanted)?;
        Ok(())
    }

    /// The processes that are watched.
    pub fn watched(&self) -> &[Process] {
        &self.watched
    }

    /// How memory is watched, if it is, and why not better.
    pub fn monitor(&self) -> Option<(Kind, Option<&str>)> {
        self.monitor.as_ref().map(|chosen| (chosen.kind, chosen.why_not_better.as_deref()))
    }

    /// Whether writes are told apart.
    pub fn tells_writes(&self) -> bool {
        self.writes.is_some()
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

    /// Watches these processes, in the order of their numbers, and no others; those that have just started, later.
    pub fn watch(&mut self, mut processes: Vec<Process>) {
        processes.retain(|process| process.age() >= SETTLED);
        let unchanged =
            processes.iter().map(Process::identity).eq(self.watched.iter().map(Process::identity));
        self.watched = processes;
        if unchanged {
            return;
        }
        if let Some(writes) = &mut self.writes {
            writes.keep(&self.watched);
        }
        if let Some(Chosen { kind, monitor, .. }) = &mut self.monitor
            && let Err(error) = monitor.watch(&self.watched)
        {
            self.troubles.push(format!("monitor {}: {error}", kind.name()));
            // The next call tries again.
            self.watched.clear();
        }
    }

    /// How full the machine's nodes are; one whose memory has gone has none.
    fn nodes_use(&self) -> Vec<NodeUse> {
        let used = (0..).zip(&self.nodes).map(|(number, id)| {
            let memory = memory_of(*id).unwrap_or_default();
            let pages = |kib: u64| kib / PAGE_KIB;
            NodeUse {
                node: NodeId(number),
                pages: pages(memory.total_kib),
                free_pages: pages(memory.free_kib),
            }
        });
        used.collect()
    }

    /// The machine's number of a node of the system.
    fn number(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.iter().position(|known| *known == id).map(NodeId::from)
    }

    /// Splits what was found into runs that lie on one node, as far as a page of each of so many parts of a region tells.
    fn locate(
        &mut self,
        process: &Process,
        found: &[Found],
        parts: u64,
        seen: &mut Observation,
    ) -> io::Result<()> {
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.some_pages(found, parts)).collect();
        let all = asked.concat();
        let nodes = nodes_of(process.pid, &all)?;
        let huge = huge_pages(process.pid);
        let size = |page| if huge(page) { PageSize::Huge } else { PageSize::Base };
        let written = self.written(process, &all);
        let mut lies = nodes.iter().zip(&all).zip(written).map(|((id, &page), written)| {
            Some(Lies { node: self.number((*id)?)?, size: size(page), written })
        });
        let mut end = 0;
        for (found, asked) in found.iter().zip(&asked) {
            let at: Vec<Option<Lies>> = lies.by_ref().take(asked.len()).collect();
            for run in runs(found, &at) {
                let Some((start, pages)) = run.whole(end) else { continue };
                let (task, start, Lies { node, size, written }) = (task(process.pid), Vpn(start), run.lies);
                let (reads, age) = (found.accesses.max(written.into()), found.age);
                let writes = if written { reads } else { 0 };
                seen.push(Region { task, start, pages, size, node, reads, writes, age });
                end = start.0 + pages * size.base_pages();
            }
        }
        Ok(())
    }

    /// A process that is too large for its bits to be cleared is not watched in that way.
    fn tell_of_large(&mut self) {
        let by_smaps = self.monitor.as_ref().is_some_and(|chosen| chosen.kind == Kind::Smaps);
        let large = self.watched.iter().find(|process| process.resident_pages > CLEARED_MAX);
        if let Some(process) = large.filter(|_| by_smaps || self.writes.is_some()) {
            let what = if by_smaps { "memory is not watched by smaps" } else { "writes are not watched" };
            self.troubles.push(format!(
                "process {} ({}) has more than {} GiB in memory: its {what}, for that would hold it up",
                process.pid.as_raw_nonzero(),
                process.name,
                CLEARED_MAX >> 18
            ));
        }
    }

    /// Whether each of some pages was written lately; of none, if nobody asks for that.
    fn written(&mut self, process: &Process, pages: &[u64]) -> Vec<bool> {
        let Some(writes) = &mut self.writes else { return vec![false; pages.len()] };
        writes.written(process, pages).unwrap_or_else(|error| {
            self.troubles.push(format!("soft-dirty: {error}"));
            vec![false; pages.len()]
        })
    }

    /// Moves pages of a process, all of one size. A huge page goes whole when its first base page is named; one that is not huge any more
    /// is gone.
    fn carry_out(&mut self, pid: Pid, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let named = |wanted: &Move| (wanted.page.0, self.nodes[wanted.to.index()]);
        if wanted[0].size == PageSize::Base {
            let pages: Vec<(u64, NodeId)> = wanted.iter().map(named).collect();
            return self.mover.move_pages(pid, &pages);
        }
        let huge = huge_pages(pid);
        let there: Vec<bool> = wanted.iter().map(|wanted| huge(wanted.page.0)).collect();
        let pages = wanted.iter().zip(&there).filter(|(_, there)| **there).map(|(wanted, _)| named(wanted));
        let pages: Vec<(u64, NodeId)> = pages.collect();
        let mut moved = self.mover.move_pages(pid, &pages).into_iter();
        let result =
            |there| if there { moved.next().expect("a result for each page") } else { Err(Refusal::Gone) };
        there.into_iter().map(result).collect()
    }

    /// Pages of a region, one drawn from each of so many equal parts.
    fn some_pages(&mut self, found: &Found, parts: u64) -> Vec<u64> {
        let parts = found.pages.min(parts);
        (0..parts)
            .map(|part| {
                let (from, to) = (found.pages * part / parts, found.pages * (part + 1) / parts);
                found.start + from + self.draws.next_u64() % (to - from)
            })
            .collect()
    }
}

/// A page: where it lies, how large it is, and whether it was written lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lies {
    node: NodeId,
    size: PageSize,
    written: bool,
}

/// Base pages of a region that lie alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
    lies: Lies,
}

impl Run {
    /// First base page and number of its pages, those whose middle lies in it and that begin at `from` or later; none if there is none.
    fn whole(&self, from: u64) -> Option<(u64, u64)> {
        let size = self.lies.size.base_pages();
        let bound = |page: u64| page.saturating_sub(size / 2).next_multiple_of(size);
        let start = bound(self.start).max(from.next_multiple_of(size));
        let pages = bound(self.end).checked_sub(start)? / size;
        (pages > 0).then_some((start, pages))
    }
}

/// Runs of a region that lie alike: each page that was asked for stands for its part of the region. Parts that are not in memory
/// are left out.
fn runs(found: &Found, at: &[Option<Lies>]) -> Vec<Run> {
    let parts = at.len() as u64;
    let mut runs: Vec<Run> = Vec::new();
    for (part, &lies) in (0..parts).zip(at) {
        let bound = |part| found.start + found.pages * part / parts;
        let (start, end) = (bound(part), bound(part + 1));
        let Some(lies) = lies else { continue };
        match runs.last_mut() {
            Some(last) if last.lies == lies && last.end == start => last.end = end,
            _ => runs.push(Run { start, end, lies }),
        }
    }
    runs
}

/// Tells of a process's base pages whether each is part of a huge one; of none, if its page map may not be read.
fn huge_pages(pid: Pid) -> impl Fn(u64) -> bool {
    let pagemap = File::open(format!("/proc/{}/pagemap", pid.as_raw_nonzero())).ok();
    move |page| pagemap.as_ref().is_some_and(|pagemap| pagemap::is_huge(pagemap, page))
}

/// What watches memory as it is needed.
fn watchers(needs: &Needs, wanted: Option<Kind>) -> io::Result<(Option<Chosen>, Option<SoftDirty>)> {
    let monitor = needs.regions.as_ref().map(|needs| monitors::choose(needs, wanted)).transpose()?;
    let writes = needs.regions.is_some_and(|needs| needs.writes);
    let writes = writes.then(|| SoftDirty::check().map(|()| SoftDirty::default())).transpose()?;
    Ok((monitor, writes))
}

impl Host for Live {
    fn now(&self) -> Time {
        Time::from_ns(self.begun.elapsed().as_nanos() as f64)
    }

    fn observe(&mut self, _: &Needs, _: &mut Vec<Event>, seen: &mut Observation) {
        seen.nodes_use = self.nodes_use();
        self.tell_of_large();
        let Some(Chosen { kind, monitor, .. }) = &mut self.monitor else { return };
        match monitor.read() {
            Ok(all) => {
                let regions: usize = all.iter().map(Vec::len).sum();
                let parts = (ASKED_IN_ALL / regions.max(1) as u64).clamp(ASKED_LEAST, ASKED);
                let mut forbidden = None;
                for (process, found) in self.watched.clone().into_iter().zip(all) {
                    let located = self.locate(&process, &found, parts, seen);
                    if located.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                        forbidden.get_or_insert(process);
                    }
                }
                self.troubles.extend(forbidden.map(|Process { pid, name, .. }| {
                    let pid = pid.as_raw_nonzero();
                    format!("process {pid} ({name}), and perhaps others, may not be looked at: {FORBIDDEN}")
                }));
            }
            Err(error) => {
                self.troubles.push(format!("monitor {}: {error}", kind.name()));
                // They are watched anew.
                self.watched.clear();
            }
        }
    }

    fn act(&mut self, wanted: &[Move]) -> Vec<Result<(), Refusal>> {
        let mut results = Vec::with_capacity(wanted.len());
        for run in wanted.chunk_by(|a, b| (a.task, a.size) == (b.task, b.size)) {
            let process = self.watched.iter().find(|process| task(process.pid) == run[0].task);
            let alive = process.filter(|process| {
                processes::one(process.pid).is_some_and(|now| now.identity() == process.identity())
            });
            match alive {
                None => results.extend(run.iter().map(|_| Err(Refusal::Gone))),
                Some(_) if self.dry_run => results.extend(run.iter().map(|_| Err(Refusal::DryRun))),
                Some(process) => results.extend(self.carry_out(process.pid, run)),
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found = Found { start: 1000, pages: 10, accesses: 3, age: 7 };

    fn on(node: u8, written: bool) -> Option<Lies> {
        Some(Lies { node: NodeId(node), size: PageSize::Base, written })
    }

    #[test]
    fn a_region_is_split_where_its_node_changes_and_what_is_not_there_is_left_out() {
        let (a, b) = (on(0, false), on(1, false));
        let runs = runs(&FOUND, &[a, a, b, None, b]);
        let bounds: Vec<(u64, u64, u8)> =
            runs.iter().map(|run| (run.start, run.end, run.lies.node.0)).collect();
        assert_eq!(bounds, [(1000, 1004, 0), (1004, 1006, 1), (1008, 1010, 1)]);
        assert_eq!(super::runs(&FOUND, &[None; 5]), []);
        let written = super::runs(&FOUND, &[a, on(0, true), on(0, true), a, a]);
        assert_eq!(written.iter().map(|run| run.end).collect::<Vec<u64>>(), [1002, 1006, 1010]);
    }

    #[test]
    fn huge_pages_are_whole_and_never_overlap_what_came_before() {
        let run = |start, end, size| Run { start, end, lies: Lies { node: NodeId(0), size, written: false } };
        for (run, from, whole) in [
            (run(700, 900, PageSize::Huge), 0, Some((512, 1))),
            (run(700, 1300, PageSize::Huge), 600, Some((1024, 1))),
            (run(769, 900, PageSize::Huge), 0, None),
            (run(100, 1000, PageSize::Huge), 513, None),
            (run(700, 900, PageSize::Base), 800, Some((800, 100))),
            (run(700, 900, PageSize::Base), 1024, None),
        ] {
            assert_eq!(run.whole(from), whole, "{run:?}");
        }
    }
}
