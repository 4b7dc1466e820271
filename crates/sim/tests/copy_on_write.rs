//! Pages that a kernel thread copies while they stay mapped.

use crate::runs;
use memtide_core::policy::{Delivery, Event, Frame, Migration, Move, Plan, Reason, Sensors, View, Wake};
use memtide_core::{Access, NodeId, PageSize, TaskId, Time, Vpn};
use memtide_sim::{Policy, Report, run, run_shared};

use crate::runs::{assert_near, job};
use crate::support::{alone, doing, load, store, touch, two_sockets};

/// Moves page 0 to node 1 after 100 us.
struct OneMove {
    copy_on_write: bool,
}

impl Migration for OneMove {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::Deployable, Time::from_us(100));
        if self.copy_on_write { sensors.copy_on_write() } else { sensors }
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        let (task, page, size, wish) = (TaskId(0), Vpn(0), PageSize::Base, Frame::ANY);
        plan.push_move(Move { task, page, size, from: NodeId(0), to: NodeId(1), wish }, Reason::Hot);
        Wake::Never
    }
}

/// A thread that loads or stores the first line of page 0 all the time; a copied line takes 1 us.
fn moved(shared: bool, copy_on_write: bool, access: fn(u64) -> Access) -> Report {
    let machine = two_sockets("hint_fault_ns = 500", 2, [64, 64], [64.0, 64.0]);
    let script = alone([touch(0, 1), doing((0..1_000_000).map(move |_| access(0)))]);
    let placement = runs::policy(&machine, "local").placement;
    let policy = Policy::new(placement, Some(Box::new(OneMove { copy_on_write })));
    let report = match shared {
        false => run(&machine, vec![job(script, &[0])], policy, 1, &mut |_| true),
        true => run_shared(&machine, vec![job(script, &[])], vec![policy], 1, &|_, _| true).remove(0),
    };
    let report = report.expect("it runs");
    assert_eq!(report.pages.migrated, 1);
    assert_eq!(report.nodes.iter().map(|node| node.pages).collect::<Vec<u64>>(), [0, 1]);
    report
}

#[test]
fn reader_goes_on_during_the_copy_and_waits_without_copy_on_write() {
    for shared in [false, true] {
        let mapped = moved(shared, true, load);
        assert_eq!(mapped.spent.system_ms, 0.0, "one pass: {shared}");
        // The first line arrives after 0.12 us, each of the others 1 us after the previous one.
        assert_near(mapped.spent.kernel_threads_ms, 0.06312, 0.01, "the copy");
        assert_eq!(mapped.nodes[1].copy_lines, 64);
    }
    let unmapped = moved(false, false, load);
    assert_near(unmapped.spent.system_ms, 0.06312, 0.01, "the reader waits for the copy");
}

#[test]
fn store_drops_the_copy_which_is_made_again_and_at_last_unmapped() {
    let report = moved(false, true, store);
    // Three copies of ten lines, which are in flight when the first store comes, and of those read in the
    // 2 us that a core may run ahead; then a whole one, during which the store waits.
    let dropped = report.nodes[1].copy_lines - 64;
    assert!((3 * 10..=3 * 15).contains(&dropped), "{dropped} lines of dropped copies");
    let copies_ms = (dropped + 64) as f64 * 0.001;
    assert_near(report.spent.kernel_threads_ms, copies_ms, 0.05, "four copies");
    assert_near(report.spent.system_ms, 3.0 * 0.0005 + 0.06312, 0.05, "three faults and a wait");
    let shared = moved(true, true, store);
    assert!((64..=4 * 64).contains(&shared.nodes[1].copy_lines), "noticed later: {:?}", shared.nodes[1]);
}

#[test]
fn page_that_is_stored_to_now_and_then_is_copied_again_once() {
    let machine = two_sockets("hint_fault_ns = 500", 2, [64, 64], [64.0, 64.0]);
    // The store comes at about 130 us, in the middle of the first copy.
    let accesses = (0..1_000_000u64).map(|at| if at == 260_000 { store(0) } else { load(0) });
    let script = alone([touch(0, 1), doing(accesses)]);
    let placement = runs::policy(&machine, "local").placement;
    let policy = Policy::new(placement, Some(Box::new(OneMove { copy_on_write: true })));
    let report = run(&machine, vec![job(script, &[0])], policy, 1, &mut |_| true).expect("it runs");
    let copied = report.nodes[1].copy_lines;
    assert!((64 + 20..64 + 60).contains(&copied), "{copied} lines");
    assert_near(report.spent.system_ms, 0.0005, 0.01, "one fault, no wait");
    assert_eq!((report.pages.migrated, report.nodes[1].pages), (1, 1));
}
