//! A user's request: all that a process has on some nodes goes to others.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::policy::{Cancellation, Completion, Frame, Move, Outcome, Refusal};
use memtide_core::{NodeId, PAGE_BYTES, PageSize, Vpn};
use procfs::process::MMapPath;
use serde::{Deserialize, Serialize};

use super::nodes_of;
use crate::processes::{self, Process};
use crate::sensors::task;
use crate::sys::pagemap::{self, Present};

/// Most base pages that a step looks at.
const STEP: u64 = 512;

/// What a transfer has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Base pages that were looked at.
    pub seen_pages: u64,
    /// Of them, those that were on the nodes to leave.
    pub found_pages: u64,
    /// Of those, the ones that were moved.
    pub moved_pages: u64,
    /// And those that were not, by reason.
    pub refused_pages: BTreeMap<Refusal, u64>,
}

/// A process's memory as a [`Transfer`] reads it. Addresses are base page numbers, nodes the system's.
pub trait ProcessMemory: Debug + Send {
    /// Checks that it is still that process, of the same user.
    ///
    /// # Errors
    /// If it is not.
    fn check(&self) -> io::Result<()>;

    /// Ranges of pages that may be in memory, in order; none if the process runs the same program as at the last call.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or its memory may not be read.
    fn areas(&mut self) -> io::Result<Option<Vec<Range<u64>>>>;

    /// Up to `most` pages of an area that are in memory, and the page up to which it looked, beyond the area's start.
    fn present(&self, area: &Range<u64>, most: u64) -> (Vec<Present>, u64);

    /// The node of each page; none for a page that is not in memory.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or its memory may not be read.
    fn nodes_of(&self, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>>;
}

/// Finds a process's pages that are on some nodes, and plans their moves to others, step by step. The moves pass the governor;
/// what became of them comes back by [`Transfer::note`].
#[derive(Debug)]
pub struct Transfer {
    process: Process,
    memory: Box<dyn ProcessMemory>,
    /// The system's numbers of the machine's nodes.
    nodes: Vec<NodeId>,
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    /// Base pages that are still to be looked at, the next ones last.
    areas: Vec<Range<u64>>,
    /// Moves to be tried again.
    again: Vec<Move>,
    tally: Tally,
}

impl Transfer {
    /// A transfer that has not begun, on a system whose numbers of the machine's nodes are `nodes`. `memory` is that of
    /// `process`. `from` and `to` are the machine's nodes; the first of `to` with enough free memory takes a page.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or its memory may not be read.
    pub fn new(
        process: Process,
        mut memory: Box<dyn ProcessMemory>,
        nodes: Vec<NodeId>,
        from: Vec<NodeId>,
        to: Vec<NodeId>,
    ) -> io::Result<Transfer> {
        let areas = next_first(memory.areas()?.unwrap_or_default());
        let (again, tally) = (Vec::new(), Tally::default());
        Ok(Transfer { process, memory, nodes, from, to, areas, again, tally })
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What was done so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How much of the process was looked at, from 0 to 1, as far as it has not grown.
    pub fn share(&self) -> f64 {
        let all = self.process.resident_pages.max(1);
        (self.tally.seen_pages as f64 / all as f64).min(1.0)
    }

    /// The next moves, of 2 MiB at most; none once all was looked at. A step may find nothing to move.
    ///
    /// # Errors
    /// If the process has ended or become another user's, or may not be touched.
    pub fn step(&mut self) -> io::Result<Option<Vec<Move>>> {
        self.memory.check()?;
        if !self.again.is_empty() {
            return Ok(Some(std::mem::take(&mut self.again)));
        }
        if let Some(areas) = self.memory.areas()? {
            self.areas = next_first(areas);
        }
        let Some(area) = self.areas.pop() else { return Ok(None) };
        let (found, end) = self.memory.present(&area, STEP);
        if end < area.end {
            self.areas.push(end..area.end);
        }
        let mut moves = Vec::new();
        for Present { pages, is_huge } in found {
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            self.tally.seen_pages += pages.end - pages.start;
            self.plan(pages, size, &mut moves)?;
        }
        Ok(Some(moves))
    }

    /// Takes in what became of its moves. What found no room is tried on the next node, what the governor held back once more.
    pub fn note(&mut self, done: &[Completion]) {
        for Completion { planned, outcome, .. } in done {
            for wanted in planned.action.moves() {
                self.note_move(wanted, *outcome);
            }
        }
    }

    /// Keeps moves for a later step.
    pub fn postpone(&mut self, moves: &[Move]) {
        self.again.extend_from_slice(moves);
    }

    fn note_move(&mut self, wanted: &Move, outcome: Outcome) {
        let pages = wanted.size.base_pages();
        let next = self.to.iter().position(|to| *to == wanted.to).and_then(|at| self.to.get(at + 1));
        let why = match outcome {
            Outcome::Made(_) => {
                self.tally.moved_pages += pages;
                return;
            }
            Outcome::Refused(Refusal::RateLimited) => return self.again.push(*wanted),
            Outcome::Refused(Refusal::NoRoom) if next.is_some() => {
                let to = *next.expect("checked");
                return self.again.push(Move { to, ..*wanted });
            }
            Outcome::Refused(why) => why,
            Outcome::Cancelled(Cancellation::NodeOffline) => Refusal::NodeOffline,
            Outcome::Cancelled(_) => Refusal::Gone,
        };
        *self.tally.refused_pages.entry(why).or_default() += pages;
    }

    /// Plans the moves of those of some pages that are on the nodes to leave.
    fn plan(&mut self, pages: Range<u64>, size: PageSize, moves: &mut Vec<Move>) -> io::Result<()> {
        let each = size.base_pages();
        let heads: Vec<u64> = (pages.start - pages.start % each..pages.end).step_by(each as usize).collect();
        let nodes = self.memory.nodes_of(&heads)?;
        let task = task(self.process.pid);
        for (&head, node) in heads.iter().zip(nodes) {
            let from = node.and_then(|id| self.nodes.iter().position(|known| *known == id)).map(NodeId::from);
            let Some(from) = from.filter(|from| self.from.contains(from)) else { continue };
            self.tally.found_pages += each;
            moves.push(Move { task, page: Vpn(head), size, from, to: self.to[0], wish: Frame::ANY });
        }
        Ok(())
    }
}

/// Areas as a stack: the first one on top.
fn next_first(mut areas: Vec<Range<u64>>) -> Vec<Range<u64>> {
    areas.reverse();
    areas
}

/// [`ProcessMemory`] by /proc/PID/maps, /proc/PID/pagemap and move_pages(2).
#[derive(Debug)]
pub struct ProcMemory {
    process: Process,
    /// None before the areas were first read.
    pagemap: Option<File>,
}

impl ProcMemory {
    /// The memory of a process; nothing is read yet.
    pub fn new(process: Process) -> ProcMemory {
        ProcMemory { process, pagemap: None }
    }
}

impl ProcessMemory for ProcMemory {
    fn check(&self) -> io::Result<()> {
        let now = processes::one(self.process.pid);
        let known = |process: &Process| (process.identity(), process.uid, process.ptrace_user);
        let same = |now: &Process| known(now) == known(&self.process);
        let ended = || io::Error::new(io::ErrorKind::NotFound, "it has ended or changed its user");
        now.filter(same).map(|_| ()).ok_or_else(ended)
    }

    fn areas(&mut self) -> io::Result<Option<Vec<Range<u64>>>> {
        if self.pagemap.as_ref().is_some_and(|pagemap| !pagemap::has_gone(pagemap)) {
            return Ok(None);
        }
        let pid = self.process.pid.as_raw_nonzero().get();
        self.pagemap = Some(File::open(format!("/proc/{pid}/pagemap"))?);
        let maps = procfs::process::Process::new(pid).and_then(|found| found.maps());
        let of_kernel =
            |path: &MMapPath| matches!(path, MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall);
        let areas = maps.map_err(io::Error::other)?.into_iter().filter(|map| !of_kernel(&map.pathname));
        Ok(Some(areas.map(|map| map.address.0 / PAGE_BYTES..map.address.1 / PAGE_BYTES).collect()))
    }

    fn present(&self, area: &Range<u64>, most: u64) -> (Vec<Present>, u64) {
        let scanned = self.pagemap.as_ref().map(|pagemap| pagemap::present(pagemap, area.clone(), most));
        match scanned {
            Some(Ok((found, end))) if end > area.start => (found, end),
            // Linux before 6.7: each page is asked for its node.
            _ => {
                let end = area.end.min(area.start + most);
                (vec![Present { pages: area.start..end, is_huge: false }], end)
            }
        }
    }

    fn nodes_of(&self, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>> {
        nodes_of(self.process.pid, pages)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtide_core::Time;
    use memtide_core::epoch::{Limits, PolicyRunner};
    use memtide_core::policy::{Delivery, Event, Migration, Plan, Sensors, View, Wake};

    use super::*;
    use crate::live::Live;
    use crate::processes::User;
    use crate::topology::Numbers;

    struct Stay;

    impl Migration for Stay {
        fn sensors(&self) -> Sensors {
            Sensors::new(Delivery::Deployable, Time::NEVER)
        }

        fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

        fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
            Wake::Never
        }
    }

    fn memory_of(process: &Process) -> Box<dyn ProcessMemory> {
        Box::new(ProcMemory::new(process.clone()))
    }

    #[test]
    fn every_page_of_this_process_is_looked_at_and_refused_ones_are_counted() {
        let memory = vec![1u8; 8 << 20];
        let me = processes::one(rustix::process::getpid()).expect("this process");
        // Other tests' memory comes and goes meanwhile.
        let me = Process { resident_pages: 4096, ..me };
        let page = memory.as_ptr() as u64 / PAGE_BYTES + 1;
        let here = nodes_of(me.pid, &[page]).expect("nodes")[0].expect("it was written");
        let nodes = vec![here, NodeId(250)];
        let numbers = Numbers { nodes: nodes.clone(), cpus: Vec::new(), scan_pages: 0 };
        let (from, to) = (vec![NodeId(0)], vec![NodeId(1)]);
        let mut live = Live::new(numbers, &Stay.sensors(), None, Duration::from_millis(20), false)
            .expect("no sensor is asked for");
        live.begin_request(me.clone());
        let mut runner = PolicyRunner::new(Box::new(Stay), Limits::default());
        let mut transfer = Transfer::new(me.clone(), memory_of(&me), nodes.clone(), from.clone(), to.clone())
            .expect("my own");
        while let Some(moves) = transfer.step().expect("a step") {
            runner.request(&mut live, &mut (), &moves);
            transfer.note(&runner.take_answered());
        }
        let tally = transfer.tally();
        let refused: u64 = tally.refused_pages.values().sum();
        assert!(tally.found_pages >= 2048 && tally.seen_pages >= tally.found_pages, "{tally:?}");
        assert_eq!((tally.moved_pages, refused), (0, tally.found_pages), "{tally:?}");
        assert!(tally.refused_pages.contains_key(&Refusal::NodeOffline), "{tally:?}");
        assert!(transfer.share() >= 0.5, "{tally:?}");
        let ptrace_user = Some(User { uid: 4_000_000, gid: 0 });
        for other in [Process { uid: me.uid + 1, ..me.clone() }, Process { ptrace_user, ..me.clone() }] {
            let memory_of_other = memory_of(&other);
            let (nodes, from, to) = (nodes.clone(), from.clone(), to.clone());
            let mut other = Transfer::new(other, memory_of_other, nodes, from, to).expect("my own");
            assert!(other.step().is_err(), "it became another user's");
        }
        assert!(memory.iter().all(|&byte| byte == 1));
    }
}
