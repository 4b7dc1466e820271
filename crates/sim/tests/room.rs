//! Moves to a full node.

use crate::runs;
use memtide_core::policy::{
    Delivery, Event, Frame, Migration, Move, Outcome, Plan, Reason, Refusal, Sensors, View, Wake,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use memtide_sim::{Policy, Report, run};

use crate::runs::job;
use crate::support::{alone, doing, load, touch, two_sockets};

/// Node 0 has this many pages, all of which the program touches first, and as many on node 1.
const PAGES: u64 = 256;

/// Moves pages to nodes, once; the moves that are made and those that find no room.
struct Moves {
    plan: Vec<(u64, u8)>,
    expected: [usize; 2],
    found: [usize; 2],
}

impl Migration for Moves {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, Time::from_us(100))
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        let Event::Completion(done) = event else { return };
        match done.outcome {
            Outcome::Made(_) => self.found[0] += 1,
            Outcome::Refused(Refusal::NoRoom) => self.found[1] += 1,
            other => panic!("{other:?}"),
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let are_touched = view.task(TaskId(0)).is_some_and(|task| task.resident_pages == 2 * PAGES);
        let moves = if are_touched { std::mem::take(&mut self.plan) } else { Vec::new() };
        for (page, to) in moves {
            let (task, page, size) = (TaskId(0), Vpn(page), PageSize::Base);
            let from = NodeId(1 - to);
            plan.push_move(Move { task, page, size, from, to: NodeId(to), wish: Frame::ANY }, Reason::Hot);
        }
        Wake::After(Time::from_us(100))
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.found, self.expected, "moves made, and without room");
        }
    }
}

/// The pages of each node at the end.
fn pages(plan: &[(u64, u8)], expected: [usize; 2]) -> Vec<u64> {
    let machine = two_sockets("", 1, [1, 4], [20e3, 20e3]);
    let reads = (0..40_000).map(|at| load(at % (2 * PAGES) * 4096 + at / 512 % 64 * 64));
    let script = alone([touch(0, 2 * PAGES), doing(reads)]);
    let moves = Moves { plan: plan.to_vec(), expected, found: [0; 2] };
    let policy = Policy::new(runs::policy(&machine, "local").placement, Some(Box::new(moves)));
    let report: Report = run(&machine, vec![job(script, &[0])], policy, 1, &mut |_| true).expect("it runs");
    report.nodes.iter().map(|node| node.pages).collect()
}

#[test]
fn move_to_a_full_node_takes_the_room_that_an_earlier_move_made() {
    assert_eq!(pages(&[], [0, 0]), [PAGES, PAGES]);
    assert_eq!(pages(&[(0, 1), (PAGES, 0), (1, 1), (PAGES + 1, 0)], [4, 0]), [PAGES, PAGES]);
    assert_eq!(pages(&[(0, 1), (PAGES, 0), (PAGES + 1, 0)], [2, 1]), [PAGES, PAGES]);
    assert_eq!(pages(&[(PAGES, 0), (0, 1)], [1, 1]), [PAGES - 1, PAGES + 1], "too early");
}
