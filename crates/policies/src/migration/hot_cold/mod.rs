//! `hot-cold`: promotes the hottest pages to the fastest tier, demotes idle ones to a slower one.

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Delivery, Event, Frame, Migration, Move, Plan, Reason, Region, RegionSampling, Sensor, Sensors, View,
    Wake,
};
use memtide_core::{Machine, NodeId, PageSize, TaskId, Time, Vpn};

use serde::{Deserialize, Serialize};

use super::room::{Room, Tiers};
use super::shared::{from_text, to_text};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "hot-cold",
        summary: "moves the most accessed regions to the fastest tier and idle ones off it",
        when: "hot data is contiguous and some of the fastest tier is idle",
        source: "memtide's baseline; watermarks after Linux's kswapd, regions after Linux's DAMON",
        figures: false,
        parameters: &[
            Parameter::integer("epoch_ms", "ms", "time between two decisions", [10, 2000, 600_000]),
            Parameter::integer(
                "sampling_us",
                "us",
                "sampling interval of a region; at most a tenth of `epoch_ms`",
                [100, 50_000, 1_000_000],
            ),
            Parameter::integer("regions", "regions", "maximum number of regions", [10, 300, 100_000]),
            Parameter::integer(
                "hot",
                "%",
                "a region is hot if at least this share of its samples were accesses, in two consecutive \
                 epochs",
                [1, 10, 100],
            ),
            Parameter::integer(
                "cold_epochs",
                "epochs",
                "a region is cold after this idle time",
                [1, 3, 10_000],
            ),
            Parameter::integer(
                "low",
                "%",
                "share of a node kept free: no promotion goes below it",
                [0, 3, 99],
            ),
            Parameter::integer(
                "high",
                "%",
                "once free memory is below `low`, the coolest regions are demoted until this share is free",
                [0, 6, 99],
            ),
            Parameter::integer(
                "pages",
                "pages/epoch",
                "maximum promotions, and maximum demotions, per epoch",
                [1, 16_384, 100_000_000],
            ),
            Parameter::integer(
                "write_weight",
                "accesses",
                "extra accesses that each write counts as",
                [0, 0, 100],
            ),
        ],
    },
    check: |values| match (values.u32("low"), values.u32("high")) {
        (low, high) if low > high => Err(format!("low is {low}, high is {high}; high must be at least low")),
        _ => Ok(()),
    },
    make: |machine, values| Box::new(HotCold::new(machine, values)),
};

/// Samples of a region per aggregation interval.
const SAMPLES: u32 = 10;

/// A region is demoted for one accessed more than this many times as often.
const MARGIN: u32 = 2;

struct HotCold {
    tiers: Tiers,
    epoch: Time,
    sampling: Time,
    regions_max: u32,
    hot: u32,
    /// Idle aggregation intervals after which a region is cold.
    cold_age: u32,
    low: u64,
    high: u64,
    /// Limit of base pages promoted per epoch, and of those demoted: divided by slice and scale, at least a
    /// huge page.
    pages: u64,
    write_weight: u32,
    /// Hot regions of the last epoch.
    hot_before: Ranges,
}

impl HotCold {
    fn new(machine: &Machine, values: &Values) -> HotCold {
        let epoch = Time::from_ms(values.u32("epoch_ms").into());
        let sampling = Time::from_us(values.u32("sampling_us").into());
        let sampling = Time(sampling.0.min(epoch.0 / u64::from(SAMPLES)));
        let pages = u64::from(values.u32("pages"));
        let intervals = epoch.0 / (sampling.0 * u64::from(SAMPLES));
        HotCold {
            tiers: Tiers::of(machine),
            epoch,
            sampling,
            regions_max: values.u32("regions"),
            hot: (values.u32("hot") * SAMPLES).div_ceil(100),
            cold_age: (u64::from(values.u32("cold_epochs")) * intervals) as u32,
            low: values.u32("low").into(),
            high: values.u32("high").into(),
            pages: (pages / machine.reduction()).max(pages.min(PageSize::Huge.base_pages())),
            write_weight: values.u32("write_weight"),
            hot_before: Ranges::default(),
        }
    }

    fn tier(&self, node: NodeId) -> usize {
        self.tiers.tier(node)
    }

    /// Access frequency of a region, in samples; writes count more, if configured.
    fn heat(&self, region: &Region) -> u32 {
        region.reads.max(region.writes).saturating_add(self.write_weight.saturating_mul(region.writes))
    }

    fn is_hot(&self, region: &Region) -> bool {
        self.heat(region) >= self.hot
    }

    fn is_cold(&self, region: &Region) -> bool {
        self.heat(region) == 0 && region.age >= self.cold_age
    }

    /// Moves a region's pages while there is free memory, at most `most`; returns the number of base pages to
    /// move.
    fn send(&self, region: &Region, tier: usize, reason: Reason, most: u64, draft: &mut Draft<'_>) -> u64 {
        let mut sent = 0;
        for at in 0..region.pages {
            let size = region.size;
            let Some(to) = self.tiers.to(tier, region.node, size.base_pages(), &draft.room) else { break };
            if sent + size.base_pages() > most {
                break;
            }
            let page = Vpn(region.start.0 + at * size.base_pages());
            let (task, from, wish) = (region.task, region.node, Frame::ANY);
            draft.plan.push_move(Move { task, page, size, from, to, wish }, reason);
            draft.room.shift(region.node, to, size.base_pages());
            sent += size.base_pages();
        }
        sent
    }

    /// Demotes cold regions.
    fn demote_cold(&self, regions: &[Region], draft: &mut Draft<'_>) {
        let slowest = self.tiers.slowest();
        let mut cold: Vec<&Region> =
            regions.iter().filter(|r| self.is_cold(r) && self.tier(r.node) < slowest).collect();
        cold.sort_by_key(|r| (std::cmp::Reverse(r.age), r.task, r.start));
        for region in cold {
            let most = self.pages - draft.demoted;
            draft.demoted += self.send(region, self.tier(region.node) + 1, Reason::Cold, most, draft);
        }
    }

    /// Demotes the coldest regions of a node with less than `low` free memory, until `high` is free.
    fn relieve(&self, view: &View, draft: &mut Draft<'_>) {
        for used in view.nodes.iter().filter(|used| self.tier(used.node) == 0) {
            if used.free_pages * 100 < used.pages * self.low {
                let high = (used.pages * self.high).div_ceil(100);
                let wanted = high.saturating_sub(draft.room.free(used.node));
                self.make_room_on(used.node, wanted, draft);
            }
        }
    }

    /// Promotes hot regions, hottest first; demotes much colder ones for them.
    fn promote_hot(&self, regions: &[Region], draft: &mut Draft<'_>) {
        let on_slow = regions.iter().filter(|r| self.is_hot(r) && self.tier(r.node) > 0);
        let mut hot: Vec<Region> = on_slow.flat_map(|r| self.hot_before.parts_of(r)).collect();
        hot.sort_by_key(|r| (std::cmp::Reverse(self.heat(r)), r.task, r.start));
        let mut sent = 0;
        for region in hot {
            let wanted = (region.pages * region.size.base_pages()).min(self.pages - sent);
            let lacking = wanted.saturating_sub(self.room_in_fastest(draft));
            self.make_room_for(&region, lacking, draft);
            sent += self.send(&region, 0, Reason::Hot, self.pages - sent, draft);
        }
    }

    /// Demotes the coldest victims on a node, until `wanted` pages were freed.
    fn make_room_on(&self, node: NodeId, mut wanted: u64, draft: &mut Draft<'_>) {
        let mut victims = std::mem::take(&mut draft.victims);
        for victim in victims.iter_mut().rev().filter(|victim| victim.node == node) {
            while wanted > 0 && victim.pages > 0 {
                if !self.demote_victim(victim, &mut wanted, draft) {
                    wanted = 0;
                }
            }
        }
        victims.retain(|victim| victim.pages > 0);
        draft.victims = victims;
    }

    /// Demotes the coldest victims that are much colder than a region, until `wanted` pages were freed. If
    /// the coldest is too hot, so are all others.
    fn make_room_for(&self, region: &Region, mut wanted: u64, draft: &mut Draft<'_>) {
        let is_cooler = |victim: &mut Region| self.heat(victim).saturating_mul(MARGIN) < self.heat(region);
        while wanted > 0 {
            let Some(mut victim) = draft.victims.pop_if(is_cooler) else { return };
            let demoted = self.demote_victim(&mut victim, &mut wanted, draft);
            if victim.pages > 0 {
                draft.victims.push(victim);
            }
            if !demoted {
                return;
            }
        }
    }

    /// Demotes up to `wanted` pages of a victim. If none can move, drops the rest of it.
    fn demote_victim(&self, victim: &mut Region, wanted: &mut u64, draft: &mut Draft<'_>) -> bool {
        let most = (*wanted).min(self.pages - draft.demoted);
        let gone = self.send(victim, 1, Reason::MakeRoom, most, draft);
        draft.demoted += gone;
        *wanted -= gone;
        victim.start = Vpn(victim.start.0 + gone);
        victim.pages = if gone > 0 { victim.pages - gone / victim.size.base_pages() } else { 0 };
        gone > 0
    }

    /// Candidates for demotion from the fastest tier, coldest last; cold regions are demoted anyway.
    fn victims(&self, regions: &[Region]) -> Vec<Region> {
        let movable = |r: &&Region| self.tier(r.node) == 0 && !self.is_cold(r) && !self.is_hot(r);
        let mut victims: Vec<Region> = regions.iter().filter(movable).copied().collect();
        victims.sort_by_key(|r| (std::cmp::Reverse(self.heat(r)), r.age, r.task, r.start));
        victims
    }

    fn room_in_fastest(&self, draft: &Draft<'_>) -> u64 {
        let nodes = (0..self.tiers.nodes()).map(NodeId::from);
        nodes.filter(|&node| self.tier(node) == 0).map(|node| draft.room.of(node)).sum()
    }
}

/// Ranges of base pages of tasks, end exclusive, in order.
#[derive(Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(TaskId, u64, u64)>")]
struct Ranges(Vec<(TaskId, u64, u64)>);

impl TryFrom<Vec<(TaskId, u64, u64)>> for Ranges {
    type Error = String;

    fn try_from(ranges: Vec<(TaskId, u64, u64)>) -> Result<Ranges, String> {
        let in_order = ranges.is_sorted_by(|(task, _, end), (next, start, _)| (task, end) <= (next, start));
        match ranges.iter().find(|(_, start, end)| start >= end) {
            Some(range) => Err(format!("{range:?} is an empty range")),
            None if !in_order => Err("ranges overlap or are out of order".to_owned()),
            None => Ok(Ranges(ranges)),
        }
    }
}

impl Ranges {
    fn of<'a>(regions: impl Iterator<Item = &'a Region>) -> Ranges {
        let mut ranges: Vec<(TaskId, u64, u64)> = Vec::new();
        for region in regions {
            let (start, end) = (region.start.0, end(region));
            match ranges.last_mut() {
                Some((task, _, last)) if *task == region.task && *last == start => *last = end,
                _ => ranges.push((region.task, start, end)),
            }
        }
        Ranges(ranges)
    }

    /// The whole pages of a region within these ranges.
    fn parts_of(&self, region: &Region) -> Vec<Region> {
        let size = region.size.base_pages();
        let (first, last) = (region.start.0, end(region));
        let from = self.0.partition_point(|&(task, _, to)| (task, to) <= (region.task, first));
        let near = self.0[from..].iter().take_while(|&&(task, start, _)| task == region.task && start < last);
        let parts = near.filter_map(|&(_, start, to)| {
            let start = first + (start.max(first) - first).next_multiple_of(size);
            let pages = to.min(last).saturating_sub(start) / size;
            (pages > 0).then_some(Region { start: Vpn(start), pages, ..*region })
        });
        parts.collect()
    }
}

/// The base page after a region.
fn end(region: &Region) -> u64 {
    region.start.0 + region.pages * region.size.base_pages()
}

/// A plan under construction.
struct Draft<'p> {
    plan: &'p mut Plan,
    room: Room,
    /// Candidates for demotion, coldest last.
    victims: Vec<Region>,
    /// Base pages to be demoted.
    demoted: u64,
}

impl Migration for HotCold {
    fn sensors(&self) -> Sensors {
        let regions = RegionSampling {
            sampling: self.sampling,
            aggregation: Time(self.sampling.0 * u64::from(SAMPLES)),
            regions_max: self.regions_max,
            writes: self.write_weight > 0,
            budget_bp: None,
        };
        Sensors::new(Delivery::Deployable, self.epoch).require(Sensor::Regions(regions))
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let regions: Vec<Region> = view.regions.iter().collect();
        let room = Room::new(self.tiers.nodes(), &view.nodes, self.low as f64);
        let mut draft = Draft { plan, room, victims: self.victims(&regions), demoted: 0 };
        self.demote_cold(&regions, &mut draft);
        self.relieve(view, &mut draft);
        self.promote_hot(&regions, &mut draft);
        self.hot_before = Ranges::of(regions.iter().filter(|region| self.is_hot(region)));
        Wake::After(self.epoch)
    }

    fn state(&self) -> String {
        to_text(&self.hot_before)
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        self.hot_before = from_text(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
