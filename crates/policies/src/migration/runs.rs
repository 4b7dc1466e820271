//! Per-page values stored as runs: most adjacent pages have equal values.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use memtide_core::{TaskId, Vpn};
use serde::{Deserialize, Serialize};

/// A value for some base pages of tasks. Uses memory per run of equal adjacent pages, not per page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    try_from = "Vec<Listed<V>>",
    into = "Vec<Listed<V>>",
    bound = "V: Copy + Serialize + for<'a> Deserialize<'a>"
)]
pub(super) struct Runs<V: Copy>(BTreeMap<(TaskId, Vpn), Run<V>>);

/// A run by its task, first page, number of pages, and value.
type Listed<V> = (TaskId, Vpn, u64, V);

#[derive(Clone, Copy, Debug)]
struct Run<V> {
    pages: u64,
    value: V,
}

impl<V: Copy> Default for Runs<V> {
    fn default() -> Runs<V> {
        Runs(BTreeMap::new())
    }
}

impl<V: Copy + PartialEq> Runs<V> {
    /// Sets the value of a page; returns the previous one.
    pub(super) fn insert(&mut self, task: TaskId, page: Vpn, value: V) -> Option<V> {
        let before = self.run_of(task, page).map(|(_, run)| run.value);
        if before != Some(value) {
            self.insert_all(task, page, 1, value);
        }
        before
    }

    /// Sets the value of this many adjacent pages.
    pub(super) fn insert_all(&mut self, task: TaskId, first: Vpn, pages: u64, value: V) {
        let mut start = first;
        let mut end = first.0.saturating_add(pages);
        if start.0 == end {
            return;
        }
        let mut cut = None;
        let before = first.0.checked_sub(1).and_then(|before| self.run_of(task, Vpn(before)));
        if let Some((at, run)) = before {
            let run_end = at.0 + run.pages;
            if run.value == value {
                start = at;
            } else {
                self.0.insert((task, at), Run { pages: first.0 - at.0, ..run });
            }
            cut = (run_end > end).then_some((run_end, run.value));
        }
        while let Some((&(_, at), &run)) = self.0.range((task, first)..=(task, Vpn(end))).next() {
            let run_end = at.0 + run.pages;
            if at.0 == end && run.value != value {
                break;
            }
            self.0.remove(&(task, at));
            if run_end > end {
                cut = Some((run_end, run.value));
            }
            if at.0 == end {
                break;
            }
        }
        match cut {
            Some((run_end, same)) if same == value => end = run_end,
            Some((run_end, value)) => {
                _ = self.0.insert((task, Vpn(end)), Run { pages: run_end - end, value });
            }
            None => {}
        }
        self.0.insert((task, start), Run { pages: end - start.0, value });
    }

    /// Removes the value of a page.
    pub(super) fn remove(&mut self, task: TaskId, page: Vpn) {
        let Some((start, Run { pages, value })) = self.run_of(task, page) else { return };
        let (before, after) = (page.0 - start.0, start.0 + pages - page.0 - 1);
        self.0.remove(&(task, start));
        if before > 0 {
            self.0.insert((task, start), Run { pages: before, value });
        }
        if after > 0 {
            self.0.insert((task, Vpn(page.0 + 1)), Run { pages: after, value });
        }
    }

    /// All runs, in order: task, first page, number of pages, value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskId, Vpn, u64, V)> {
        self.0.iter().map(|(&(task, start), run)| (task, start, run.pages, run.value))
    }

    /// The pages from `start` to before `end` that have a value: first page, the one after the last, value.
    pub(super) fn within(&self, task: TaskId, start: Vpn, end: Vpn) -> impl Iterator<Item = (Vpn, Vpn, V)> {
        let first = self.run_of(task, start).filter(|(first, _)| *first < start);
        let later = self.0.range((task, start)..(task, end)).map(|(&(_, first), &run)| (first, run));
        let bounds = move |(first, run): (Vpn, Run<V>)| {
            (first.max(start), Vpn(first.0 + run.pages).min(end), run.value)
        };
        first.into_iter().chain(later).map(bounds)
    }

    /// As [`within`](Runs::within) of many ranges that come in order, faster.
    pub(super) fn sweep(&self) -> Sweep<'_, V> {
        Sweep { left: self.0.iter().peekable() }
    }

    /// Forgets the runs of which `keeps` is false, given their first page, the one after the last and the
    /// value.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(TaskId, Vpn, Vpn, V) -> bool) {
        self.0.retain(|&(task, start), run| keeps(task, start, Vpn(start.0 + run.pages), run.value));
    }

    /// The run of a page, with the run's first page.
    fn run_of(&self, task: TaskId, page: Vpn) -> Option<(Vpn, Run<V>)> {
        let (&(_, start), &run) = self.0.range((task, Vpn(0))..=(task, page)).next_back()?;
        (page.0 - start.0 < run.pages).then_some((start, run))
    }
}

/// A pass over runs.
pub(super) struct Sweep<'r, V: Copy> {
    left: Peekable<btree_map::Iter<'r, (TaskId, Vpn), Run<V>>>,
}

impl<V: Copy> Sweep<'_, V> {
    /// Calls `push` with the pages from `start` to before `end` that have a value, as runs: first page, the
    /// one after the last, value. No range begins before the end of the last one.
    pub(super) fn each(&mut self, task: TaskId, start: Vpn, end: Vpn, mut push: impl FnMut(Vpn, Vpn, V)) {
        while let Some(&(&(of, first), run)) = self.left.peek() {
            let last = Vpn(first.0 + run.pages);
            if (of, last) > (task, start) {
                if of != task || first >= end {
                    return;
                }
                push(first.max(start), last.min(end), run.value);
                if last > end {
                    return;
                }
            }
            self.left.next();
        }
    }
}

impl<V: Copy> From<Runs<V>> for Vec<Listed<V>> {
    fn from(runs: Runs<V>) -> Vec<Listed<V>> {
        runs.0.into_iter().map(|((task, start), run)| (task, start, run.pages, run.value)).collect()
    }
}

impl<V: Copy> TryFrom<Vec<Listed<V>>> for Runs<V> {
    type Error = String;

    fn try_from(listed: Vec<Listed<V>>) -> Result<Runs<V>, String> {
        let mut runs = BTreeMap::new();
        let mut last = (TaskId(0), Vpn(0));
        for (task, start, pages, value) in listed {
            let end = start.0.checked_add(pages).filter(|_| pages > 0 && last <= (task, start));
            last = (
                task,
                Vpn(end
                    .ok_or_else(|| format!("{pages} pages from {start:?} of {task:?} on, after {last:?}"))?),
            );
            runs.insert((task, start), Run { pages, value });
        }
        Ok(Runs(runs))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_match_reference_map(
            changes in vec((0u32..2, 0u64..20, prop::option::weighted(0.8, 0u8..3), 0u64..9), 0..200),
        ) {
            let (mut runs, mut plain) = (Runs::default(), BTreeMap::new());
            for (task, page, value, pages) in changes {
                let (task, page) = (TaskId(task), Vpn(page));
                match value {
                    Some(value) if pages != 1 => {
                        runs.insert_all(task, page, pages, value);
                        plain.extend((page.0..page.0 + pages).map(|page| ((task, Vpn(page)), value)));
                    }
                    Some(value) => {
                        let previous = plain.insert((task, page), value);
                        prop_assert_eq!(runs.insert(task, page, value), previous);
                    }
                    None => {
                        runs.remove(task, page);
                        plain.remove(&(task, page));
                    }
                }
                let kept: Vec<_> = runs.clone().0.into_iter().flat_map(|((task, start), run)| {
                    (0..run.pages).map(move |at| ((task, Vpn(start.0 + at)), run.value))
                }).collect();
                prop_assert_eq!(kept, plain.clone().into_iter().collect::<Vec<_>>());
                let joined = runs.0.iter().zip(runs.0.iter().skip(1)).any(|((a, run), (b, next))| {
                    a.0 == b.0 && a.1.0 + run.pages == b.1.0 && run.value == next.value
                });
                prop_assert!(!joined, "two runs that are one: {:?}", runs);
            }
            for (start, end) in [(0, 20), (3, 9), (7, 8), (9, 9)] {
                let within = runs.within(TaskId(1), Vpn(start), Vpn(end));
                let pages = within.flat_map(|(from, to, value)| (from.0..to.0).map(move |at| (at, value)));
                let expected = plain.range((TaskId(1), Vpn(start))..(TaskId(1), Vpn(end)));
                prop_assert_eq!(
                    pages.collect::<Vec<_>>(),
                    expected.map(|(&(_, page), &value)| (page.0, value)).collect::<Vec<_>>()
                );
            }
            let (mut sweep, mut swept) = (runs.sweep(), Vec::new());
            for (task, start, end) in [(0, 2, 3), (0, 3, 3), (0, 5, 30), (1, 1, 4), (1, 4, 5), (1, 9, 30)] {
                sweep.each(TaskId(task), Vpn(start), Vpn(end), |first, last, value| {
                    swept.extend((first.0..last.0).map(|page| ((TaskId(task), Vpn(page)), value)));
                });
            }
            let is_in = |task: u32, page: u64| match task {
                0 => page == 2 || page >= 5,
                _ => (1..5).contains(&page) || page >= 9,
            };
            let expected = plain.iter().filter(|&(&(task, page), _)| is_in(task.0, page.0));
            prop_assert_eq!(swept, expected.map(|(&page, &value)| (page, value)).collect::<Vec<_>>());
            let listed: Vec<Listed<u8>> = runs.clone().into();
            prop_assert_eq!(Runs::try_from(listed.clone()).map(Vec::from), Ok(listed));
        }
    }

    #[test]
    fn equal_neighbours_share_a_run() {
        let mut runs = Runs::default();
        for page in (0..1000).rev() {
            assert_eq!(runs.insert(TaskId(1), Vpn(page), 7), None);
        }
        assert_eq!(runs.0.len(), 1);
    }

    #[test]
    fn invalid_runs_are_refused() {
        let run = |start, pages| (TaskId(1), Vpn(start), pages, 7u8);
        for wrong in
            [vec![run(4, 0)], vec![run(4, u64::MAX)], vec![run(4, 2), run(5, 1)], vec![run(4, 1), run(2, 1)]]
        {
            assert!(Runs::try_from(wrong.clone()).is_err(), "{wrong:?}");
        }
        assert!(Runs::try_from(vec![run(4, 2), run(6, 1)]).is_ok());
    }
}
