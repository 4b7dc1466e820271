use memtide_core::policy::{LlcCounts, Page, TaskView, TlbMiss, Traffic};
use memtide_core::{CpuId, PageSize, ThreadId};

use super::*;
use crate::testing::{bmpm, cpu_of, machine, moves_of, node, node_view, page_counts, task_view};

fn policy(text: &str, machine: &Machine) -> Box<dyn Migration> {
    crate::parse(&format!("local+hanb{text}")).expect("a policy").migration(machine)
}

fn miss(page: u64, on: u8) -> Event {
    let (time, task, thread, size) = (Time::ZERO, TaskId(1), ThreadId(0), PageSize::Base);
    Event::TlbMiss(TlbMiss { time, task, thread, page: Vpn(page), size, node: NodeId(on), write: false })
}

/// A second of a number of bytes on DRAM and NVM with this free memory, and each page's node and misses.
struct Bench {
    policy: Box<dyn Migration>,
    free: [u64; 2],
    bytes: u64,
    seconds: u64,
    llc: LlcCounts,
}

impl Bench {
    fn new(text: &str) -> Bench {
        let policy = policy(text, &bmpm(2.0));
        Bench { policy, free: [500, 500], bytes: 0, seconds: 0, llc: LlcCounts::default() }
    }

    /// The pages that move, with their targets, in order; and the charged time. Pages are known from a first
    /// decision on.
    fn second(&mut self, bytes: u64, counts: &[(u8, u32)]) -> (Vec<(u64, u8)>, Time) {
        if self.seconds == 0 {
            self.decide(counts, &mut Plan::default());
        }
        let mut plan = Plan::default();
        self.miss(counts);
        (self.bytes, self.seconds) = (self.bytes + bytes, self.seconds + 1);
        self.decide(counts, &mut plan);
        let moves = moves_of(&plan).iter().map(|(wanted, _)| (wanted.page.0, wanted.to.0)).collect();
        (moves, plan.work())
    }

    fn miss(&mut self, counts: &[(u8, u32)]) {
        for (page, &(on, misses)) in (0..).zip(counts) {
            let mut plan = Plan::default();
            (0..misses).for_each(|_| self.policy.on_event(&miss(page, on), &View::default(), &mut plan));
        }
    }

    fn decide(&mut self, counts: &[(u8, u32)], plan: &mut Plan) {
        let mut nodes = [0, 1].map(|on| node_view(NodeId(on), 1000, self.free[usize::from(on)])).to_vec();
        nodes[0].traffic = Some(Traffic { read_bytes: self.bytes, written_bytes: 0 });
        let tasks: Vec<TaskView> = vec![task_view(counts.len() as u64)];
        let (time, regions) = (Time::from_ms(self.seconds * 1000), page_counts(counts));
        let view = View { time, nodes, tasks, regions, llc: Some(self.llc), ..View::default() };
        self.policy.decide(&view, plan);
    }

    /// The pages whose misses are counted after a second with these.
    fn counted_after(&mut self, counts: &[(u8, u32)]) -> Vec<u64> {
        self.miss(counts);
        let mut plan = Plan::default();
        self.decide(counts, &mut plan);
        plan.counted().expect("they change").iter().map(|page| page.page.0).collect()
    }
}

/// A queue of all pages.
const ALL: &str = ":penalty=10";

/// Eight idle pages on DRAM, and one on NVM.
fn idle_and_one(misses: u32) -> Vec<(u8, u32)> {
    let mut counts = vec![(0, 0); 8];
    counts.push((1, misses));
    counts
}

#[test]
fn one_cold_page_goes_down_for_a_hot_one_at_first() {
    let (moves, work) = Bench::new(ALL).second(100, &idle_and_one(4));
    assert_eq!(moves, [(0, 1), (8, 0)]);
    assert_eq!(work, Time::from_ns(900.0), "nine pages were in the queue");
}

#[test]
fn as_bandwidth_rises_more_cold_pages_go_down_for_each_hot_one() {
    let mut bench = Bench::new(ALL);
    let counts = idle_and_one(8);
    let down: Vec<usize> = [100, 100, 200, 400, 400, 200, 200]
        .map(|bytes| bench.second(bytes, &counts).0.iter().filter(|(_, to)| *to == 1).count())
        .into();
    assert_eq!(down, [1, 1, 2, 4, 4, 2, 2], "N doubles with the bandwidth, settles, and halves");
}

#[test]
fn ratio_is_bounded() {
    let mut bench = Bench::new(":ratio_max=3:penalty=10");
    let counts = idle_and_one(8);
    let ups = [100, 100, 200, 400, 800].map(|bytes| bench.second(bytes, &counts).0.len() - 1);
    assert_eq!(ups, [1, 1, 2, 3, 3]);
}

#[test]
fn pages_that_left_the_queue_last_go_down_first_if_it_has_no_idle_ones() {
    let mut bench = Bench::new("");
    // The first half of the pages, on DRAM, leave the queue for the others.
    let counts = |misses: u32| [[(0, 0); 5], [(1, misses); 5]].concat();
    assert_eq!(bench.second(100, &counts(0)).0, []);
    let (moves, _) = bench.second(100, &counts(4));
    let down: Vec<u64> = moves.iter().filter(|(_, to)| *to == 1).map(|(page, _)| *page).collect();
    assert_eq!(down, [4, 3, 2, 1, 0]);
}

#[test]
fn half_of_the_pages_are_counted_and_idle_ones_give_way_to_others() {
    let mut bench = Bench::new("");
    let misses = |pages: &[u64]| (0..8).map(|page| (0, u32::from(pages.contains(&page)))).collect::<Vec<_>>();
    assert_eq!(bench.counted_after(&misses(&[])), [0, 1, 2, 3]);
    assert_eq!(bench.counted_after(&misses(&[1, 5])), [1, 4, 5, 6], "5 was not counted");
    assert_eq!(bench.counted_after(&misses(&[1, 4, 5, 6])), [1, 4, 5, 7], "6 was missed last");
}

#[test]
fn page_missed_once_stays_until_it_is_missed_again() {
    let mut bench = Bench::new(ALL);
    let counts = idle_and_one(1);
    assert_eq!(bench.second(100, &counts).0, []);
    assert_eq!(bench.second(100, &counts).0, [], "1 / 2 + 1");
    assert_eq!(Bench::new(":hot=1:penalty=10").second(100, &counts).0.len(), 2);
}

#[test]
fn fewer_misses_are_hot_in_an_interval_of_fewer_markings() {
    let mut bench = Bench::new(ALL);
    let counts = idle_and_one(1);
    // The miss rate more than doubles, from 0.4 to 0.9, so that the last interval has one marking.
    let moves = [(100, 40), (200, 80), (300, 170), (400, 260)].map(|(accesses, misses)| {
        bench.llc = LlcCounts { accesses, misses };
        bench.second(100, &counts).0.len()
    });
    assert_eq!(moves, [0, 0, 0, 2]);
}

#[test]
fn without_idle_pages_the_coldest_of_the_queue_go_down_if_colder() {
    let counts = [(0, 9), (0, 4), (0, 1), (1, 4), (1, 7)];
    let (moves, _) = Bench::new(":penalty=100").second(100, &counts);
    assert_eq!(moves, [(2, 1), (4, 0), (3, 0)], "none is colder than 4");
}

#[test]
fn full_fast_tier_gets_room_first() {
    let mut bench = Bench::new(ALL);
    bench.free = [0, 500];
    assert_eq!(bench.second(100, &idle_and_one(4)).0, [(0, 1), (8, 0)]);
    bench.free = [1, 499];
    assert_eq!(bench.second(100, &idle_and_one(4)).0, [(0, 1), (8, 0)]);
    bench.free = [0, 0];
    assert_eq!(bench.second(100, &idle_and_one(4)).0, []);
}

#[test]
fn queue_covers_half_the_pages_and_its_sort_is_charged() {
    let counts: Vec<(u8, u32)> = (0..40).map(|_| (1, 1)).collect();
    let mut bench = Bench::new(":page_ns=200");
    assert_eq!(bench.second(100, &counts).1, Time::from_ns(200.0 * 10.0), "a quarter, with twice the time");
    assert_eq!(Bench::new("").second(100, &counts).1, Time::from_ns(100.0 * 20.0));
}

#[test]
fn interval_follows_the_llc_miss_rate() {
    let mut bench = Bench::new("");
    let mut wake = |accesses: u64, misses: u64| {
        bench.llc.accesses += accesses;
        bench.llc.misses += misses;
        let view = View { llc: Some(bench.llc), ..View::default() };
        bench.policy.decide(&view, &mut Plan::default())
    };
    let wakes = [(0, 0), (100, 40), (100, 20), (100, 90)].map(|(accesses, misses)| wake(accesses, misses));
    assert_eq!(wakes, [4000, 4000, 6000, 500].map(|ms| Wake::After(Time::from_ms(ms))));
}

#[test]
fn gone_page_leaves_the_queue_and_a_moved_one_is_elsewhere() {
    let done = |page: u64, outcome: Outcome| {
        let (task, page, size, wish) = (TaskId(1), Vpn(page), PageSize::Base, Default::default());
        let wanted = Move { task, page, size, from: NodeId(1), to: NodeId(0), wish };
        let mut plan = Plan::default();
        plan.push_move(wanted, Reason::Hot);
        Event::Completion(Completion { time: Time::ZERO, planned: plan.actions()[0].clone(), outcome })
    };
    let counts = [(0, 0), (0, 0), (0, 0), (1, 4), (1, 4)];
    for (outcome, work) in [(Outcome::MADE, 500), (Outcome::Refused(Refusal::Gone), 400)] {
        let mut bench = Bench::new(ALL);
        bench.second(100, &counts);
        for page in [3, 4] {
            let event = done(page, if page == 3 { outcome } else { Outcome::MADE });
            bench.policy.on_event(&event, &View::default(), &mut Plan::default());
        }
        let (moves, charged) = bench.second(100, &[(0, 0); 5]);
        assert_eq!((moves, charged), (vec![], Time::from_ns(f64::from(work))), "{outcome:?}");
    }
}

/// Two DRAM nodes and two NVM nodes, one of each per socket.
fn four_nodes() -> Machine {
    machine(&[node(0, 0, 17e3), node(0, 1, 17e3), node(1, 0, 8e3), node(1, 1, 8e3)])
}

fn faulted(free: [u64; 4], from: u8, cpu: CpuId) -> Vec<u8> {
    let mut policy = policy("", &four_nodes());
    let nodes = (0..4).map(|on| node_view(NodeId(on), 100, free[usize::from(on)])).collect();
    let view = View { nodes, ..View::default() };
    let mut plan = Plan::default();
    policy.decide(&view, &mut plan);
    for page in [7, 8] {
        for pass in 0..2 {
            let (time, task, thread, page, size) =
                (Time::ZERO, TaskId(1), ThreadId(0), Vpn(page), PageSize::Base);
            let node = NodeId(from);
            let fault =
                HintFault { time, task, thread, cpu, page, size, node, write: false, pass, idle: None };
            policy.on_event(&Event::HintFault(fault), &view, &mut plan);
        }
    }
    moves_of(&plan).iter().map(|(wanted, _)| wanted.to.0).collect()
}

#[test]
fn hint_fault_moves_a_page_within_its_group_to_the_nearest_node_with_room() {
    assert_eq!(faulted([9, 9, 9, 9], 0, cpu_of(1)), [1, 1]);
    assert_eq!(faulted([9, 9, 9, 9], 2, cpu_of(1)), [3, 3], "not to faster memory");
    assert_eq!(faulted([9, 1, 9, 9], 0, cpu_of(1)), [1], "the second has no room there");
    assert_eq!(faulted([9, 0, 9, 9], 0, cpu_of(1)), [0u8; 0]);
    assert_eq!(faulted([9, 9, 9, 9], 1, cpu_of(1)), [0u8; 0], "it is there");
}

#[test]
fn hint_faults_are_requested_only_if_a_group_has_several_nodes() {
    assert!(policy("", &four_nodes()).sensors().hint_faults());
    let sensors = policy("", &bmpm(2.0)).sensors();
    assert!(!sensors.hint_faults());
    assert_eq!(sensors.tlb_misses().map(|counting| counting.marking), Some(Time::from_ms(1000)));
}

#[test]
fn huge_pages_cross_whole() {
    let mut plan = Plan::default();
    let groups = Groups::new(&bmpm(2.0));
    let view = View { nodes: vec![node_view(NodeId(0), 1000, 600)], ..View::default() };
    let mut draft = Draft::new(&groups, &view, &mut plan);
    let page = |number: u64| Page { task: TaskId(1), page: Vpn(number * 512), size: PageSize::Huge };
    assert!(draft.cross(page(0), NodeId(1), Reason::Hot));
    assert!(!draft.cross(page(1), NodeId(1), Reason::Hot), "88 base pages are left");
    assert_eq!(moves_of(&plan).len(), 1);
}
