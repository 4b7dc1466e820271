//! Regions of memory that several processes map: with its owner, by the accesses of all of them.

use std::collections::BTreeMap;

use memtide_core::TaskId;

use super::Found;
use crate::processes::Process;
use crate::sensors::shared_memory::SharedMemory;
use crate::sensors::task;

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

#[cfg(test)]
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
}
