//! Invariants of every run: random programs under a policy that moves pages at random.

use std::collections::{BTreeMap, BTreeSet};

use memtide_core::policy::{
    Action, Delivery, Event, Frame, Group, GroupOrder, Migration, Move, Placement, Plan, Reason, Region,
    RegionSampling, Rule, Sensor, Sensors, Spill, Task, TlbMissSampling, View, Wake, Within,
};
use memtide_core::{Batch, CpuId, Machine, NodeId, PageSize, Then, ThreadId, Time, Vpn};
use proptest::prelude::*;

use super::Engine;
use crate::feed::Load;
use crate::os::{Entry, Owner, PAGES};
use crate::support::{MachineText, Script, after, doing, load, map, mixed, store, touch, unmap};
use crate::thread::{Spent, State};
use crate::{Job, Policy, Report};

const EPOCH: Time = Time::from_us(15);

/// Round robin over the nodes.
struct RoundRobin;

impl Placement for RoundRobin {
    fn rule(&mut self, machine: &Machine, _: &Task) -> Rule {
        let group = |node| Group { nodes: vec![node], weight: 2 };
        Rule {
            groups: machine.node_ids().map(group).collect(),
            order: GroupOrder::Cycle,
            within: Within::InSequence,
            spill: Spill::Nearest,
        }
    }
}

/// Moves every faulting page, some earlier ones, and the first of every region, to arbitrary nodes.
struct RandomMoves {
    delivery: Delivery,
    seen: Vec<Move>,
    drawn: u64,
}

impl RandomMoves {
    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        mixed(self.drawn) % below
    }
}

impl Migration for RandomMoves {
    fn sensors(&self) -> Sensors {
        let (sampling, aggregation) = (Time::from_us(1), Time::from_us(5));
        let regions =
            RegionSampling { sampling, aggregation, regions_max: 12, writes: true, budget_bp: None };
        let in_kernel = self.delivery == Delivery::InKernel;
        let counting = TlbMissSampling { marking: Time::from_us(7), every_miss: in_kernel, planned: false };
        let sensors = Sensors::new(self.delivery, EPOCH);
        let sensors = if in_kernel { sensors } else { sensors.copy_on_write() };
        let sensors = sensors.require(Sensor::HintFaults).require(Sensor::TlbMisses(counting));
        sensors.require(Sensor::Regions(regions))
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        let Event::HintFault(fault) = event else { return };
        let to = NodeId(self.draw(2) as u8);
        let (task, page, size, from) = (fault.task, fault.page, fault.size, fault.node);
        let wanted = Move { task, page, size, from, to, wish: Frame::ANY };
        self.seen.push(wanted);
        plan.push_move(wanted, Reason::Locality);
        let older = self.draw(self.seen.len() as u64) as usize;
        plan.push_move(Move { to: NodeId(self.draw(2) as u8), ..self.seen[older] }, Reason::Locality);
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        for Region { task, start: page, size, node: from, .. } in view.regions.iter() {
            let to = NodeId(self.draw(2) as u8);
            plan.push_move(Move { task, page, size, from, to, wish: Frame::ANY }, Reason::Hot);
        }
        for task in &view.tasks {
            // Placement and migration share the rule.
            let mut rule = task.rule.clone().expect("the simulator places all pages");
            rule.groups.rotate_left(1);
            plan.push(Action::SetRule(task.task, Box::new(rule)), Reason::Bandwidth);
        }
        Wake::After(EPOCH)
    }
}

/// A step of a random program; numbers are from small ranges, so that threads interact.
#[derive(Clone, Debug)]
enum Step {
    Touch(u64, u64),
    Read(u64, u64),
    Map(u64, bool),
    Unmap(u64),
    Work(u64),
    Barrier,
    OnCpu(u16),
    Exec,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..1500, 1u64..200).prop_map(|(page, pages)| Step::Touch(page, pages)),
        8 => (0u64..1500, 1u64..400).prop_map(|(page, loads)| Step::Read(page, loads)),
        2 => (0u64..3, any::<bool>()).prop_map(|(region, huge)| Step::Map(region, huge)),
        2 => (0u64..6).prop_map(Step::Unmap),
        2 => (0u64..40_000).prop_map(Step::Work),
        2 => Just(Step::Barrier),
        2 => (0u16..4).prop_map(Step::OnCpu),
        1 => Just(Step::Exec),
    ]
}

fn batch(step: &Step) -> Batch {
    match *step {
        Step::Touch(page, pages) => touch(page, pages),
        Step::Read(page, loads) => {
            let line = move |n: u64| page * 4096 + mixed(n) % (64 * 50) * 64;
            doing((0..loads).map(|n| if n % 5 == 0 { store(line(n)) } else { load(line(n)) }))
        }
        Step::Map(region, true) => map(region << 21, 1 << 21, PageSize::Huge),
        Step::Map(region, false) => map(region << 21, 1 << 21, PageSize::Base),
        Step::Unmap(half) => unmap(half << 20, 1 << 20),
        Step::Work(instructions) => after([], Then::Work(instructions)),
        Step::Barrier => after([], Then::Barrier),
        Step::OnCpu(cpu) => after([], Then::OnCpu(CpuId(cpu))),
        Step::Exec => after([], Then::Exec),
    }
}

type Threads = Vec<(bool, Vec<Step>)>;

/// The first thread starts the others, some of them in new address spaces.
fn script(threads: &Threads) -> Script {
    let start = |(number, (fork, _)): (usize, &(bool, Vec<Step>))| {
        let number = ThreadId::from(number);
        after([], if *fork { Then::Fork(number) } else { Then::Spawn(number) })
    };
    let starts = threads.iter().enumerate().skip(1).map(start);
    let first = threads[0].1.iter().take(1).map(batch).chain(starts);
    let first = first.chain(threads[0].1.iter().skip(1).map(batch)).collect();
    let others = threads[1..].iter().map(|(_, steps)| steps.iter().map(batch).collect());
    Script(std::iter::once(first).chain(others).collect())
}

fn programs() -> impl Strategy<Value = Vec<Threads>> {
    let thread = (any::<bool>(), proptest::collection::vec(step(), 1..12));
    proptest::collection::vec(proptest::collection::vec(thread, 1..=3), 1..=2)
}

/// A machine with little memory, so that the programs swap.
fn machine() -> Machine {
    let kernel = "numa_scan_period_ms = 0.005\nnuma_scan_mib = 1\nfault_ns = 300\nshootdown_ns = 150\n\
        unmap_ns = 200\nremap_ns = 100\nhint_fault_ns = 250\nswap_ns = 700\nwatermark_low_bp = 100\n\
        watermark_high_bp = 200";
    MachineText::new(kernel)
        .last_level(32, 2)
        .tlb(32, 20)
        .with("[prefetcher]\nstreams = 4\ndistance_lines = 4\n")
        .socket("s0", 2)
        .socket("s1", 2)
        .node("a", 0, "s0", 3, 80.0, 8_000.0)
        .node("b", 1, "s1", 3, 250.0, 2_000.0)
        .link("s0", "s1", 30.0, 5_000.0)
        .machine()
}

fn policy(in_kernel: bool) -> Policy {
    let delivery = if in_kernel { Delivery::InKernel } else { Delivery::Deployable };
    Policy::new(Box::new(RoundRobin), Some(Box::new(RandomMoves { delivery, seen: Vec::new(), drawn: 0 })))
}

fn jobs(programs: &[Threads]) -> Vec<Job<'static>> {
    let job = |threads| Job::new("random", Box::new(script(threads)));
    programs.iter().map(job).collect()
}

fn loads(programs: &[Threads]) -> Vec<Load<'static>> {
    jobs(programs).into_iter().map(Load::from).collect()
}

/// Every frame is mapped by a page, reserved for a page in migration, or free.
fn check_memory(engine: &mut Engine<'_>) {
    let mut present = BTreeMap::new();
    for space in &mut engine.os.spaces {
        let (task, frames) = (space.id, &engine.os.frames);
        space.table.walk(Vpn(0), Vpn(PAGES), |page, size, entry| {
            if entry.has(Entry::PRESENT) {
                assert_eq!(frames.owner(entry.frame()), Owner { task, page, size });
                assert_eq!(present.insert(entry.frame(), size), None, "two pages have one frame");
            }
            true
        });
    }
    for (frame, size) in engine.frames_in_flight() {
        assert_eq!(present.insert(frame, size), None, "a frame is reserved and in use");
    }
    let mut used = vec![0; engine.setup.machine.nodes.len()];
    for (frame, size) in present {
        used[engine.os.node_of(frame).index()] += size.base_pages();
    }
    for node in engine.setup.machine.node_ids() {
        assert_eq!(engine.os.frames.used(node), used[node.index()], "used frames of {node}");
    }
    engine.os.frames.check();
}

/// Runs an engine step by step; returns when each thread started.
fn run_checked(engine: &mut Engine<'_>) -> Vec<Time> {
    let mut started = vec![Time::NEVER; engine.threads.len()];
    let mut steps = 0;
    while engine.programs.iter().any(|program| program.live > 0) {
        for (thread, start) in engine.threads.iter().zip(&mut started) {
            if thread.state != State::NotStarted && *start == Time::NEVER {
                *start = engine.now;
            }
        }
        let (time, actor) = engine.agenda.first();
        engine.now = time;
        engine.act(actor, &mut |_| true).expect("a program without mistakes");
        engine.refresh_nodes();
        steps += 1;
        if steps % 300 == 0 {
            check_memory(engine);
        }
    }
    check_memory(engine);
    started
}

#[test]
fn thread_that_changes_its_cpu_waits_for_its_stores() {
    let program = vec![(false, vec![Step::Touch(0, 1), Step::OnCpu(1)])];
    let mut engine = Engine::new(&machine(), loads(&[program]), policy(false), 1).expect("a sound machine");
    run_checked(&mut engine);
    let report = engine.report();
    assert_eq!((report.nodes.iter().map(|node| node.reads).sum::<u64>(), report.llc_misses), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn frames_and_time_are_conserved(programs in programs(), in_kernel: bool) {
        let mut engine =
            Engine::new(&machine(), loads(&programs), policy(in_kernel), 1).expect("a sound machine");
        let started = run_checked(&mut engine);
        let starts: f64 = started.iter().map(|at| at.0 as f64 / 1e9).sum();
        for (thread, started) in engine.threads.iter().zip(started) {
            let Spent { user, system, stall, idle } = thread.spent;
            prop_assert_eq!(thread.state, State::Ended);
            let total = user + system.total() + stall + idle;
            prop_assert_eq!(total, thread.left_at.since(started), "thread {}", thread.id);
        }
        let ended = engine.threads.iter().map(|thread| thread.left_at).max();
        prop_assert_eq!(engine.programs.iter().map(|program| program.ended).max(), ended);
        let migrated: u64 = machine().node_ids().map(|node| engine.mover.migrated_pages(node)).sum();
        let threads = engine.threads.len();
        let counts = engine.os.counts;
        let report = engine.report();
        let all_ms = report.time_ms * threads as f64 - starts;
        prop_assert!((report.spent.threads_ms() - all_ms).abs() <= 1e-9 * all_ms, "{:?}", report.spent);
        let pages: u64 = report.nodes.iter().map(|node| node.pages).sum();
        prop_assert!(pages <= counts.faults + 512 * counts.huge_faults);
        prop_assert_eq!(migrated, report.pages.moves.iter().map(|m| m.pages).sum::<u64>());
        let lines = report.nodes.iter().map(|node| node.reads).sum::<u64>();
        prop_assert!(lines >= report.llc_misses);
    }

    #[test]
    fn equal_inputs_give_equal_reports_on_any_thread(programs in programs(), in_kernel: bool) {
        let report = || -> Report {
            let report = crate::run(&machine(), jobs(&programs), policy(in_kernel), 9, &mut |_| true);
            report.expect("a sound program")
        };
        let first = report();
        let (second, third) = std::thread::scope(|scope| {
            let others = [scope.spawn(report), scope.spawn(report)];
            let [second, third] = others.map(|other| other.join().expect("no panic"));
            (second, third)
        });
        prop_assert_eq!(format!("{first:?}"), format!("{second:?}"));
        prop_assert_eq!(first, third);
    }
}

#[test]
fn threads_start_where_the_engine_says() {
    let cpus: BTreeSet<CpuId> = {
        let threads: Threads = vec![(false, vec![Step::Work(1)]); 3];
        let engine = Engine::new(&machine(), loads(&[threads]), policy(true), 1).expect("a sound machine");
        engine.threads.iter().map(|thread| thread.cpu).collect()
    };
    assert_eq!(cpus, BTreeSet::from([CpuId(0), CpuId(1), CpuId(2)]));
}
