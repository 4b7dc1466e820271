//! move_pages(2), in batches that hold a process up for no longer than it may be.

use std::io;
use std::time::{Duration, Instant};

use memtide_core::NodeId;
use memtide_core::policy::Refusal;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::sys;

/// Pages of a batch: the fewest, below which a call costs more than its pages, and the most, from which on a larger one saves nothing
/// (17.5 thousand instructions a page at 1, 9.0 at 64, 8.7 at 512).
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 512;

/// How often a page that is in use is tried in all.
const TRIES: usize = 3;

/// Moves pages of processes.
#[derive(Clone, Debug)]
pub struct Mover {
    stall: Duration,
    batch: usize,
}

/// What became of a page.
pub type Moved = Result<(), Refusal>;

impl Mover {
    /// A mover that holds a process up for about `stall` at most at a time.
    pub fn new(stall: Duration) -> Mover {
        Mover { stall, batch: 64 }
    }

    /// Moves base pages of a process, given by their number (address / 4096), each to its node.
    pub fn move_pages(&mut self, process: Pid, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
        let mut moved = Vec::with_capacity(wanted.len());
        while moved.len() < wanted.len() {
            let rest = &wanted[moved.len()..];
            let batch = &rest[..rest.len().min(self.batch)];
            let begin = Instant::now();
            moved.extend(move_batch(process, batch));
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

/// Where pages of a process lie; none for a page that is not in memory.
///
/// # Errors
/// The kernel's, if there is no such process or it may not be asked.
pub fn nodes_of(process: Pid, pages: &[u64]) -> io::Result<Vec<Option<NodeId>>> {
    let mut nodes = Vec::with_capacity(pages.len());
    for batch in pages.chunks(BATCH_MAX * 8) {
        let mut status = vec![0; batch.len()];
        sys::move_pages(process, batch, None, &mut status)?;
        nodes.extend(status.iter().map(|&status| u8::try_from(status).ok().map(NodeId)));
    }
    Ok(nodes)
}

fn move_batch(process: Pid, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
    let pages: Vec<u64> = wanted.iter().map(|&(page, _)| page).collect();
    let mut moved: Vec<Moved> = match nodes_of(process, &pages) {
        Ok(nodes) => nodes.iter().zip(wanted).map(|(&at, &(_, to))| before(at, to)).collect(),
        Err(error) => vec![Err(refusal_of(&error)); wanted.len()],
    };
    for _ in 0..TRIES {
        let open: Vec<usize> = (0..wanted.len()).filter(|&at| moved[at] == Err(Refusal::Busy)).collect();
        if open.is_empty() {
            break;
        }
        let some: Vec<(u64, NodeId)> = open.iter().map(|&at| wanted[at]).collect();
        for (at, result) in open.into_iter().zip(attempt(process, &some)) {
            moved[at] = result;
        }
    }
    moved
}

/// What is known of a page before it is moved: [`Refusal::Busy`] if it is to be tried.
fn before(at: Option<NodeId>, to: NodeId) -> Moved {
    match at {
        None => Err(Refusal::Gone),
        Some(at) if at == to => Err(Refusal::AlreadyThere),
        Some(_) => Err(Refusal::Busy),
    }
}

fn attempt(process: Pid, wanted: &[(u64, NodeId)]) -> Vec<Moved> {
    let (pages, to): (Vec<u64>, Vec<NodeId>) = wanted.iter().copied().unzip();
    let mut status = vec![i32::MIN; pages.len()];
    let why = match sys::move_pages(process, &pages, Some(&to), &mut status) {
        Ok(0) => return status.iter().zip(&to).map(|(&status, &to)| after(status, to)).collect(),
        // The statuses may not have been written: pages are asked for again.
        Ok(_) => Refusal::Busy,
        Err(error) => refusal_of(&error),
    };
    match nodes_of(process, &pages) {
        Ok(nodes) => nodes
            .iter()
            .zip(&to)
            .map(|(&at, &to)| match at {
                None => Err(Refusal::Gone),
                Some(at) if at == to => Ok(()),
                Some(_) => Err(why),
            })
            .collect(),
        Err(error) => vec![Err(refusal_of(&error)); pages.len()],
    }
}

fn after(status: i32, to: NodeId) -> Moved {
    if status == i32::from(to.0) { Ok(()) } else { Err(refusal(Errno::from_raw_os_error(-status.min(0)))) }
}

fn refusal_of(error: &io::Error) -> Refusal {
    refusal(Errno::from_io_error(error).unwrap_or(Errno::BUSY))
}

/// What the kernel means by an error of move_pages(2).
fn refusal(error: Errno) -> Refusal {
    match error {
        Errno::FAULT | Errno::NOENT | Errno::SRCH => Refusal::Gone,
        Errno::NOMEM => Refusal::NoRoom,
        Errno::ACCESS | Errno::PERM | Errno::NODEV => Refusal::NotAllowed,
        _ => Refusal::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_stall_that_is_allowed() {
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
    fn what_the_kernel_says_of_pages_here() {
        let me = rustix::process::getpid();
        let words = [1u64; 2048];
        let page = words.as_ptr() as u64 / 4096 + 1;
        let nodes = nodes_of(me, &[page, 1]).expect("nodes");
        let here = nodes[0].expect("a page that was written");
        assert_eq!(nodes[1], None, "page 1 is not mapped");
        let moved = Mover::new(Duration::from_millis(20))
            .move_pages(me, &[(page, here), (1, here), (page, NodeId(250))]);
        assert_eq!(moved, [Err(Refusal::AlreadyThere), Err(Refusal::Gone), Err(Refusal::NotAllowed)]);
        assert_eq!(words.iter().sum::<u64>(), 2048);
    }
}
