//! `hot-threshold`: pages with at least a fixed number of TLB misses go to the fastest tier; when it is full,
//! pages with fewer make room.

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Delivery, Event, Migration, Page, Plan, Reason, Region, Sensor, Sensors, View, Wake,
};
use memtide_core::{Machine, NodeId, Time};

use super::groups::{COUNT, Draft, EPOCH_MS, Groups, MARKS, pages_of, sampling};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "hot-threshold",
        summary: "moves pages with at least a fixed number of TLB misses to the fastest tier",
        when: "as a yardstick for hanb: it counts TLB misses of all pages",
        source: "hinuma section II-B and figure 2: its rival, after Thermostat (Agarwal and Wenisch, ASPLOS \
                 2017)",
        figures: false,
        parameters: &[
            EPOCH_MS,
            Parameter::integer(
                "threshold",
                "misses",
                "a page with at least as many counted TLB misses in an epoch is hot",
                [1, 3, 1023],
            ),
            MARKS,
            COUNT,
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(HotThreshold::new(machine, values)),
};

struct HotThreshold {
    groups: Groups,
    epoch: Time,
    threshold: u32,
    counting: Sensor,
}

impl HotThreshold {
    fn new(machine: &Machine, values: &Values) -> HotThreshold {
        let epoch = Time::from_ms(values.u32("epoch_ms").into());
        HotThreshold {
            groups: Groups::new(machine),
            epoch,
            threshold: values.u32("threshold"),
            counting: Sensor::TlbMisses(sampling(values, epoch)),
        }
    }
}

impl HotThreshold {
    /// The pages whose region is, or is not, on the fastest tier and hot, with their nodes.
    fn pages<'v>(
        &'v self,
        view: &'v View,
        wanted: fn(bool, bool) -> bool,
    ) -> impl Iterator<Item = (Page, NodeId)> + 'v {
        let is_wanted =
            move |region: &Region| wanted(self.groups.is_fast(region.node), region.reads >= self.threshold);
        let regions = view.regions.iter().filter(is_wanted);
        regions.flat_map(|region| pages_of(region).map(move |page| (page, region.node)))
    }
}

impl Migration for HotThreshold {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.epoch).require(self.counting)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let mut cold = self.pages(view, |fast, hot| fast && !hot);
        let mut draft = Draft::new(&self.groups, view, plan);
        for (up, from) in self.pages(view, |fast, hot| hot && !fast) {
            while !draft.cross(up, from, Reason::Hot) {
                let room = cold.next().is_some_and(|(down, node)| draft.cross(down, node, Reason::MakeRoom));
                if !room {
                    return Wake::After(self.epoch);
                }
            }
        }
        Wake::After(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::Page;
    use memtide_core::{NodeId, PageSize, TaskId, Vpn};

    use super::*;
    use crate::testing::{bmpm, moves_of, node_view, page_counts};

    /// Pages moved, with their targets.
    fn moved(text: &str, free: [u64; 2], counts: &[(u8, u32)]) -> Vec<(u64, u8)> {
        let mut policy = crate::parse(text).expect("a policy").migration(&bmpm(2.0));
        let nodes = [0, 1].map(|node| node_view(NodeId(node), 100, free[usize::from(node)])).to_vec();
        let view = View { nodes, regions: page_counts(counts), ..View::default() };
        let mut plan = Plan::default();
        assert_eq!(policy.decide(&view, &mut plan), Wake::After(Time::from_ms(4000)));
        assert_eq!(plan.work(), Time::ZERO);
        moves_of(&plan).iter().map(|(wanted, _)| (wanted.page.0, wanted.to.0)).collect()
    }

    #[test]
    fn pages_from_the_threshold_on_are_promoted() {
        let counts = [(1, 0), (1, 2), (1, 3), (0, 9), (1, 9)];
        assert_eq!(moved("local+hot-threshold", [50, 50], &counts), [(2, 0), (4, 0)]);
        assert_eq!(moved("local+hot-threshold:threshold=4", [50, 50], &counts), [(4, 0)]);
    }

    #[test]
    fn pages_below_the_threshold_leave_the_fast_tier_only_when_it_is_full() {
        let counts = [(0, 0), (0, 3), (0, 2), (1, 3), (1, 4), (1, 5)];
        assert_eq!(moved("local+hot-threshold", [3, 50], &counts), [(3, 0), (4, 0), (5, 0)]);
        assert_eq!(
            moved("local+hot-threshold", [1, 50], &counts),
            [(3, 0), (0, 1), (4, 0), (2, 1), (5, 0)],
            "0 and 2 are cold"
        );
        assert_eq!(
            moved("local+hot-threshold", [0, 50], &counts),
            [(0, 1), (3, 0), (2, 1), (4, 0)],
            "1 is hot and stays"
        );
        assert_eq!(moved("local+hot-threshold", [0, 0], &counts), [], "no node has free memory");
    }

    #[test]
    fn each_page_of_a_region_is_promoted() {
        let region = Region {
            task: TaskId(1),
            start: Vpn(512),
            pages: 2,
            size: PageSize::Huge,
            node: NodeId(1),
            reads: 5,
            writes: 0,
            age: 0,
        };
        let pages: Vec<Page> = pages_of(region).collect();
        assert_eq!(pages.iter().map(|page| page.page.0).collect::<Vec<_>>(), [512, 1024]);
    }

    #[test]
    fn pages_are_marked_four_times_an_epoch() {
        let policy = crate::parse("local+hot-threshold:epoch_ms=100").expect("a policy");
        let sampling = policy.migration(&bmpm(2.0)).sensors().tlb_misses().expect("it counts misses");
        assert_eq!((sampling.marking, sampling.every_miss), (Time::from_ms(25), false));
    }
}
