//! Huge pages to split: those of which one part is worth the place of others' pages, or less than they.

use std::collections::BTreeMap;

use memtide_core::policy::{Page, View};
use memtide_core::{Machine, PageSize, TaskId, Vpn};

use super::RelativeHeat;
use super::pages::Pages;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

/// What exchanges would save if each part of a huge page were a page of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Gain {
    saved_ns: f64,
    /// Accesses of the whole huge page per epoch.
    accesses: f64,
}

/// By task and first base page.
type Gains = BTreeMap<(TaskId, u64), Gain>;

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
    /// tier while they are worth their place. A huge page is to be split if its parts save more by that than
    /// its accesses then wait for the TLB.
    pub(super) fn splits(&self, view: &View, known: &[Pages]) -> Vec<Page> {
        let mut parts = Vec::new();
        self.sampled
            .parts(&view.regions, self.deviations)
            .iter()
            .for_each(|part| self.refused.others(part, &mut parts));
        if !parts.iter().any(is_part) {
            return Vec::new();
        }
        let mut gains = Gains::new();
        for part in parts.iter().filter(|part| is_part(part)) {
            gains.entry(whole(part)).or_default().accesses += part.accesses();
        }
        parts.extend(known.iter().filter(|pages| pages.size == PageSize::Base));
        let (mut cool, mut hot): (Vec<Pages>, Vec<Pages>) =
            parts.into_iter().partition(|pages| self.tier(pages.node) == 0);
        [&mut cool, &mut hot].into_iter().for_each(|pages| pages.sort_by(Pages::hottest_first));
        let freed = view.nodes.iter().map(|used| self.short(used)).sum();
        self.pair(&hot, &cool, freed, &mut gains);
        let loses_ns = |gain: &Gain| gain.accesses * self.payback * self.walk_ns;
        let mut all: Vec<((TaskId, u64), Gain)> =
            gains.into_iter().filter(|(_, gain)| gain.saved_ns > loses_ns(gain)).collect();
        all.sort_by(|(_, a), (_, b)| b.saved_ns.total_cmp(&a.saved_ns));
        let page = |((task, head), _)| Page { task, page: Vpn(head), size: PageSize::Huge };
        all.into_iter().map(page).collect()
    }

    /// Adds what the demotion of the coolest pages for free memory, and each exchange of the hottest pages on
    /// slow memory with the next coolest, saves to the huge pages that only take part in it by a part.
    fn pair(&self, hot: &[Pages], cool: &[Pages], mut freed: u64, gains: &mut Gains) {
        let mean = cool.iter().map(Pages::accesses).sum::<f64>() / base_pages(cool) as f64;
        let mut cool = cool.iter().rev().map(|cool| (cool, cool.base_pages())).peekable();
        while let Some((victim, left)) = cool.peek_mut().filter(|_| freed > 0) {
            let pages = freed.min(*left);
            let kept = (mean - victim.rate.mean).max(0.0) * pages as f64;
            add(gains, victim, self.waiting_ns(kept, self.slower(victim.node)));
            freed -= pages;
            *left -= pages;
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
                let pages = wanted.min(*left);
                let gained = (hot.rate.mean - victim.rate.mean) * pages as f64;
                let saved_ns = self.waiting_ns(gained, hot.node);
                [hot, victim].into_iter().for_each(|part| add(gains, part, saved_ns));
                wanted -= pages;
                *left -= pages;
                if *left == 0 {
                    cool.next();
                }
            }
        }
    }
}

fn base_pages(pages: &[Pages]) -> u64 {
    pages.iter().map(Pages::base_pages).sum()
}

/// Adds what an exchange of a part of a huge page saves.
fn add(gains: &mut Gains, part: &Pages, saved_ns: f64) {
    if is_part(part) {
        gains.entry(whole(part)).or_default().saved_ns += saved_ns;
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
