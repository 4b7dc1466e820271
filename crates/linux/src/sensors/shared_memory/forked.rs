//! Private memory that processes share since a fork: at the same addresses they have the same page frames,
//! until one of them writes there.

use std::fs::File;
use std::io;
use std::ops::Range;

use memtide_core::PageSize;
use rustix::process::Pid;

use super::Alias;
use crate::sensors::task;
use crate::sys::pagemap::{self, ENTRY_BYTES, Present};

/// Fewest pages in a row that get other names: 256 KiB. Runs are shorter where processes wrote here and
/// there.
pub const RUN_MIN: u64 = 64;

/// Most processes that one is compared with.
const OWNERS_MAX: usize = 4;

/// Pages in memory that are compared at a time.
const CHUNK: u64 = 4096;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// A comparison of a process's private memory with that of others, which own what they have in common.
#[derive(Debug)]
pub struct Comparison {
    pub pid: Pid,
    /// The others, and where both have private mappings; the next one last.
    owners: Vec<(Pid, Vec<Range<u64>>)>,
    /// What is left to be compared with the next one; the next pages last.
    left: Vec<Range<u64>>,
    found: Vec<Alias>,
}

impl Comparison {
    /// Of a process with these private mappings with those of others, the first of which owns what several
    /// of them have; all in order of address.
    pub fn new<'p>(
        pid: Pid,
        private: &[Range<u64>],
        others: impl Iterator<Item = (Pid, &'p [Range<u64>])>,
    ) -> Comparison {
        let in_both = others.map(|(owner, mappings)| (owner, common(private, mappings)));
        let mut owners: Vec<_> = in_both.filter(|(_, pages)| !pages.is_empty()).take(OWNERS_MAX).collect();
        owners.reverse();
        let mut comparison = Comparison { pid, owners, left: Vec::new(), found: Vec::new() };
        comparison.begin_owner();
        comparison
    }

    /// Compares some pages by the pagemaps of both processes. Returns the other names of the process's pages,
    /// by address, once all are compared. A process that has ended has no pages in common with others.
    pub fn step(&mut self) -> Option<Vec<Alias>> {
        let Some(&(owner, _)) = self.owners.last() else { return Some(std::mem::take(&mut self.found)) };
        let Some(pages) = self.left.pop() else {
            self.end_owner();
            return None;
        };
        // Without the kernel's scans, or once a process has ended, nothing is known of the rest.
        match in_common([self.pid, owner], &pages) {
            Ok((runs, end)) => {
                runs.into_iter().for_each(|run| self.push(owner, run));
                self.left.extend((pages.start < end && end < pages.end).then_some(end..pages.end));
            }
            Err(_) => self.left.clear(),
        }
        None
    }

    fn begin_owner(&mut self) {
        let found: Vec<Range<u64>> = self.found.iter().map(|alias| alias.pages.clone()).collect();
        self.left = self.owners.last().map(|(_, pages)| minus(pages, &found)).unwrap_or_default();
        self.left.reverse();
    }

    fn end_owner(&mut self) {
        self.drop_short_run();
        self.found.sort_by_key(|alias| alias.pages.start);
        self.owners.pop();
        self.begin_owner();
    }

    fn push(&mut self, owner: Pid, run: Range<u64>) {
        match self.found.last_mut() {
            Some(last) if last.pages.end == run.start && last.owner == task(owner) => {
                last.pages.end = run.end
            }
            _ => {
                self.drop_short_run();
                let (owner, owned, pid) = (task(owner), run.start, self.pid);
                self.found.push(Alias { pid, pages: run, owner, owned, is_forked: true });
            }
        }
    }

    fn drop_short_run(&mut self) {
        self.found.pop_if(|last| last.pages.end - last.pages.start < RUN_MIN);
    }
}

/// Runs of pages that two processes have in common, among the first of these that are in memory. Also returns
/// where they end.
fn in_common(both: [Pid; 2], pages: &Range<u64>) -> io::Result<(Vec<Range<u64>>, u64)> {
    let [one, other] = [&pagemap::open(both[0])?, &pagemap::open(both[1])?];
    let (present, end) = pagemap::present(one, pages.clone(), CHUNK)?;
    let mut common = Vec::new();
    for Present { pages, is_huge } in present {
        let mut at = pages.start;
        while at < pages.end {
            let block = at..pages.end.min((at + 1).next_multiple_of(HUGE_PAGES));
            at = block.end;
            common.extend(block_in_common([one, other], block, is_huge)?);
        }
    }
    Ok((common, end))
}

/// The same within 2 MiB. The first page of a huge one says it of all.
fn block_in_common(both: [&File; 2], pages: Range<u64>, is_huge: bool) -> io::Result<Vec<Range<u64>>> {
    let [mut entries, mut others] = [[0; HUGE_PAGES as usize * ENTRY_BYTES]; 2];
    let mut are_common = |read: u64| {
        let bytes = read as usize * ENTRY_BYTES;
        pagemap::in_common(both, pages.start, [&mut entries[..bytes], &mut others[..bytes]])
            .map(|flags| runs(pages.start, flags))
    };
    if is_huge && pagemap::is_huge(both[1], pages.start) {
        let is_common = !are_common(1)?.is_empty();
        return Ok(is_common.then_some(pages).into_iter().collect());
    }
    are_common(pages.end - pages.start)
}

/// Runs of `true` from a page on.
fn runs(first: u64, flags: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (page, _) in (first..).zip(flags).filter(|(_, flag)| *flag) {
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// Pages that are in both of two lists, each in order and without overlaps.
fn common(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut common = Vec::new();
    for of_a in a {
        let first = b.partition_point(|of_b| of_b.end <= of_a.start);
        let within = b[first..].iter().take_while(|of_b| of_b.start < of_a.end);
        common.extend(within.map(|of_b| of_b.start.max(of_a.start)..of_b.end.min(of_a.end)));
    }
    common
}

/// Pages of one list that are not in another, each in order and without overlaps.
fn minus(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for of_a in a {
        let mut at = of_a.start;
        for taken in common(std::slice::from_ref(of_a), b) {
            left.push(at..taken.start);
            at = taken.end;
        }
        left.push(at..of_a.end);
    }
    left.retain(|pages| !pages.is_empty());
    left
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pid(id: i32) -> Pid {
        Pid::from_raw(id).expect("a process id")
    }

    #[test]
    fn run_over_two_chunks_is_one_and_short_ones_are_dropped() {
        let mappings = [0..9000];
        let others = [(pid(7), &mappings[..]), (pid(8), &mappings[..]), (pid(9), &[9000..9999][..])];
        let mut comparison = Comparison::new(pid(11), &mappings, others.into_iter());
        assert_eq!(comparison.left, [0..9000]);
        for run in [10..20, 4000..4096, 4096..4100, 5000..5064] {
            comparison.push(pid(7), run);
        }
        comparison.end_owner();
        let pages = |found: &[Alias]| found.iter().map(|alias| alias.pages.clone()).collect::<Vec<_>>();
        assert_eq!(pages(&comparison.found), [4000..4100, 5000..5064]);
        assert_eq!(comparison.left, [5064..9000, 4100..5000, 0..4000], "with the second owner");
        comparison.push(pid(8), 100..164);
        comparison.end_owner();
        let found = comparison.step().expect("no owner is left");
        assert_eq!(pages(&found), [100..164, 4000..4100, 5000..5064]);
        assert_eq!(found.iter().map(|alias| alias.owner.0).collect::<Vec<_>>(), [8, 7, 7]);
    }

    #[test]
    fn process_that_has_ended_has_nothing_in_common() {
        let mappings = [0..9000];
        let mut comparison = Comparison::new(
            rustix::process::getpid(),
            &mappings,
            [(pid(i32::MAX), &mappings[..])].into_iter(),
        );
        let found = (0..9).find_map(|_| comparison.step());
        assert_eq!(found, Some(Vec::new()));
    }

    fn ranges(starts: Vec<(u64, u64)>) -> Vec<Range<u64>> {
        let mut at = 0;
        let next = |(gap, pages): (u64, u64)| {
            let start = at + gap;
            at = start + pages;
            start..at
        };
        starts.into_iter().map(next).collect()
    }

    proptest! {
        #[test]
        fn lists_of_ranges_are_sets_of_pages(
            a in vec((0u64..9, 1u64..9), 0..9),
            b in vec((0u64..9, 1u64..9), 0..9),
        ) {
            let (a, b) = (ranges(a), ranges(b));
            let set = |ranges: &[Range<u64>]| ranges.iter().cloned().flatten().collect::<BTreeSet<u64>>();
            prop_assert_eq!(set(&common(&a, &b)), &set(&a) & &set(&b));
            prop_assert_eq!(set(&minus(&a, &b)), &set(&a) - &set(&b));
            let of_a = set(&a);
            let flags = (0..200).map(|page| of_a.contains(&page));
            prop_assert_eq!(set(&runs(0, flags)), of_a);
        }
    }
}
