//! All that a process has on some nodes, to others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use memtide_core::policy::Refusal;
use memtide_core::{NodeId, PAGE_BYTES, PageSize};
use procfs::process::MMapPath;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::{Mover, nodes_of};
use crate::processes::{self, Process};
use crate::sys::pagemap::{self, Present};

/// Base pages that a step looks at, at most.
const STEP: u64 = 512;

/// What a transfer has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Base pages that were looked at.
    pub seen_pages: u64,
    /// Of them, those that lay where they were not to be.
    pub found_pages: u64,
    /// Of those, the ones that were moved.
    pub moved_pages: u64,
    /// And those that were not, by reason.
    pub refused_pages: BTreeMap<Refusal, u64>,
}

/// Moves a process's pages that lie on some nodes to others, step by step.
#[derive(Debug)]
pub struct Transfer {
    process: Process,
    pagemap: File,
    mover: Mover,
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    /// Base pages that are still to be looked at, the next ones last.
    areas: Vec<Range<u64>>,
    tally: Tally,
}

impl Transfer {
    /// A transfer that has not begun, between nodes given by the system's numbers; the first of `to` that has room takes a page. No
    /// batch of moves holds the process up for much longer than `stall`.
    ///
    /// # Errors
    /// The kernel's, if the process has ended or may not be looked at.
    pub fn new(
        process: Process,
        from: Vec<NodeId>,
        to: Vec<NodeId>,
        stall: Duration,
    ) -> io::Result<Transfer> {
        let (pagemap, areas) = memory(process.pid)?;
        let (mover, tally) = (Mover::new(stall), Tally::default());
        Ok(Transfer { process, pagemap, mover, from, to, areas, tally })
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

    /// Goes on by up to 2 MiB; gives the bytes that were moved, none once all was looked at.
    ///
    /// # Errors
    /// If the process has ended or become another user's, or may not be touched.
    pub fn step(&mut self) -> io::Result<Option<u64>> {
        let now = processes::one(self.process.pid);
        let same = |now: &Process| (now.identity(), now.uid) == (self.process.identity(), self.process.uid);
        if !now.is_some_and(|now| same(&now)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it has ended, or become another user's"));
        }
        if pagemap::has_gone(&self.pagemap) {
            // It runs another program now.
            (self.pagemap, self.areas) = memory(self.process.pid)?;
        }
        let Some(area) = self.areas.pop() else { return Ok(None) };
        let (found, end) = self.present(&area);
        if end < area.end {
            self.areas.push(end..area.end);
        }
        let moved = self.tally.moved_pages;
        for Present { pages, is_huge } in found {
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            self.tally.seen_pages += pages.end - pages.start;
            self.carry(pages, size)?;
        }
        Ok(Some((self.tally.moved_pages - moved) * PAGE_BYTES))
    }

    /// Pages of an area that are in memory, as far as one step goes, and up to where it looked.
    fn present(&self, area: &Range<u64>) -> (Vec<Present>, u64) {
        match pagemap::present(&self.pagemap, area.clone(), STEP) {
            Ok((found, end)) if end > area.start => (found, end),
            // An older kernel: each page is asked for where it lies.
            _ => {
                let end = area.end.min(area.start + STEP);
                (vec![Present { pages: area.start..end, is_huge: false }], end)
            }
        }
    }

    /// Moves those of some pages that lie on the wrong nodes.
    fn carry(&mut self, pages: Range<u64>, size: PageSize) -> io::Result<()> {
        let each = size.base_pages();
        let heads: Vec<u64> = (pages.start - pages.start % each..pages.end).step_by(each as usize).collect();
        let nodes = nodes_of(self.process.pid, &heads)?;
        let is_wrong = |node: &Option<NodeId>| node.is_some_and(|node| self.from.contains(&node));
        let wrong = heads.iter().zip(&nodes).filter(|(_, node)| is_wrong(node));
        let mut open: Vec<u64> = wrong.map(|(&head, _)| head).collect();
        self.tally.found_pages += open.len() as u64 * each;
        for (number, &to) in (1..).zip(&self.to) {
            let wanted: Vec<(u64, NodeId)> = open.iter().map(|&head| (head, to)).collect();
            open.clear();
            for (&(head, _), result) in wanted.iter().zip(self.mover.move_pages(self.process.pid, &wanted)) {
                match result {
                    Ok(()) => self.tally.moved_pages += each,
                    Err(Refusal::NoRoom) if number < self.to.len() => open.push(head),
                    Err(why) => *self.tally.refused_pages.entry(why).or_default() += each,
                }
            }
        }
        Ok(())
    }
}

/// A process's page map, and the base pages that may be in memory, the first ones last.
fn memory(pid: Pid) -> io::Result<(File, Vec<Range<u64>>)> {
    let pid = pid.as_raw_nonzero().get();
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let maps = procfs::process::Process::new(pid).and_then(|found| found.maps()).map_err(io::Error::other)?;
    let of_kernel = |path: &MMapPath| matches!(path, MMapPath::Vdso | MMapPath::Vvar | MMapPath::Vsyscall);
    let areas = maps.into_iter().rev().filter(|map| !of_kernel(&map.pathname));
    Ok((pagemap, areas.map(|map| map.address.0 / PAGE_BYTES..map.address.1 / PAGE_BYTES).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_this_process_is_looked_at_and_what_cannot_go_is_counted() {
        let memory = vec![1u8; 8 << 20];
        let me = processes::one(rustix::process::getpid()).expect("this process");
        // Other tests' memory comes and goes meanwhile.
        let me = Process { resident_pages: 4096, ..me };
        let page = memory.as_ptr() as u64 / PAGE_BYTES + 1;
        let here = nodes_of(me.pid, &[page]).expect("nodes")[0].expect("it was written");
        let (stall, nowhere) = (Duration::from_millis(20), NodeId(250));
        let mut transfer = Transfer::new(me.clone(), vec![here], vec![nowhere], stall).expect("my own");
        while transfer.step().expect("a step").is_some() {}
        let tally = transfer.tally();
        let refused: u64 = tally.refused_pages.values().sum();
        assert!(tally.found_pages >= 2048 && tally.seen_pages >= tally.found_pages, "{tally:?}");
        assert_eq!((tally.moved_pages, refused), (0, tally.found_pages), "{tally:?}");
        assert!(tally.refused_pages.contains_key(&Refusal::NotAllowed), "{tally:?}");
        assert!(transfer.share() >= 0.5, "{tally:?}");
        let other = Process { uid: me.uid + 1, ..me };
        let mut other = Transfer::new(other, vec![here], vec![nowhere], stall).expect("my own");
        assert!(other.step().is_err(), "it became another user's");
        assert!(memory.iter().all(|&byte| byte == 1));
    }
}
