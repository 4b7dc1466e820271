//! Invariants of every migration policy.

use memtide_core::epoch::ask;
use memtide_core::policy::{
    CacheUtility, Event, HintFault, InactivePage, LlcCounts, NodeView, Plan, Region, TlbMiss, Traffic, View,
    Wake, Watermarks,
};
use memtide_core::{CacheId, CpuId, NodeId, PageSize, TaskId, ThreadId, Time, Vpn};
use proptest::prelude::*;

use super::*;
use crate::testing::{bmpm, node_view, task_view, with_last_level};

/// An epoch: hint faults (page, CPU, node, scan pass), and samples of adjacent regions with their nodes.
type Epoch = (Vec<(u64, u16, u8, u32)>, Vec<(u32, u8)>);

fn epoch() -> impl Strategy<Value = Epoch> {
    let fault = (0..6u64, 0..8u16, 0..2u8, 0..9u32);
    (proptest::collection::vec(fault, 0..12), proptest::collection::vec((0..20u32, 0..2u8), 1..6))
}

/// The plan of an epoch, numbered from 1 on.
fn plan(policy: &mut dyn Migration, number: u64, (faults, regions): &Epoch) -> Plan {
    let (task, size) = (TaskId(1), PageSize::Base);
    let fault = |&(page, cpu, node, pass)| {
        let (thread, page, node) = (ThreadId(u32::from(cpu) / 2), Vpn(page), NodeId(node));
        let (time, cpu, write) = (Time::ZERO, CpuId(cpu), false);
        let idle = (pass > 0).then(|| Time::from_ms(400 * u64::from(pass)));
        Event::HintFault(HintFault { time, task, thread, cpu, page, size, node, write, pass, idle })
    };
    // Each is a TLB miss, too: a policy sees what it asks for, or both.
    let miss = |&(page, cpu, node, _): &(u64, u16, u8, u32)| {
        let (thread, page, node) = (ThreadId(u32::from(cpu) / 2), Vpn(page), NodeId(node));
        Event::TlbMiss(TlbMiss { time: Time::ZERO, task, thread, page, size, node, write: false })
    };
    let events: Vec<Event> = faults.iter().map(fault).chain(faults.iter().map(miss)).collect();
    let (time, busy) = (Time::from_ms(number * 100), number * regions.len() as u64 * 1000);
    let llc = Some(LlcCounts { accesses: busy * 7, misses: busy + number });
    let mut view = View { time, llc, tasks: vec![task_view(60)], ..View::default() };
    for (start, &(reads, node)) in (0..).step_by(10).map(Vpn).zip(regions) {
        view.regions.push(Region {
            task,
            start,
            pages: 10,
            size,
            node: NodeId(node),
            reads,
            writes: 0,
            age: 100,
        });
    }
    let free = if regions[0].0 % 2 == 0 { 500 } else { 15 };
    let watermarks = Some(Watermarks { low_pages: 10, high_pages: 20 });
    let node = |node| NodeView { watermarks, ..node_view(node, 1000, free) };
    view.nodes = [NodeId(0), NodeId(1)].map(node).to_vec();
    let of_run = |run: Region| InactivePage { task, page: run.start, size, node: run.node };
    view.inactive = view.regions.iter().map(of_run).collect();
    view.nodes[1].traffic = Some(Traffic { read_bytes: busy * 64, written_bytes: busy });
    let utility = |task| CacheUtility {
        task: TaskId(task),
        caches: vec![CacheId(0)],
        quota_ways: None,
        hits: (0..16).map(|at| u64::from(regions[(at + task as usize) % regions.len()].0)).collect(),
        misses: busy,
    };
    view.cache_utility = (1..3).map(utility).collect();
    let mut plan = Plan::default();
    let wake = ask(policy, &events, &view, &mut plan);
    assert_ne!(wake, Wake::After(Time::ZERO), "an epoch takes time");
    plan
}

proptest! {
    #[test]
    fn restored_policy_decides_as_the_original(
        before in proptest::collection::vec(epoch(), 0..6), after in proptest::collection::vec(epoch(), 1..6),
    ) {
        let machine = with_last_level(bmpm(2.0));
        let variants = ["anb:filter=linux-6", "bw-migration:threshold=3", "hanb:pages=100000:filter=linux-6"];
        for text in crate::migrations().map(|info| info.name).chain(variants) {
            let make = || crate::parse(&format!("local+{text}")).expect("a policy").migration(&machine);
            let mut number = 0;
            let mut next = || { number += 1; number };
            let (mut first, mut second) = (make(), make());
            for epoch in &before {
                plan(first.as_mut(), next(), epoch);
            }
            second.resume(&first.state()).expect("its own state");
            for epoch in &after {
                let number = next();
                let plans = [&mut first, &mut second].map(|policy| plan(policy.as_mut(), number, epoch));
                prop_assert_eq!(&plans[0], &plans[1], "{}", text);
            }
        }
    }

    #[test]
    fn invalid_state_never_panics(text in "[\\[\\]0-9,\"a-z{}:]{1,40}", seen in epoch()) {
        for info in crate::migrations() {
            let policy = crate::parse(&format!("local+{}", info.name)).expect("a policy");
            let mut policy = policy.migration(&with_last_level(bmpm(2.0)));
            if policy.resume(&text).is_ok() {
                plan(policy.as_mut(), 1, &seen);
            }
        }
    }
}

#[test]
fn counts_and_faults_of_another_machine_are_refused() {
    let policy = |text: &str| crate::parse(&format!("local+{text}")).expect("a policy").migration(&bmpm(2.0));
    let memory = r#"{"last":[],"tasks":[[1,{"pass":1,"by_cpu":[[0,0]],"by_page":[[0,0],[0,0]]}]]}"#;
    assert!(policy("anb").resume(memory).is_err());
    for counts in ["[4]", "[0,0]", "[]"] {
        let state = format!(r#"[{{"last":[],"tasks":[]}},{counts}]"#);
        assert!(policy("bw-migration:threshold=3").resume(&state).is_err(), "{counts}");
    }
    assert!(policy("none").resume("[]").is_err());
}
