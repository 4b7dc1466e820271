//! Demotions and promotions: pages on slow memory take free memory, or the place of cooler ones.

use memtide_core::policy::{Frame, Move, Plan, Planned, Reason, View};
use memtide_core::{NodeId, Vpn};

use super::super::room::Room;
use super::candidates::Total;
use super::collapses::Block;
use super::pages::Pages;
use super::{RATIO_MIN, RelativeHeat};

/// Where a page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To free memory of the fastest tier, of which `high` stays: programs may take some of that before pages
    /// have to be demoted.
    Free,
    /// To the place of demoted pages.
    Victims,
    /// To slower memory.
    Slower,
}

/// What may still be promoted in an epoch.
struct Left {
    /// Base pages.
    pages: u64,
    /// Accesses per epoch, by the node that they go to.
    accesses: Vec<f64>,
}

/// A plan under construction.
pub(super) struct Draft<'p> {
    pub plan: &'p mut Plan,
    /// Free memory above `low`, and above `high`.
    pub room: Room,
    pub spare: Room,
    /// Of all pages that may move, by node.
    pub totals: Vec<Total>,
    /// Spans on the fastest tier, coolest last.
    pub victims: Vec<Pages>,
    /// Those of them whose place others take in this epoch.
    pub exchanged: Vec<Pages>,
    /// Base pages to be demoted, and at most.
    pub demoted: u64,
    pub demotions_max: u64,
    /// Waiting that the plan saves in the payback time, beyond what it costs, in ns.
    pub saved_ns: f64,
}

impl Draft<'_> {
    /// Plans a move of the page of a span that begins there.
    pub fn push(&mut self, span: &Pages, page: Vpn, to: NodeId, reason: Reason) {
        let Pages { task, size, node: from, .. } = *span;
        self.plan.push_move(Move { task, page, size, from, to, wish: Frame::ANY }, reason);
        self.room.shift(from, to, size.base_pages());
        self.spare.shift(from, to, size.base_pages());
    }
}

impl RelativeHeat {
    /// Moves a span's pages from the first on while there is room, at most `most`; returns the number of base
    /// pages to move.
    fn send(
        &self,
        span: &Pages,
        tier: usize,
        destination: Destination,
        most: u64,
        draft: &mut Draft<'_>,
    ) -> u64 {
        let pages = span.size.base_pages();
        let mut sent = 0;
        while sent + pages <= most.min(span.base_pages()) {
            let room = if destination == Destination::Free { &draft.spare } else { &draft.room };
            let Some(to) = self.tiers.to(tier, span.node, pages, room) else { break };
            let reason = if destination == Destination::Slower { Reason::MakeRoom } else { Reason::Hot };
            draft.push(span, Vpn(span.start + sent), to, reason);
            draft.saved_ns += pages as f64 * self.net_ns(span, to);
            sent += pages;
        }
        sent
    }

    /// Demotes up to `wanted` pages of a victim, to the next tier that has room; returns those.
    fn demote(&self, victim: &mut Pages, wanted: u64, draft: &mut Draft<'_>) -> Option<Pages> {
        let most = wanted.next_multiple_of(victim.size.base_pages()).min(draft.demotions_max - draft.demoted);
        let slower = 1..=self.tiers.slowest();
        let mut tiers = slower.map(|tier| self.send(victim, tier, Destination::Slower, most, draft));
        let gone = tiers.find(|&sent| sent > 0).unwrap_or(0);
        draft.demoted += gone;
        victim.take(gone)
    }

    /// Demotes the coolest pages of a node with less than `low` free memory, until `high` is free, or as much
    /// as the collapse of blocks needs. What programs will put there is expected to be as hot as the node's
    /// pages are in the mean.
    pub(super) fn relieve(&self, view: &View, blocks: &[Block], draft: &mut Draft<'_>) {
        for used in &view.nodes {
            let mut wanted = self.short(used).max(self.short_to_collapse(blocks, used));
            if wanted == 0 {
                continue;
            }
            let mut victims = std::mem::take(&mut draft.victims);
            let Total { base_pages, accesses } = draft.totals[used.node.index()];
            let mean = accesses / base_pages as f64;
            let is_of_block = |victim: &Pages| {
                let of_block = |block: &Block| {
                    let pages = &block.pages;
                    pages.task == victim.task && pages.start < victim.end && victim.start < pages.end
                };
                blocks.iter().any(of_block)
            };
            let is_cooler = |victim: &&mut Pages| {
                let is_cool = RATIO_MIN * victim.rate.mean <= mean && victim.rate.at_most < mean;
                victim.node == used.node && (is_cool || self.is_idle(victim)) && !is_of_block(victim)
            };
            for victim in victims.iter_mut().rev().filter(is_cooler) {
                if wanted == 0 {
                    break;
                }
                let gone = self.demote(victim, wanted, draft);
                wanted = wanted.saturating_sub(gone.map_or(0, |gone| gone.base_pages()));
            }
            victims.retain(|victim| victim.base_pages() > 0);
            draft.victims = victims;
        }
    }

    /// Promotes these pages, by decreasing rate, while they are worth it; returns those. An exchange begins
    /// with demotions until the node has `low` free memory, and is not made if it costs more than it saves.
    /// These demotions are as many as promotions at most: if that is too few, the exchange goes on in the
    /// next epoch.
    pub(super) fn promote(&self, mut hot: Vec<Pages>, draft: &mut Draft<'_>) -> Vec<Pages> {
        let mut left = Left { pages: self.pages, accesses: self.promotable(&draft.totals) };
        let mut promoted = self.promote_to(&[Destination::Free], &mut hot, &mut left, draft);
        let (before, saved_ns) = (draft.plan.actions().len(), draft.saved_ns);
        let missing = draft.room.missing(self.fast_nodes());
        let later = missing.saturating_sub(self.pages);
        draft.demotions_max = self.pages + missing - later;
        self.fast_nodes().for_each(|node| draft.room.add(node, later));
        let both = [Destination::Free, Destination::Victims];
        let exchanged = self.promote_to(&both, &mut hot, &mut left, draft);
        if draft.saved_ns <= saved_ns {
            draft.plan.truncate(before);
            draft.exchanged.clear();
            draft.saved_ns = saved_ns;
        } else if later > 0 {
            let is_demotion = |planned: &Planned| planned.reason == Reason::MakeRoom;
            let demotions = draft.plan.actions()[before..].iter().take_while(|planned| is_demotion(planned));
            draft.plan.truncate(before + demotions.count());
            draft.exchanged.clear();
        } else {
            promoted.extend(exchanged);
        }
        promoted
    }

    /// Promotes as many as it can of these pages; returns those.
    fn promote_to(
        &self,
        destinations: &[Destination],
        hot: &mut [Pages],
        left: &mut Left,
        draft: &mut Draft<'_>,
    ) -> Vec<Pages> {
        let mut promoted = Vec::new();
        for at in 0..hot.len() {
            let accesses = &mut left.accesses[hot[at].node.index()];
            let mut most = left.pages.min(hot[at].pages_with(*accesses));
            for &destination in destinations {
                let sent = self.promote_first(&hot[at..], destination, most, draft);
                most -= sent;
                left.pages -= sent;
                if let Some(sent) = hot[at].take(sent) {
                    *accesses -= sent.accesses();
                    promoted.push(sent);
                }
            }
        }
        promoted
    }

    /// Promotes up to `most` pages of the first of these spans; returns how many.
    fn promote_first(
        &self,
        hot: &[Pages],
        destination: Destination,
        most: u64,
        draft: &mut Draft<'_>,
    ) -> u64 {
        let span = &hot[0];
        let most = most.min(span.base_pages());
        let most = most - most % span.size.base_pages();
        let places = match destination {
            Destination::Victims if most > 0 => {
                let missing = draft.room.missing(self.tiers.near(0, span.node));
                self.make_room_for(hot, most + missing, draft).saturating_sub(missing)
            }
            _ if self.pays(span) => most,
            _ => 0,
        };
        self.send(span, 0, destination, most.min(places), draft)
    }

    /// Demotes the coolest victims that the first of these spans is worth the place of, until up to `wanted`
    /// pages have room. Returns how many were demoted.
    fn make_room_for(&self, hot: &[Pages], wanted: u64, draft: &mut Draft<'_>) -> u64 {
        let mut gone = 0;
        while gone < wanted {
            let pays = |victim: &mut Pages| {
                let fills_it = wanted - gone >= victim.size.base_pages();
                self.pays_instead(&hot[0], victim) && (fills_it || self.pay_instead_of_whole(hot, victim))
            };
            let Some(mut victim) = draft.victims.pop_if(pays) else { break };
            let demoted = self.demote(&mut victim, wanted - gone, draft);
            if victim.base_pages() > 0 {
                draft.victims.push(victim);
            }
            let Some(demoted) = demoted else { break };
            gone += demoted.base_pages();
            draft.exchanged.push(demoted);
        }
        gone
    }

    /// Whether the spans that are worth the place of parts of a huge page are together worth all of it.
    fn pay_instead_of_whole(&self, hot: &[Pages], victim: &Pages) -> bool {
        let mut left = victim.size.base_pages();
        let lost_ns = left as f64 * (self.saved_ns(victim, hot[0].node) + self.cost_ns(victim, hot[0].node));
        let mut gained_ns = 0.0;
        for span in hot.iter().take_while(|span| self.pays_instead(span, victim)) {
            let pages = span.base_pages().min(left);
            let saved_ns = self.trust.share() * self.saved_ns(span, span.node);
            gained_ns += pages as f64 * (saved_ns - self.cost_ns(span, victim.node));
            left -= pages;
            if left == 0 {
                break;
            }
        }
        gained_ns > lost_ns
    }
}
