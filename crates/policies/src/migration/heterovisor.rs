//! `heterovisor`: counts the TLB misses of every page, sorts all pages, and exchanges equal numbers of hot
//! and cold ones between the fastest tier and the others.

use std::cmp::Reverse;

use memtide_core::params::Values;
use memtide_core::policy::{Delivery, Event, Migration, Plan, Reason, Region, Sensor, Sensors, View, Wake};
use memtide_core::{Machine, Time};

use super::groups::{
    COUNT, Draft, EPOCH_MS, Groups, MARKS, PAGE_NS, PAGES, pages_of, pages_per_epoch, resident, sampling,
};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "heterovisor",
        summary: "sorts all pages by TLB misses and exchanges the hottest with the fastest tier's coldest",
        when: "as a yardstick for hanb: it sorts all pages",
        source: "hinuma sections III-C, III-D and IV: its rival, after HeteroVisor (Gupta, Lee and Schwan, \
                 VEE 2015)",
        figures: false,
        parameters: &[EPOCH_MS, PAGES, PAGE_NS, MARKS, COUNT],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(HeteroVisor::new(machine, values)),
};

struct HeteroVisor {
    groups: Groups,
    epoch: Time,
    /// Maximum exchanges per epoch.
    pages: usize,
    /// Time to sort and traverse a page.
    page: Time,
    counting: Sensor,
}

impl HeteroVisor {
    fn new(machine: &Machine, values: &Values) -> HeteroVisor {
        let epoch = Time::from_ms(values.u32("epoch_ms").into());
        HeteroVisor {
            groups: Groups::new(machine),
            epoch,
            pages: pages_per_epoch(machine, values),
            page: Time::from_ns(values.u32("page_ns").into()),
            counting: Sensor::TlbMisses(sampling(values, epoch)),
        }
    }
}

impl Migration for HeteroVisor {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.epoch).require(self.counting)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        plan.spend(self.page * resident(view));
        let (mut cold, mut hot): (Vec<Region>, Vec<Region>) =
            view.regions.iter().partition(|region| self.groups.is_fast(region.node));
        cold.sort_by_key(|region| (region.reads, region.task, region.start));
        hot.sort_by_key(|region| (Reverse(region.reads), region.task, region.start));
        let pages = |regions: Vec<Region>| {
            regions.into_iter().flat_map(|region| pages_of(region).map(move |page| (page, region)))
        };
        let pairs = pages(hot).zip(pages(cold)).take(self.pages);
        let mut draft = Draft::new(&self.groups, view, plan);
        for ((up, hot), (down, cold)) in pairs.take_while(|((_, hot), (_, cold))| hot.reads > cold.reads) {
            if !draft.cross(down, cold.node, Reason::MakeRoom) {
                break;
            }
            draft.cross(up, hot.node, Reason::Hot);
        }
        Wake::After(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::NodeId;
    use memtide_core::policy::TaskView;

    use super::*;
    use crate::testing::{bmpm, moves_of, node_view, page_counts, task_view};

    /// Pages moved, with their targets.
    fn moved(text: &str, free: [u64; 2], counts: &[(u8, u32)]) -> (Vec<(u64, u8)>, Time) {
        let mut policy = crate::parse(text).expect("a policy").migration(&bmpm(2.0));
        let nodes = [0, 1].map(|node| node_view(NodeId(node), 100, free[usize::from(node)])).to_vec();
        let tasks: Vec<TaskView> = vec![task_view(counts.len() as u64)];
        let view = View { nodes, tasks, regions: page_counts(counts), ..View::default() };
        let mut plan = Plan::default();
        policy.decide(&view, &mut plan);
        (moves_of(&plan).iter().map(|(wanted, _)| (wanted.page.0, wanted.to.0)).collect(), plan.work())
    }

    #[test]
    fn hottest_are_exchanged_with_coldest_in_equal_numbers() {
        let counts = [(0, 4), (0, 0), (0, 1), (1, 2), (1, 7), (1, 0)];
        let (moves, _) = moved("local+heterovisor", [50, 50], &counts);
        assert_eq!(moves, [(1, 1), (4, 0), (2, 1), (3, 0)], "then 0 misses against 4");
    }

    #[test]
    fn equally_hot_pages_stay() {
        assert_eq!(moved("local+heterovisor", [50, 50], &[(0, 3), (1, 3), (1, 0)]).0, []);
    }

    #[test]
    fn every_resident_page_costs_its_sort() {
        let (_, work) = moved("local+heterovisor:page_ns=70", [50, 50], &[(0, 3), (1, 3), (1, 0)]);
        assert_eq!(work, Time::from_ns(210.0));
    }

    #[test]
    fn full_fast_tier_gets_room_first() {
        let counts = [(0, 0), (0, 0), (1, 5), (1, 6)];
        assert_eq!(moved("local+heterovisor", [1, 50], &counts).0, [(0, 1), (3, 0), (1, 1), (2, 0)]);
        assert_eq!(
            moved("local+heterovisor", [50, 1], &counts).0,
            [(0, 1), (3, 0), (1, 1), (2, 0)],
            "each exchange makes room on both sides"
        );
        assert_eq!(moved("local+heterovisor:pages=1", [50, 50], &counts).0, [(0, 1), (3, 0)]);
    }
}
