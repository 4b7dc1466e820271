//! `vertical`: cache-bank vertical management. Programs that run together get parts of the last-level cache,
//! of the banks and of the nodes of their own.

use std::collections::BTreeSet;
use std::ops::Range;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Delivery, Event, Frame, FramesView, Migration, Move, PageSampling, Plan, Reason, Region, Sensor, Sensors,
    View, Wake,
};
use memtide_core::{ActionId, Machine, NodeId, TaskId, Time};

use super::groups::pages_per_epoch;
use super::spread::{Part, Spread, banks_of, share};
use crate::entry::{Info, MigrationEntry};

const EPOCH_MS: Parameter =
    Parameter::integer("epoch_ms", "ms", "time between two decisions", [1, 1000, 600_000]);

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "vertical",
        summary: "programs that run together get parts of the last-level cache and banks of their own",
        when: "programs that run together disturb each other in the last-level cache and the banks",
        source: "memos section II-C, figure 2, and its rival in section III-C: cache-bank vertical \
                 management (Liu et al., ISCA 2014)",
        figures: false,
        parameters: &[
            EPOCH_MS,
            Parameter::integer(
                "bank_bits",
                "bits",
                "2^bits parts of each node's banks, as far as they are in groups apart from the cache's sets",
                [0, 2, 8],
            ),
            Parameter::integer("cache_bits", "bits", "2^bits parts of the cache's page colours", [0, 2, 8]),
            Parameter::integer(
                "channel_bits",
                "bits",
                "2^bits parts of the nodes; 0: pages stay on their node",
                [0, 0, 8],
            ),
            Parameter::integer("pages", "pages/epoch", "maximum moves per epoch", [1, 65_536, 100_000_000]),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(Vertical::new(machine, values)),
};

struct Vertical {
    epoch: Time,
    /// Number of parts of the banks, the cache's colours and the nodes.
    parts: [usize; 3],
    pages: usize,
    nodes: u16,
    /// Moves without completion: the next ones are planned when they are done.
    pending: BTreeSet<ActionId>,
}

impl Vertical {
    fn new(machine: &Machine, values: &Values) -> Vertical {
        Vertical {
            epoch: Time::from_ms(values.u32("epoch_ms").into()),
            parts: ["bank_bits", "cache_bits", "channel_bits"].map(|name| 1 << values.u32(name)),
            pages: pages_per_epoch(machine, values),
            nodes: machine.nodes.len() as u16,
            pending: BTreeSet::new(),
        }
    }

    /// The `program`th program's share of something.
    fn share(&self, of: u16, program: usize, parts: usize) -> Range<u16> {
        share(of, program % parts, parts)
    }

    /// The node on which a page of a program belongs.
    fn node(&self, now: NodeId, program: usize) -> NodeId {
        let nodes = self.share(self.nodes, program, self.parts[2]);
        let number = now.index() as u16;
        if nodes.contains(&number) { now } else { NodeId::from(usize::from(nodes.start)) }
    }

    fn part(&self, frames: &FramesView, node: NodeId, program: usize) -> Part {
        let [of_banks, of_cache, _] = self.parts;
        Part {
            colours: self.share(frames.colours, program, of_cache),
            banks: banks_of(frames, node, program % of_banks, of_banks),
        }
    }
}

impl Migration for Vertical {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.epoch)
            .require(Sensor::PageSamples(PageSampling { sampling: self.epoch }))
            .require(Sensor::Frames)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::Completion(done) = event {
            self.pending.remove(&done.planned.id);
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        if let Some(frames) = view.frames.as_ref().filter(|_| self.pending.is_empty()) {
            self.plan(view, frames, plan);
            self.pending = plan.actions().iter().map(|planned| planned.id).collect();
        }
        Wake::After(self.epoch)
    }
}

impl Vertical {
    /// Moves pages to frames of their programs' parts; a program alone keeps all parts.
    fn plan(&self, view: &View, frames: &FramesView, plan: &mut Plan) {
        let mut spread = Spread::new(frames, BTreeSet::new());
        let mut tasks: Vec<TaskId> = view.regions.iter().map(|region| region.task).collect();
        tasks.dedup();
        if tasks.len() < 2 {
            return;
        }
        let mut free: Vec<u64> = view.nodes.iter().map(|node| node.free_pages).collect();
        let single = |(region, _): &(Region, &Frame)| region.pages == 1;
        let pages: Vec<(Region, &Frame)> = view.regions.iter().zip(&frames.pages).filter(single).collect();
        pages.iter().for_each(|(region, frame)| spread.enter(region.node, frame));
        for (region, frame) in pages {
            let program = tasks.binary_search(&region.task).unwrap_or(0);
            let to = self.node(region.node, program);
            let part = self.part(frames, to, program);
            let needed = region.size.base_pages();
            let has_room = free.get(to.index()).is_some_and(|free| *free >= needed);
            if (to == region.node && part.has(frame)) || !has_room {
                continue;
            }
            if plan.actions().len() == self.pages {
                break;
            }
            spread.leave(region.node, frame);
            let wish = spread.coldest(to, &part);
            spread.enter(to, &wish);
            if to != region.node {
                free[to.index()] -= needed;
            }
            let Region { task, start: page, size, node: from, .. } = region;
            plan.push_move(Move { task, page, size, from, to, wish }, Reason::Interference);
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{PageSize, Vpn};

    use super::*;
    use crate::testing::{bmpm, node_view};

    /// Moves of pages of tasks 1 and 2, four on each of two nodes: task, page, node and wish.
    fn moved(text: &str) -> Vec<(u32, u64, u8, Frame)> {
        moved_of(1..3, text)
    }

    fn moved_of(tasks: Range<u32>, text: &str) -> Vec<(u32, u64, u8, Frame)> {
        let mut view = View::default();
        let mut pages = Vec::new();
        for (task, start) in tasks.flat_map(|task| (0..4u64).map(move |page| (task, page))) {
            let (task, start, node) = (TaskId(task), Vpn(start), NodeId(start as u8 % 2));
            let (pages_of, size) = (1, PageSize::Base);
            view.regions.push(Region {
                task,
                start,
                pages: pages_of,
                size,
                node,
                reads: 1,
                writes: 0,
                age: 0,
            });
            pages.push(Frame { colour: Some(start.0 as u16), bank: Some(start.0 as u16) });
        }
        view.frames = Some(FramesView { colours: 4, banks: vec![4, 4], bank_groups: vec![4, 4], pages });
        view.nodes = [0, 1].map(|node| node_view(NodeId(node), 100, 50)).to_vec();
        let mut policy = crate::parse(text).expect("a policy").migration(&bmpm(2.0));
        let mut plan = Plan::default();
        policy.decide(&view, &mut plan);
        plan.moves().map(|wanted| (wanted.task.0, wanted.page.0, wanted.to.0, wanted.wish)).collect()
    }

    fn at(colour: u16, bank: u16) -> Frame {
        Frame { colour: Some(colour), bank: Some(bank) }
    }

    #[test]
    fn each_program_gets_a_part_of_cache_and_banks_on_the_same_nodes() {
        let moved = moved("interleave+vertical:bank_bits=1,cache_bits=1");
        let pages: Vec<_> = moved.iter().map(|(task, page, node, _)| (*task, *page, *node)).collect();
        assert_eq!(pages, [(1, 2, 0), (1, 3, 1), (2, 0, 0), (2, 1, 1)]);
        for (task, .., wish) in moved {
            let [colour, bank] = [wish.colour, wish.bank].map(Option::unwrap);
            assert_eq!((colour / 2 + 1, bank / 2 + 1), (task as u16, task as u16), "{wish:?}");
        }
    }

    #[test]
    fn program_alone_keeps_the_whole_cache_and_all_banks() {
        assert_eq!(moved_of(1..2, "interleave+vertical"), []);
        assert_ne!(moved("interleave+vertical"), []);
    }

    #[test]
    fn bits_divide_one_level_alone() {
        let banks = moved("interleave+vertical:bank_bits=2,cache_bits=0");
        assert!(banks.iter().all(|(task, .., wish)| wish.bank == Some(*task as u16 - 1)));
        assert_eq!(banks.len(), 6, "all but one page of each program");
        assert_eq!(moved("interleave+vertical:bank_bits=0,cache_bits=0"), []);
    }

    #[test]
    fn channel_bits_give_each_program_a_node() {
        let moved = moved("interleave+vertical:bank_bits=0,cache_bits=0,channel_bits=1");
        let nodes: Vec<_> = moved.iter().map(|(task, page, node, _)| (*task, *page, *node)).collect();
        assert_eq!(nodes, [(1, 1, 0), (1, 3, 0), (2, 0, 1), (2, 2, 1)]);
        assert_eq!(moved[0].3, at(1, 1), "node 0 has pages of colours and banks 0 and 2 before");
    }
}
