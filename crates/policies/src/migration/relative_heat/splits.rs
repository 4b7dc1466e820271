//! Huge pages to split: those of which one part is worth the place of others' pages, or less than they.

use std::collections::BTreeMap;

use memtide_core::policy::{Page, View};
use memtide_core::{Machine, NodeId, PageSize, TaskId, Vpn};

use super::RelativeHeat;
use super::pages::Pages;

/// How many times as much as accesses to the pages of a split huge page then wait for the TLB it must save.
const WALKS: f64 = 2.0;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// What a huge page has to do with exchanges of its parts, as if each were a page of its own.
#[derive(Clone, Copy, Debug)]
struct Parts {
    node: NodeId,
    /// Accesses of the whole huge page per epoch.
    accesses: f64,
    /// Accesses per epoch that exchanges of its parts bring to the fastest tier.
    gained: f64,
    /// Accesses per epoch of the pages that its parts are exchanged for, and of a base page of the hottest.
    others: f64,
    hottest: f64,
}

impl Parts {
    /// Accesses per epoch that a split brings to the fastest tier, beyond what a move of the whole page does.
    fn beyond_whole(&self, is_fast: bool) -> f64 {
        let whole = match is_fast {
            true => self.others - self.accesses,
            false => self.accesses - HUGE_PAGES as f64 * self.hottest,
        };
        self.gained - whole.max(0.0)
    }
}

/// By task and first base page.
type ByPage = BTreeMap<(TaskId, u64), Parts>;

/// The huge page of a part.
fn whole(part: &Pages) -> (TaskId, u64) {
    (part.task, part.start - part.start % HUGE_PAGES)
}

fn is_part(pages: &Pages) -> bool {
    pages.size == PageSize::Huge && pages.base_pages() < HUGE_PAGES
}

/// What an access to a base page of a former huge page waits for page table entries, in ns, if they are
/// always missing in the TLB.
pub(super) fn walk_ns(machine: &Machine) -> f64 {
    let cycles = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
    cycles / machine.core.clock_mhz * 1000.0
}

impl RelativeHeat {
    /// The huge pages to split, those first that save most by it.
    ///
    /// Pairs the hottest pages and parts of huge pages on slow memory with the coolest ones on the fastest
    /// tier while they are worth their place. A huge page is to be split if that saves more than a move of
    /// the whole page, by far more than its accesses then wait for the TLB.
    pub(super) fn splits(&self, view: &View, parts: &[Pages]) -> Vec<Page> {
        let of_one = |a: &Pages, b: &Pages| is_part(a) && is_part(b) && whole(a) == whole(b);
        let wholes = parts.chunk_by(of_one).filter(|parts| is_part(&parts[0])).map(|parts| {
            let (node, accesses) = (parts[0].node, parts.iter().map(Pages::accesses).sum());
            (whole(&parts[0]), Parts { node, accesses, gained: 0.0, others: 0.0, hottest: 0.0 })
        });
        let mut pages: ByPage = wholes.collect();
        if pages.is_empty() {
            return Vec::new();
        }
        let freed = view.nodes.iter().map(|used| self.short(used)).sum();
        let fast = parts.iter().filter(|part| self.tier(part.node) == 0);
        let (accesses, base_pages) =
            fast.fold((0.0, 0), |(a, n), part| (a + part.accesses(), n + part.base_pages()));
        let (cool, hot) = self.exchangeable(parts);
        self.pair(&hot, &cool, (freed, accesses / base_pages as f64), &mut pages);
        let saved_ns = |parts: &Parts| {
            let is_fast = self.tier(parts.node) == 0;
            let slow = if is_fast { self.slower(parts.node) } else { parts.node };
            let saved = self.trust.share() * self.waiting_ns(parts.beyond_whole(is_fast), slow);
            let walks = parts.accesses * self.payback * self.walk_ns;
            (saved > WALKS * walks).then_some(saved)
        };
        let mut all: Vec<((TaskId, u64), f64)> =
            pages.iter().filter_map(|(page, parts)| Some((*page, saved_ns(parts)?))).collect();
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let page = |((task, head), _)| Page { task, page: Vpn(head), size: PageSize::Huge };
        all.into_iter().map(page).collect()
    }

    /// Pairs the coolest pages first with as many as are to be free, which are expected to be accessed as often
    /// as all are in the mean, then with the hottest pages on slow memory.
    fn pair(&self, hot: &[Pages], cool: &[Pages], (mut freed, mean): (u64, f64), pages: &mut ByPage) {
        let mut cool = cool.iter().rev().map(|cool| (cool, cool.base_pages())).peekable();
        while let Some((victim, left)) = cool.peek_mut().filter(|_| freed > 0) {
            let taken = freed.min(*left);
            add(pages, victim, mean, taken, mean - victim.rate.mean);
            freed -= taken;
            *left -= taken;
            if *left == 0 {
                cool.next();
            }
        }
        for hot in hot {
            let mut wanted = hot.base_pages();
            while let Some((victim, left)) = cool.peek_mut().filter(|_| wanted > 0) {
                if !self.pays_instead(hot, victim) {
                    break;
                }
                let taken = wanted.min(*left);
                let gained = hot.rate.mean - victim.rate.mean;
                add(pages, hot, victim.rate.mean, taken, gained);
                add(pages, victim, hot.rate.mean, taken, gained);
                wanted -= taken;
                *left -= taken;
                if *left == 0 {
                    cool.next();
                }
            }
        }
    }
}

/// Adds the exchange of some base pages of a part of a huge page for others of this rate.
fn add(pages: &mut ByPage, part: &Pages, other: f64, base_pages: u64, gained: f64) {
    let whole = if is_part(part) { pages.get_mut(&whole(part)) } else { None };
    if let Some(parts) = whole {
        parts.gained += gained.max(0.0) * base_pages as f64;
        parts.others += other * base_pages as f64;
        parts.hottest = parts.hottest.max(other);
    }
}

/// Removes these huge pages from runs of pages.
pub(super) fn leave_out(splits: &[Page], pages: &mut Vec<Pages>) {
    let mut heads: Vec<(TaskId, u64)> = splits.iter().map(|split| (split.task, split.page.0)).collect();
    heads.sort_unstable();
    let mut others = Vec::with_capacity(pages.len());
    for run in pages.drain(..) {
        let mut start = run.start;
        if run.size == PageSize::Huge {
            let first = heads.partition_point(|&head| head < (run.task, run.start));
            let within = heads[first..].iter().take_while(|&&head| head < (run.task, run.end));
            for &(_, head) in within {
                if start < head {
                    others.push(Pages { start, end: head, ..run });
                }
                start = head + HUGE_PAGES;
            }
        }
        if start < run.end {
            others.push(Pages { start, ..run });
        }
    }
    *pages = others;
}
