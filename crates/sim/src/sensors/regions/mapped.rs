//! The memory to watch: mapped pages.

use memtide_core::{TaskId, Vpn};

use crate::os::{Entry, PAGES, Space};

/// A contiguous range of a task's memory, in base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub task: TaskId,
    pub start: u64,
    /// The page after its last one.
    pub end: u64,
}

impl Span {
    /// The unmapped pages up to the next span; `None` if that is another task's.
    fn gap(&self, next: &Span) -> Option<u64> {
        (self.task == next.task).then(|| next.start - self.end)
    }
}

/// The contiguous ranges of mapped pages, by task and address. If there are more than `most`, the smallest
/// gaps are included; if that is not enough, the last tasks are left out.
pub(super) fn spans(spaces: &mut [Space], most: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    for space in spaces {
        add_runs(space, &mut spans);
    }
    let excess = spans.len().saturating_sub(most);
    if excess > 0 {
        take_in_gaps(&mut spans, excess);
        spans.truncate(most);
    }
    spans
}

fn add_runs(space: &mut Space, spans: &mut Vec<Span>) {
    let task = space.id;
    space.table.walk(Vpn(0), Vpn(PAGES), |page, size, entry| {
        if entry.has(Entry::PRESENT) {
            let end = page.0 + size.base_pages();
            match spans.last_mut().filter(|last| last.task == task && last.end == page.0) {
                Some(last) => last.end = end,
                None => spans.push(Span { task, start: page.0, end }),
            }
        }
        true
    });
}

/// Includes the smallest gaps between spans.
fn take_in_gaps(spans: &mut Vec<Span>, many: usize) {
    let pairs = spans.windows(2).enumerate();
    let mut gaps: Vec<(u64, usize)> =
        pairs.filter_map(|(at, pair)| pair[0].gap(&pair[1]).map(|gap| (gap, at + 1))).collect();
    gaps.sort_unstable();
    let mut joined = vec![false; spans.len()];
    gaps.iter().take(many).for_each(|&(_, at)| joined[at] = true);
    let mut kept: Vec<Span> = Vec::with_capacity(spans.len());
    for (span, joined) in spans.drain(..).zip(joined) {
        match kept.last_mut() {
            Some(last) if joined => last.end = span.end,
            _ => kept.push(span),
        }
    }
    *spans = kept;
}
