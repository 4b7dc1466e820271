//! move_pages(2), in batches limited by how long they may stall a process.

use std::io;
use std::time::{Duration, Instant};

use memtide_core::NodeId;
use memtide_core::policy::Refusal;
use rustix::io::Errno;
use rustix::process::Pid;

use super::frames::Frames;
use crate::sys::{self, Mapped};

/// Pages per batch: the minimum, below which a call costs more than its pages, and the maximum, above which a
/// larger one saves nothing (17.5 thousand instructions a page at 1, 9.0 at 64, 8.7 at 512).
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 512;

/// Busy pages are retried in calls of this many pages, at last one by one: a page that cannot move may keep
/// the kernel from those after it in the same call.
const RETRIES: [usize; 2] = [BATCH_MIN, 1];

/// Moves pages of processes.
#[derive(Clone, Debug)]
pub struct Mover {
    stall: Duration,
    batch: usize,
    open: Open,
    frames: Frames,
}

/// The outcome of a page.
pub type Moved = Result<(), Refusal>;

impl Mover {
    /// A mover that stalls a process for about `stall` at a time at most.
    pub fn new(stall: Duration) -> Mover {
        Mover { stall, batch: 64, open: Open::default(), frames: Frames::default() }
    }

    /// Moves base pages of a process, given by number (address / 4096), each to its node. Those that other
    /// processes map, too, are not allowed to move.
    pub fn move_pages(&mut self, process: Pid, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
        self.move_mapped(process, Mapped::ByOne, wanted)
    }

    /// The same, also of pages that other processes map. Needs CAP_SYS_NICE.
    pub fn move_shared_pages(&mut self, process: Pid, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
        self.move_mapped(process, Mapped::ByAny, wanted)
    }

    fn move_mapped(&mut self, process: Pid, mapped: Mapped, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
        let mut moved = vec![Err(Refusal::Busy); wanted.len()];
        let pagemap = self.frames.pagemap_for(process, wanted);
        let mut done = 0;
        while done < wanted.len() {
            let batch = done..wanted.len().min(done + self.batch);
            done = batch.end;
            let begin = Instant::now();
            let (wanted, moved) = (&wanted[batch.clone()], &mut moved[batch]);
            let elsewhere =
                pagemap.as_ref().is_some_and(|pagemap| self.frames.all_are_elsewhere(pagemap, wanted));
            self.open.move_all((process, mapped), wanted, elsewhere, moved);
            self.adapt(begin.elapsed());
        }
        moved
    }

    fn adapt(&mut self, took: Duration) {
        if took > self.stall {
            self.batch = (self.batch / 2).max(BATCH_MIN);
        } else if took < self.stall / 2 {
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
    }
}

/// The nodes of a process's pages; `None` for a page that is not resident.
///
/// # Errors
/// The kernel's, if there is no such process or access is denied.
pub fn nodes_of(process: Pid, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>> {
    let mut nodes = Vec::with_capacity(pages.len());
    for batch in pages.chunks(BATCH_MAX * 8) {
        let addresses: Vec<u64> = batch.iter().copied().map(address).collect();
        let mut status = vec![0; batch.len()];
        sys::move_pages(process, &addresses, None, &mut status)?;
        nodes.extend(status.iter().map(|&status| u8::try_from(status).ok().map(NodeId)));
    }
    Ok(nodes)
}

fn address(page: u64) -> u64 {
    page << 12
}

/// Pages still to be moved, as arguments of move_pages(2), and per-page bookkeeping.
#[derive(Clone, Debug, Default)]
struct Open {
    addresses: Vec<u64>,
    to: Vec<i32>,
    status: Vec<i32>,
    /// Their indices among all requested pages.
    places: Vec<usize>,
}

impl Open {
    /// Moves pages that were not tried before, and returns each outcome. If all are known to be `elsewhere`,
    /// resident but off their target nodes, the kernel is not queried first.
    fn move_all(
        &mut self,
        of: (Pid, Mapped),
        wanted: &[(u64, NodeId)],
        elsewhere: bool,
        moved: &mut [Moved],
    ) {
        let (process, _) = of;
        self.take(wanted, 0..wanted.len());
        if !elsewhere {
            self.ask(process, moved, Err(Refusal::AlreadyThere), Refusal::Busy);
        }
        self.attempt(of, moved);
        for most in RETRIES {
            let busy: Vec<usize> = (0..moved.len()).filter(|&at| moved[at] == Err(Refusal::Busy)).collect();
            for part in busy.chunks(most) {
                self.take(wanted, part.iter().copied());
                self.ask(process, moved, Err(Refusal::AlreadyThere), Refusal::Busy);
                self.attempt(of, moved);
            }
        }
    }

    /// Selects the pages at some indices as those to move.
    fn take(&mut self, wanted: &[(u64, NodeId)], places: impl Iterator<Item = usize> + Clone) {
        self.addresses.clear();
        self.addresses.extend(places.clone().map(|at| address(wanted[at].0)));
        self.to.clear();
        self.to.extend(places.clone().map(|at| i32::from(wanted[at].1.0)));
        self.places.clear();
        self.places.extend(places);
        // A stale status must not count for a page that the kernel skipped.
        self.status.clear();
        self.status.resize(self.places.len(), -Errno::BUSY.raw_os_error());
    }

    /// Moves them once; none is on its target node yet.
    fn attempt(&mut self, (process, mapped): (Pid, Mapped), moved: &mut [Moved]) {
        if self.addresses.is_empty() {
            return;
        }
        match sys::move_pages(process, &self.addresses, Some((&self.to, mapped)), &mut self.status) {
            Ok(0) => self.settle(moved, after),
            // The statuses may not have been written: query the pages again.
            Ok(_) => self.ask(process, moved, Ok(()), Refusal::Busy),
            Err(error) => self.ask(process, moved, Ok(()), refusal_of(&error)),
        }
    }

    /// Queries their nodes; `there` is the outcome of a page on its target, `elsewhere` the reason for one
    /// that is not.
    fn ask(&mut self, process: Pid, moved: &mut [Moved], there: Moved, elsewhere: Refusal) {
        match sys::move_pages(process, &self.addresses, None, &mut self.status) {
            Ok(_) => self.settle(moved, |at, to| match at {
                at if at == to => there,
                0.. => Err(elsewhere),
                _ => Err(Refusal::Gone),
            }),
            Err(error) => {
                let why = refusal_of(&error);
                self.settle(moved, |_, _| Err(why));
            }
        }
    }

    /// Sets each outcome by its status and target node. Busy pages stay pending.
    fn settle(&mut self, moved: &mut [Moved], result: impl Fn(i32, i32) -> Moved) {
        let mut open = 0;
        let pages = self.addresses.len();
        // Slices of equal length: bounds are checked once instead of per page.
        let (addresses, status) = (&mut self.addresses[..pages], &self.status[..pages]);
        let (tos, places) = (&mut self.to[..pages], &mut self.places[..pages]);
        for page in 0..pages {
            let (to, place) = (tos[page], places[page]);
            let result = result(status[page], to);
            moved[place] = result;
            if matches!(result, Err(Refusal::Busy)) {
                if open < page {
                    (addresses[open], tos[open], places[open]) = (addresses[page], to, place);
                }
                open += 1;
            }
        }
        self.addresses.truncate(open);
        self.to.truncate(open);
        self.status.truncate(open);
        self.places.truncate(open);
    }
}

fn after(status: i32, to: i32) -> Moved {
    if status == to { Ok(()) } else { Err(refusal(Errno::from_raw_os_error(-status.min(0)))) }
}

pub(super) fn refusal_of(error: &io::Error) -> Refusal {
    refusal(Errno::from_io_error(error).unwrap_or(Errno::BUSY))
}

/// The meaning of a move_pages(2) error.
fn refusal(error: Errno) -> Refusal {
    match error {
        Errno::FAULT | Errno::NOENT | Errno::SRCH => Refusal::Gone,
        Errno::NOMEM => Refusal::NoRoom,
        Errno::ACCESS | Errno::PERM => Refusal::NotAllowed,
        Errno::NODEV => Refusal::NodeOffline,
        _ => Refusal::Busy,
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn batch_size_follows_allowed_stall() {
        let mut mover = Mover::new(Duration::from_millis(20));
        for _ in 0..9 {
            mover.adapt(Duration::from_millis(1));
        }
        assert_eq!(mover.batch, BATCH_MAX);
        mover.adapt(Duration::from_millis(15));
        assert_eq!(mover.batch, BATCH_MAX);
        for (batch, ms) in [(256, 21), (128, 40), (64, 21), (32, 21), (16, 21), (16, 90)] {
            mover.adapt(Duration::from_millis(ms));
            assert_eq!(mover.batch, batch);
        }
    }

    #[test]
    fn kernel_status_maps_to_outcome() {
        let me = rustix::process::getpid();
        let words = [1u64; 2048];
        let page = words.as_ptr() as u64 / 4096 + 1;
        let nodes = nodes_of(me, &[page, 1]).expect("nodes");
        let here = nodes[0].expect("a page that was written");
        assert_eq!(nodes[1], None, "page 1 is not mapped");
        let moved = Mover::new(Duration::from_millis(20))
            .move_pages(me, &[(page, here), (1, here), (page, NodeId(250))]);
        assert_eq!(moved, [Err(Refusal::AlreadyThere), Err(Refusal::Gone), Err(Refusal::NodeOffline)]);
        assert_eq!(words.iter().sum::<u64>(), 2048);
    }

    #[test]
    fn exited_process_that_is_not_reaped_is_gone() {
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = Pid::from_child(&child);
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), exited).expect("its exit");
        let error = nodes_of(pid, &[1]).expect_err("it has no memory");
        assert_eq!(error.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        let moved = Mover::new(Duration::from_millis(20)).move_pages(pid, &[(1, NodeId(0))]);
        assert_eq!(moved, [Err(Refusal::Gone)]);
        child.wait().expect("its status");
    }
}
