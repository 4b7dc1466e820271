//! A user's request: moves all pages of a process from some nodes to others.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::policy::{Cancellation, Completion, Frame, Move, Outcome, Refusal};
use memtide_core::{NodeId, PageSize, Vpn};
use serde::{Deserialize, Serialize};

use super::nodes_of;
use crate::mappings;
use crate::processes::{self, Process};
use crate::sensors::task;
use crate::sys::pagemap::{self, Present};

/// Maximum base pages scanned per step.
const STEP: u64 = 512;

/// Progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Base pages scanned.
    pub seen_pages: u64,
    /// Of them, those on the source nodes.
    pub found_pages: u64,
    /// Of those, the pages moved.
    pub moved_pages: u64,
    /// And those not moved, by reason.
    pub refused_pages: BTreeMap<Refusal, u64>,
}

/// A process's memory as a [`Transfer`] reads it. Addresses are base page numbers, nodes the system's.
pub trait ProcessMemory: Debug + Send {
    /// Checks that it is still the same process, of the same user.
    ///
    /// # Errors
    /// If it is not.
    fn check(&self) -> io::Result<()>;

    /// Ranges of pages that may be resident, in order; `None` if the process runs the same program as at the
    /// last call.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or its memory may not be read.
    fn areas(&mut self) -> io::Result<Option<Vec<Range<u64>>>>;

    /// Up to `most` resident pages of an area, and the page where the scan ended, past the area's start.
    fn present(&self, area: &Range<u64>, most: u64) -> (Vec<Present>, u64);

    /// The node of each page; `None` for a page that is not resident.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or its memory may not be read.
    fn nodes_of(&self, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>>;
}

/// Finds a process's pages on some nodes, and plans their moves to others, step by step. The moves pass the
/// governor; their outcomes are returned by [`Transfer::record`].
#[derive(Debug)]
pub struct Transfer {
    process: Process,
    memory: Box<dyn ProcessMemory>,
    /// The system's numbers of the machine's nodes.
    nodes: Vec<NodeId>,
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    /// Base pages still to scan, the next ones last.
    areas: Vec<Range<u64>>,
    /// Moves to retry.
    again: Vec<Move>,
    tally: Tally,
}

impl Transfer {
    /// A transfer before its first step, on a system whose numbers of the machine's nodes are `nodes`.
    /// `memory` is that of `process`. `from` and `to` are the machine's nodes; a page goes to the first of
    /// `to` with enough free memory.
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

    /// The progress so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Share of the process that was scanned, from 0 to 1, not counting growth.
    pub fn share(&self) -> f64 {
        let all = self.process.resident_pages.max(1);
        (self.tally.seen_pages as f64 / all as f64).min(1.0)
    }

    /// The next moves, 2 MiB at most; `None` once all was scanned. A step may find nothing to move.
    ///
    /// # Errors
    /// If the process has ended or now belongs to another user, or is not accessible.
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

    /// Handles the outcomes of its moves. Those without free memory are retried on the next node, those held
    /// back by the governor as they are.
    pub fn record(&mut self, done: &[Completion]) {
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

    /// Plans the moves of those pages that are on the source nodes.
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
    /// `None` before the areas are first read.
    pagemap: Option<File>,
}

impl ProcMemory {
    /// The memory of a process, before the first read.
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
        self.pagemap = Some(pagemap::open(self.process.pid)?);
        let areas =
            mappings::read(self.process.pid, |mapping| (!mapping.is_of_kernel()).then_some(mapping.pages()));
        areas.map(Some)
    }

    fn present(&self, area: &Range<u64>, most: u64) -> (Vec<Present>, u64) {
        let scanned = self.pagemap.as_ref().map(|pagemap| pagemap::present(pagemap, area.clone(), most));
        match scanned {
            Some(Ok((found, end))) if end > area.start => (found, end),
            // Before Linux 6.7: query the node of each page.
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

    use memtide_core::epoch::{Limits, PolicyRunner};
    use memtide_core::policy::{Delivery, Event, Migration, Plan, Sensors, View, Wake};
    use memtide_core::{PAGE_BYTES, Time};

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
    fn transfer_scans_all_pages_and_counts_refused_ones() {
        let memory = vec![1u8; 8 << 20];
        let me = processes::one(rustix::process::getpid()).expect("this process");
        // Other tests allocate and free memory concurrently.
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
            transfer.record(&runner.take_answered());
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
