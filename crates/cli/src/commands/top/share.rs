//! Figures of several statuses: shares of accesses, rates.

use memtide_core::PAGE_BYTES;
use memtide_daemon::status::{NodeStatus, Status, WatchedProcess};

/// Share of a process's sampled accesses that the fastest tier served, in percent.
pub fn fast_of(status: &Status, process: &WatchedProcess) -> Option<f64> {
    let shares = process.accesses_percent.as_ref()?;
    let fast = status.nodes.iter().zip(shares).filter(|(node, _)| node.tier == 0);
    Some(fast.map(|(_, share)| share).sum())
}

/// Share of a process's pages on the fastest tier, in percent.
pub fn pages_of(status: &Status, process: &WatchedProcess) -> Option<f64> {
    let pages = process.pages.as_ref()?;
    let sum = |pages: &mut dyn Iterator<Item = &u64>| pages.map(|&pages| pages as f64).sum::<f64>();
    let all = sum(&mut pages.iter());
    let fast = status.nodes.iter().zip(pages).filter(|(node, _)| node.tier == 0).map(|(_, pages)| pages);
    (all > 0.0).then(|| sum(&mut fast.into_iter()) / all * 100.0)
}

/// Pages of 4 KiB in MB.
pub fn megabytes(pages: u64) -> f64 {
    pages as f64 * PAGE_BYTES as f64 / 1e6
}

/// Change of a number of pages from one status to a later one, in MB/s; `None` if no time passed or one
/// belongs to another run.
pub fn rate_mbps(before: (&Status, u64), now: (&Status, u64)) -> Option<f64> {
    let seconds = now.0.uptime_s - before.0.uptime_s;
    let pages = now.1.checked_sub(before.1).filter(|_| seconds > 0.0)?;
    Some(megabytes(pages) / seconds)
}

/// Pages that moved to a node, and those that moved away.
pub fn moved(status: &Status, node: &NodeStatus) -> (u64, u64) {
    let sum = |is: &dyn Fn(&(String, String, u64)) -> bool| {
        status
            .moved
            .iter()
            .filter(|moved| is(moved))
            .fold(0, |sum: u64, (.., pages)| sum.saturating_add(*pages))
    };
    (sum(&|(_, to, _)| *to == node.name), sum(&|(from, ..)| *from == node.name))
}
