//! What SysMon's samples say of a page: how hot it is, and of which domain.

use std::collections::BTreeMap;

use memtide_core::policy::{Frame, Page, Region, View};
use memtide_core::{NodeId, TaskId, Vpn};
use serde::{Deserialize, Serialize};

use crate::migration::groups::pages_of;

/// A listed page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub page: Page,
    pub node: NodeId,
    pub frame: Frame,
    /// Samples of the pass in which it was accessed, and written.
    pub accessed: u32,
    pub written: u32,
}

/// How a page is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Accessed often.
    Hot,
    /// One of many pages of a program that are accessed equally often and together exceed the last-level
    /// cache: it would evict others without being reused there.
    Streaming,
    /// Accessed at times.
    Rare,
    /// Not accessed in the pass.
    Idle,
}

/// A page's use and domain in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub of: Use,
    /// Whether it is accessed as often as a hot page.
    pub is_hot: bool,
    /// Write domain: its weighted writes outnumber its reads.
    pub is_written: bool,
}

/// Limits of the labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labelling {
    /// Samples from which on a page is hot.
    pub hot: u32,
    /// Reads that a write counts for.
    pub write_weight: u32,
    /// Pages that the last-level cache holds.
    pub cache_pages: u64,
}

/// The pages of a view, by task and address.
pub(super) fn listed(view: &View) -> Vec<Seen> {
    let frames = view.frames.as_ref().map_or(&[][..], |frames| &frames.pages);
    let frame = |at: usize, region: &Region| match region.pages {
        1 => frames.get(at).copied().unwrap_or(Frame::ANY),
        _ => Frame::ANY,
    };
    let seen = |(at, region): (usize, Region)| {
        let (node, frame, accessed, written) = (region.node, frame(at, &region), region.reads, region.writes);
        pages_of(region).map(move |page| Seen { page, node, frame, accessed, written })
    };
    view.regions.iter().enumerate().flat_map(seen).collect()
}

impl Labelling {
    /// The label of each page.
    pub fn labels(&self, pages: &[Seen]) -> Vec<Label> {
        let mut by_task: BTreeMap<TaskId, Vec<u32>> = BTreeMap::new();
        for seen in pages.iter().filter(|seen| seen.accessed > 0) {
            by_task.entry(seen.page.task).or_default().push(seen.accessed);
        }
        let streams = by_task.into_iter().filter_map(|(task, counts)| Some((task, self.streaming(counts)?)));
        let streams: BTreeMap<TaskId, [u32; 2]> = streams.collect();
        pages.iter().map(|seen| self.label(seen, streams.get(&seen.page.task))).collect()
    }

    fn label(&self, seen: &Seen, streaming: Option<&[u32; 2]>) -> Label {
        let Seen { accessed, written, .. } = *seen;
        let is_hot = accessed >= self.hot;
        let of = match streaming {
            _ if accessed == 0 => Use::Idle,
            Some(&[least, most]) if (least..=most).contains(&accessed) => Use::Streaming,
            _ if is_hot => Use::Hot,
            _ => Use::Rare,
        };
        let read = accessed.saturating_sub(written);
        Label { of, is_hot, is_written: written > 0 && written.saturating_mul(self.write_weight) >= read }
    }

    /// The counts of a program's streaming pages: those within a quarter of the median, if at least half of
    /// its accessed pages are, and if they exceed the cache.
    fn streaming(&self, mut counts: Vec<u32>) -> Option<[u32; 2]> {
        let middle = counts.len() / 2;
        let (_, &mut median, _) = counts.select_nth_unstable(middle);
        let [least, most] = [median - median / 4, median.saturating_add(median / 4)];
        let alike = counts.iter().filter(|&&count| (least..=most).contains(&count)).count();
        (alike * 2 >= counts.len() && alike as u64 > self.cache_pages).then_some([least, most])
    }
}

/// A page's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    pub task: TaskId,
    pub page: Vpn,
    /// The last pass in which it was of the write domain, or in which it was first seen.
    pub written: u64,
    /// Where it will migrate unless its label changes, and the pass of the mark.
    pub mark: Option<(Mark, u64)>,
}

/// A direction between the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mark {
    /// To DRAM.
    Up,
    /// To NVM.
    Down,
}

/// The history of each page, given that of the last pass by task and address.
pub(super) fn carried_on(known: &[Known], pages: &[Seen], labels: &[Label], pass: u64) -> Vec<Known> {
    let mut old = known.iter().peekable();
    let carry = |(seen, label): (&Seen, &Label)| {
        let Page { task, page, .. } = seen.page;
        while old.next_if(|known| (known.task, known.page) < (task, page)).is_some() {}
        let before = old.next_if(|known| (known.task, known.page) == (task, page));
        let written = before.filter(|_| !label.is_written).map_or(pass, |known| known.written);
        Known { task, page, written, mark: before.and_then(|known| known.mark) }
    };
    pages.iter().zip(labels).map(carry).collect()
}
