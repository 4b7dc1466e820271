//! Huge pages to split: those of which one part is worth the place of others' pages, or less than they.

use memtide_core::policy::{Page, View};
use memtide_core::{Machine, NodeId, PageSize, TaskId, Vpn};

use super::RelativeHeat;
use super::candidates::Candidates;
use super::pages::Pages;

/// How many times as much as accesses to the pages of a split huge page then wait for the TLB it must save.
const WALKS: f64 = 2.0;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// What a huge page has to do with exchanges of its parts, as if each were a page of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    task: TaskId,
    head: u64,
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
    pub fn of(page: &Pages) -> Parts {
        let Pages { task, start: head, node, .. } = *page;
        Parts { task, head, node, accesses: page.accesses(), gained: 0.0, others: 0.0, hottest: 0.0 }
    }

    /// Accesses per epoch that a split brings to the fastest tier, beyond what a move of the whole page does.
    fn beyond_whole(&self, is_fast: bool) -> f64 {
        let whole = match is_fast {
            true => self.others - self.accesses,
            false => self.accesses - HUGE_PAGES as f64 * self.hottest,
        };
        self.gained - whole.max(0.0)
    }
}

/// The huge page of a part.
pub(super) fn whole(part: &Pages) -> (TaskId, u64) {
    (part.task, part.start - part.start % HUGE_PAGES)
}

/// Whether pages are a part of a huge page.
pub(super) fn is_part(pages: &Pages) -> bool {
    pages.size == PageSize::Huge && pages.base_pages() < HUGE_PAGES
}

/// What an access to a base page of a former huge page waits for page table entries, in ns, if they are
/// always missing in the TLB.
pub(super) fn walk_ns(machine: &Machine) -> f64 {
    let cycles = machine.tlbs.last().map_or(0.0, |tlb| tlb.walk_cycles);
    cycles / machine.core.clock_mhz * 1000.0
}

impl RelativeHeat {
    /// The huge pages to split, those first that save most by it, and the waiting that each saves in the
    /// payback time, in ns.
    ///
    /// Pairs the hottest pages and parts of huge pages on slow memory with the coolest ones on the fastest
    /// tier while they are worth their place. A huge page is to be split if that saves more than a move of
    /// the whole page, by far more than its accesses then wait for the TLB.
    pub(super) fn splits(&self, view: &View, candidates: &Candidates) -> Vec<(Page, f64)> {
        let mut wholes = candidates.wholes.clone();
        if wholes.is_empty() {
            return Vec::new();
        }
        let freed = view.nodes.iter().map(|used| self.short(used)).sum();
        let fast = view.nodes.iter().filter(|used| self.tier(used.node) == 0);
        let fast = fast.map(|used| &candidates.totals[used.node.index()]);
        let (accesses, base_pages) =
            fast.fold((0.0, 0), |(a, n), all| (a + all.accesses, n + all.base_pages));
        let hot = with_base_pages(&candidates.hot_parts, &candidates.hot);
        let cool = with_base_pages(&candidates.cool_parts, &candidates.victims);
        self.pair(&hot, &cool, (freed, accesses / base_pages as f64), &mut wholes);
        let saved_ns = |parts: &Parts| {
            let is_fast = self.tier(parts.node) == 0;
            let slow = if is_fast { self.slower(parts.node) } else { parts.node };
            let saved = self.trust.share() * self.waiting_ns(parts.beyond_whole(is_fast), slow);
            let walks = parts.accesses * self.payback * self.walk_ns;
            (saved > WALKS * walks).then_some(saved)
        };
        let mut all: Vec<(&Parts, f64)> =
            wholes.iter().filter_map(|parts| Some((parts, saved_ns(parts)?))).collect();
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let page = |&Parts { task, head, .. }: &Parts| Page { task, page: Vpn(head), size: PageSize::Huge };
        all.into_iter().map(|(parts, saved_ns)| (page(parts), saved_ns)).collect()
    }

    /// Pairs the coolest pages first with as many as are to be free, which are expected to be accessed as
    /// often as all are in the mean, then with the hottest pages on slow memory.
    fn pair(&self, hot: &[Pages], cool: &[Pages], (mut freed, mean): (u64, f64), wholes: &mut [Parts]) {
        let mut cool = cool.iter().rev().map(|cool| (cool, cool.base_pages())).peekable();
        while let Some((victim, left)) = cool.peek_mut().filter(|_| freed > 0) {
            let taken = freed.min(*left);
            add(wholes, victim, mean, taken, mean - victim.rate.mean);
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
                add(wholes, hot, victim.rate.mean, taken, gained);
                add(wholes, victim, hot.rate.mean, taken, gained);
                wanted -= taken;
                *left -= taken;
                if *left == 0 {
                    cool.next();
                }
            }
        }
    }
}

/// Parts of huge pages and base pages, by decreasing rate.
fn with_base_pages(parts: &[Pages], pages: &[Pages]) -> Vec<Pages> {
    let base = pages.iter().filter(|pages| pages.size == PageSize::Base);
    let mut all: Vec<Pages> = parts.iter().chain(base).copied().collect();
    all.sort_by(Pages::hottest_first);
    all
}

/// Adds the exchange of some base pages of a part of a huge page for others of this rate.
fn add(wholes: &mut [Parts], part: &Pages, other: f64, base_pages: u64, gained: f64) {
    let at = wholes.binary_search_by_key(&whole(part), |parts| (parts.task, parts.head));
    if let (true, Ok(at)) = (is_part(part), at) {
        let parts = &mut wholes[at];
        parts.gained += gained.max(0.0) * base_pages as f64;
        parts.others += other * base_pages as f64;
        parts.hottest = parts.hottest.max(other);
    }
}
