use super::*;
use crate::testing::{bmpm, cpu_of, machine, node};
use memtide_core::params::Params;
use memtide_core::policy::HintFault;
use memtide_core::{PageSize, Time};

fn trigger(filter: &str, machine: &Machine) -> Trigger {
    let params: Params = format!("filter={filter}").parse().unwrap();
    Trigger::new(machine, &params.values(&[FILTER]).unwrap())
}

/// A fault of a thread on a socket, at page 1 on a node.
fn fault(thread: u32, socket: u16, node: u8, pass: u32) -> HintFault {
    HintFault {
        time: Time::ZERO,
        task: TaskId(1),
        thread: ThreadId(thread),
        cpu: cpu_of(socket),
        page: Vpn(1),
        size: PageSize::Base,
        node: NodeId(node),
        write: false,
        pass,
        idle: None,
    }
}

/// Target of the page at each fault; the page is on that node from then on.
fn goes(trigger: &mut Trigger, mut at: u8, faults: &[(u32, u16, u32)]) -> Vec<Option<u8>> {
    let mut went = Vec::new();
    for &(thread, socket, pass) in faults {
        let to = trigger.on_fault(&fault(thread, socket, at, pass)).map(|m| m.to.0);
        at = to.unwrap_or(at);
        went.push(to);
    }
    went
}

#[test]
fn second_consecutive_fault_from_a_node_migrates_the_page() {
    let m = bmpm(2.0);
    let mut two = trigger("two-faults", &m);
    assert_eq!(goes(&mut two, 0, &[(1, 1, 0), (1, 1, 0), (1, 1, 0)]), [None, Some(1), None]);
    let mut two = trigger("two-faults", &m);
    assert_eq!(
        goes(&mut two, 0, &[(1, 1, 0), (1, 0, 0), (1, 1, 0), (1, 0, 0)]),
        [None; 4],
        "never two in a row"
    );
    let mut two = trigger("two-faults", &m);
    assert_eq!(goes(&mut two, 0, &[(1, 1, 0), (2, 1, 0)]), [None, Some(1)], "whichever thread it is");
}

#[test]
fn pages_are_distinguished_and_forgotten() {
    let m = bmpm(2.0);
    let mut two = trigger("two-faults", &m);
    assert!(two.on_fault(&fault(1, 1, 0, 0)).is_none());
    assert!(two.on_fault(&HintFault { page: Vpn(2), ..fault(1, 1, 0, 0) }).is_none());
    assert!(two.on_fault(&HintFault { task: TaskId(2), ..fault(1, 1, 0, 0) }).is_none());
    two.forget(TaskId(1), Vpn(1));
    assert!(two.on_fault(&fault(1, 1, 0, 0)).is_none());
    assert!(two.on_fault(&fault(1, 1, 0, 0)).is_some());
}

#[test]
fn destination_is_own_node_of_cpu_at_any_speed() {
    let m = machine(&[node(0, 0, 20e3), node(1, 0, 20e3), node(1, 1, 5e3), node(0, 2, 20e3)]);
    for (socket, own) in [(0, 0), (1, 2), (2, 3)] {
        let at = if own == 0 { 1 } else { 0 };
        assert_eq!(goes(&mut trigger("two-faults", &m), at, &[(1, socket, 0), (1, socket, 0)])[1], Some(own));
    }
}

#[test]
fn linux_6_migrates_first_and_private_faults_in_first_passes() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3)]);
    assert_eq!(goes(&mut trigger("linux-6", &m), 0, &[(1, 1, 4), (1, 0, 4)]), [Some(1), Some(0)]);
    assert_eq!(goes(&mut trigger("linux-6", &m), 0, &[(1, 1, 4), (2, 0, 4)]), [Some(1), None], "not private");
    assert_eq!(
        goes(&mut trigger("linux-6", &m), 0, &[(1, 0, 5), (1, 1, 5), (1, 1, 5)]),
        [None, None, Some(1)]
    );
}

#[test]
fn linux_6_keeps_page_on_slow_memory_at_first_fault() {
    let m = bmpm(2.0);
    assert_eq!(goes(&mut trigger("linux-6", &m), 1, &[(1, 0, 0), (1, 0, 0)]), [None, Some(0)]);
    assert_eq!(goes(&mut trigger("linux-6", &m), 0, &[(1, 1, 0)]), [Some(1)]);
}

/// A task with these faults by the CPU's node, on pages of the same nodes, in the pass before pass 9.
fn with_statistics(m: &Machine, by_cpu: [u64; 2], by_page: [u64; 2]) -> Trigger {
    let mut trigger = trigger("linux-6", m);
    let faults = Faults {
        pass: 9,
        by_cpu: by_cpu.map(|n| [n, 0]).to_vec(),
        by_page: by_page.map(|n| [n, 0]).to_vec(),
    };
    trigger.tasks.insert(TaskId(1), faults);
    trigger
}

#[test]
fn linux_6_migrates_shared_pages_by_task_statistics() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3)]);
    let shared = |by_cpu, by_page| {
        let mut trigger = with_statistics(&m, by_cpu, by_page);
        trigger.last.insert(TaskId(1), Vpn(1), Last { thread: ThreadId(1), node: NodeId(1) });
        trigger.on_fault(&fault(2, 1, 0, 9)).is_some()
    };
    // cpu(dst) > 3 x cpu(src): moved, whatever the memory there.
    assert!(shared([10, 31], [1, 1000]));
    assert!(!shared([10, 30], [1, 1000]));
    // cpu(dst) / mem(dst) x 3/4 > cpu(src) / mem(src).
    assert!(shared([10, 10], [134, 100]));
    assert!(!shared([10, 10], [133, 100]));
    assert!(shared([0, 0], [0, 0]), "no statistics yet");
    // A private page does not use statistics.
    let mut private = with_statistics(&m, [10, 10], [100, 100]);
    assert_eq!(goes(&mut private, 0, &[(1, 1, 9), (1, 1, 9)]), [None, Some(1)]);
}

#[test]
fn statistics_halve_with_each_pass_and_count_a_huge_page_as_its_base_pages() {
    let mut faults = Faults::new(0, 1);
    faults.by_cpu[0][1] = 100;
    faults.start(1);
    assert_eq!(faults.by_cpu[0], [100, 0]);
    faults.by_cpu[0][1] = 8;
    faults.start(3);
    assert_eq!(faults.by_cpu[0], [29, 0]);
    faults.start(2);
    assert_eq!(faults.by_cpu[0], [29, 0]);

    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3)]);
    let mut t = trigger("linux-6", &m);
    t.on_fault(&HintFault { size: PageSize::Huge, page: Vpn(512), ..fault(1, 1, 0, 0) });
    assert_eq!((t.tasks[&TaskId(1)].by_cpu[1][1], t.tasks[&TaskId(1)].by_page[1][1]), (512, 512));
}
