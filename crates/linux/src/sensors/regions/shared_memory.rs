//! Regions of memory that several processes map: with its owner, by the accesses of all of them, and where
//! any of them has its pages.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use memtide_core::{NodeId, PageSize, TaskId};
use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run};
use super::sampled::Place;
use crate::movers::nodes_of;
use crate::processes::Process;
use crate::sensors::shared_memory::SharedMemory;
use crate::sensors::task;
use crate::sys::pagemap::huge_pages;

/// Processes that sampled pages are looked up in beside their owner.
const OTHERS_MAX: usize = 16;

/// The regions of each process, with those of memory that it owns and without those of memory that others
/// own. Pages count as accessed as by the process that accesses them most.
pub fn by_owner(shared: &SharedMemory, processes: &[Process], all: Vec<Vec<Found>>) -> Vec<Vec<Found>> {
    if shared.is_empty() {
        return all;
    }
    let mut others: BTreeMap<TaskId, Vec<Vec<Found>>> = BTreeMap::new();
    let mut own: Vec<Vec<Found>> = Vec::with_capacity(all.len());
    for (process, found) in processes.iter().zip(all) {
        let (mine, theirs) = split(shared, task(process.pid), &found);
        own.push(mine);
        for (owner, found) in theirs {
            others.entry(owner).or_default().push(found);
        }
    }
    for (process, own) in processes.iter().zip(&mut own) {
        for found in others.remove(&task(process.pid)).unwrap_or_default() {
            *own = overlay(own, &found);
        }
    }
    own
}

/// What a process owns of its regions; and the rest by owner, in the owner's pages, by address.
fn split(shared: &SharedMemory, of: TaskId, all: &[Found]) -> (Vec<Found>, BTreeMap<TaskId, Vec<Found>>) {
    let mut own = Vec::with_capacity(all.len());
    let mut theirs: BTreeMap<TaskId, Vec<Found>> = BTreeMap::new();
    for found in all {
        let end = found.start + found.pages;
        let mut at = found.start;
        let part = |start, end: u64| Found { start, pages: end - start, ..*found };
        for alias in shared.aliases_in(of, &(found.start..end)) {
            let (start, until) = (alias.pages.start.max(at), alias.pages.end.min(end));
            own.extend((at < start).then(|| part(at, start)));
            let owned = alias.owner_page(start);
            theirs.entry(alias.owner).or_default().push(part(owned, owned + (until - start)));
            at = until;
        }
        own.extend((at < end).then(|| part(at, end)));
    }
    theirs.values_mut().for_each(|found| found.sort_by_key(|found| found.start));
    (own, theirs)
}

/// Two lists of regions as one, each by address: where they overlap, the one with more accesses counts.
fn overlay(a: &[Found], b: &[Found]) -> Vec<Found> {
    let mut borders: Vec<u64> =
        a.iter().chain(b).flat_map(|found| [found.start, found.start + found.pages]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut all: Vec<Found> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a, b);
    for border in borders.windows(2) {
        let (start, end) = (border[0], border[1]);
        let of = [covering(&mut a, start), covering(&mut b, start)];
        let Some(most) = of.into_iter().flatten().max_by_key(|found| found.accesses) else { continue };
        match all.last_mut().filter(|last| last.start + last.pages == start) {
            Some(last) if (last.accesses, last.age) == (most.accesses, most.age) => last.pages += end - start,
            _ => all.push(Found { start, pages: end - start, ..most }),
        }
    }
    all
}

/// The region that has a page; those before it are dropped.
fn covering(all: &mut &[Found], page: u64) -> Option<Found> {
    let passed = all.iter().take_while(|found| found.start + found.pages <= page).count();
    *all = &all[passed..];
    all.first().filter(|found| found.start <= page).copied()
}

/// Adds pages of shared memory that are only in the page tables of other processes than their owner.
pub fn add_others(
    runs: &mut Vec<Run>,
    pages: &[Range<u64>],
    owner: TaskId,
    shared: &SharedMemory,
    mut look_up: impl FnMut(Pid, &[Range<u64>]) -> Option<Vec<Run>>,
) {
    for alias in shared.mapped_with(owner) {
        let missing = gaps(runs, pages, &alias.owned_pages());
        let named: Vec<Range<u64>> =
            missing.iter().map(|gap| alias.task_page(gap.start)..alias.task_page(gap.end)).collect();
        if named.is_empty() {
            continue;
        }
        runs.extend(look_up(alias.pid, &named).unwrap_or_default().into_iter().map(|run| {
            let size = alias.size_of(run.located.size);
            let start = alias.owner_page(run.start);
            Run { start, end: start + (run.end - run.start), located: Located { size, ..run.located } }
        }));
        runs.sort_by_key(|run| run.start);
    }
}

/// What these runs lack of some pages, as far as it is in a range; all in order of address.
fn gaps(runs: &[Run], pages: &[Range<u64>], within: &Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    for pages in pages {
        let (mut at, end) = (pages.start.max(within.start), pages.end.min(within.end));
        let first = runs.partition_point(|run| run.end <= at);
        for run in runs[first..].iter().take_while(|run| run.start < end) {
            gaps.extend((at < run.start).then_some(at..run.start));
            at = run.end;
        }
        gaps.extend((at < end).then_some(at..end));
    }
    gaps
}

/// Says where pages of a process are, those of memory that it shares by the first processes that have them.
pub fn places(
    pid: Pid,
    shared: &SharedMemory,
    number: impl Fn(NodeId) -> Option<NodeId>,
) -> impl FnMut(&[u64]) -> io::Result<Vec<Option<Place>>> {
    let of_process = move |pid, pages: &[u64]| -> io::Result<Vec<Option<Place>>> {
        let (nodes, is_huge) = (nodes_of(pid, pages)?, huge_pages(pid));
        let size = |page| if is_huge(page) { PageSize::Huge } else { PageSize::Base };
        let place = |(id, page): (Option<NodeId>, &u64)| Some((number(id?)?, size(*page)));
        Ok(nodes.into_iter().zip(pages).map(place).collect())
    };
    move |pages| {
        let mut places = of_process(pid, pages)?;
        for alias in shared.mapped_with(task(pid)).take(OTHERS_MAX) {
            let is_missing = |&at: &usize| places[at].is_none() && alias.owned_pages().contains(&pages[at]);
            let missing: Vec<usize> = (0..pages.len()).filter(is_missing).collect();
            if missing.is_empty() {
                continue;
            }
            let named: Vec<u64> = missing.iter().map(|&at| alias.task_page(pages[at])).collect();
            // It may have exited.
            let found = of_process(alias.pid, &named).unwrap_or_default();
            for (at, place) in missing.into_iter().zip(found) {
                places[at] = place.map(|(node, size)| (node, alias.size_of(size)));
            }
        }
        Ok(places)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    fn found(start: u64, pages: u64, accesses: u32) -> Found {
        Found { start, pages, accesses, age: 1 }
    }

    #[test]
    fn of_overlapping_regions_the_one_with_more_accesses_counts() {
        let a = [found(0, 10, 2), found(10, 10, 5), found(40, 10, 0)];
        let b = [found(5, 10, 3), found(15, 5, 9), found(30, 15, 0)];
        let all = [found(0, 5, 2), found(5, 5, 3), found(10, 5, 5), found(15, 5, 9), found(30, 20, 0)];
        assert_eq!(overlay(&a, &b), all);
        assert_eq!(overlay(&b, &a), all);
        assert_eq!(overlay(&a, &[]), [a[0], a[1], a[2]]);
    }

    const LOCATED: Located = Located { node: NodeId(0), size: PageSize::Base, written: false };

    #[test]
    fn gaps_are_the_pages_without_a_run() {
        let run = |start, end| Run { start, end, located: LOCATED };
        let runs = [run(10, 20), run(20, 25), run(30, 40)];
        assert_eq!(gaps(&runs, &[0..12, 18..50], &(5..45)), [5..10, 25..30, 40..45]);
        assert_eq!(gaps(&runs, &[0..12, 18..50], &(60..70)), []);
        assert_eq!(gaps(&[], &[0..12, 18..50], &(5..20)), [5..12, 18..20]);
        assert_eq!(gaps(&runs, &[10..25], &(0..100)), []);
    }
}
