//! Memory that two processes share: each page is seen once, with the accesses of both, and moves whichever
//! process has it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use memtide_core::epoch::Host;
use memtide_core::policy::{
    Completion, Delivery, Frame, Move, Outcome, Plan, Reason, Refusal, RegionSampling, Sensor, Sensors, View,
};
use memtide_core::{NodeId, PageSize, Time, Vpn};
use memtide_linux::live::{self, Live};
use memtide_linux::movers::{Mover, nodes_of};
use memtide_linux::processes;
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::Numbers;
use rustix::process::Pid;

use crate::support::{lab, lab_is_here};

const TEST: &str = "shared_memory_is_seen_once_and_moves";

/// Set in the guest, to the program that shares memory.
const PROGRAM: &str = "MEMTIDE_TEST_PROGRAM";

/// As in `shared_memory.c`.
const PAGES: u64 = 16384;

const SAMPLING: RegionSampling = RegionSampling {
    sampling: Time::from_ms(20),
    aggregation: Time::from_ms(400),
    regions_max: 100,
    writes: false,
    budget_bp: None,
};

#[test]
fn shared_memory_is_seen_once_and_moves() {
    if let Ok(program) = env::var(PROGRAM) {
        return in_guest(&program);
    }
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (test, program) = (lab::this_test(), lab::compile(folder.path(), "shared_memory"));
    let script =
        format!("echo 0 > /proc/sys/kernel/numa_balancing\n{PROGRAM}={program} {test} {TEST} --nocapture");
    let options = ["--machine", "ddr5-cxl", "--vcpus", "2", "--timing", "off"];
    let (out, stderr) = lab::script(&options, &[&test, &program], &script);
    assert!(out.contains("1 passed"), "{out}\n{stderr}");
}

/// The two processes.
struct Program {
    child: Child,
    first: Pid,
    second: Pid,
    /// The first page that they share, in both.
    page: u64,
    /// Its output, open until its end.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(program: &str) -> Program {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = lines.find_map(|line| Some(line.expect("a line").strip_prefix("at ")?.to_owned()));
        let line = line.expect("its processes");
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [first, second, page] = words[..] else { panic!("{line}") };
        let pid = |number| Pid::from_raw(number as i32).expect("a process");
        Program { child, first: pid(first), second: pid(second), page, _lines: lines }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success(), "a page changed its content");
    }
}

fn in_guest(program: &str) {
    let program = Program::start(program);
    let (pid, page) = (program.first, program.page);
    let both = [program.first, program.second].map(|pid| processes::one(pid).expect("a process"));
    let stall = Duration::from_millis(20);
    let watching = |sampling| {
        let numbers = Numbers { nodes: vec![NodeId(0), NodeId(1)], cpus: Vec::new(), scan_pages: 0 };
        let sensors = Sensors::new(Delivery::Deployable, Time::from_ms(1000));
        let sensors = sensors.require(Sensor::Regions(sampling));
        let mut host = Live::new(numbers, &sensors, Some(Kind::Smaps), stall, false).expect("smaps");
        host.watch(both.to_vec());
        // With the accesses of the second process, though they are the first one's pages.
        let begun = Instant::now();
        while seen(&mut host, &program) != [PAGES, PAGES, 0] {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?} pages", seen(&mut host, &program));
            thread::sleep(Duration::from_millis(100));
        }
        host
    };
    // With writes, by samples of the pages; without them, page by page.
    watching(RegionSampling { writes: true, ..SAMPLING });
    let mut host = watching(SAMPLING);
    assert_eq!(host.owner_of(&both[1], Vpn(page)), (pid, Vpn(page)));
    // Pages of both, of the first, of the second, each to the other node.
    let places = [0, 1, 100, PAGES / 2 - 1, PAGES / 2, PAGES - 1].map(|at| page + at);
    let nodes = |pid| nodes_of(pid, &places).expect("nodes");
    let is_resident = |pid| nodes(pid).iter().map(Option::is_some).collect::<Vec<bool>>();
    assert_eq!(is_resident(program.first), [true, true, true, true, false, false]);
    assert_eq!(is_resident(program.second), [true, true, false, false, true, true]);
    let of_any = nodes(program.first).into_iter().zip(nodes(program.second));
    let on: Vec<NodeId> = of_any.map(|(first, second)| first.or(second).expect("it is resident")).collect();
    let to: Vec<NodeId> = on.iter().map(|on| NodeId(1 - on.0)).collect();
    let alone = Mover::new(stall).move_pages(pid, &[(page, to[0])]);
    assert_eq!(alone, [Err(Refusal::NotAllowed)], "a page of both");
    let mut act = |pages: &[u64], reason| {
        let mut plan = Plan::default();
        for ((page, &from), &to) in pages.iter().zip(&on).zip(&to) {
            let (task, page, size, wish) = (live::task(pid), Vpn(*page), PageSize::Base, Frame::ANY);
            plan.push_move(Move { task, page, size, from, to, wish }, reason);
        }
        host.act(plan.actions());
        let mut done: Vec<Completion> = Vec::new();
        host.completions(&mut done);
        done.into_iter().map(|done| done.outcome).collect::<Vec<Outcome>>()
    };
    assert_eq!(act(&places[..1], Reason::Request), [Outcome::Refused(Refusal::NotAllowed)]);
    assert_eq!(act(&places, Reason::Hot), [Outcome::MADE; 6]);
    let of_any = nodes(program.first).into_iter().zip(nodes(program.second));
    let moved: Vec<Option<NodeId>> = of_any.map(|(first, second)| first.or(second)).collect();
    assert_eq!(moved, to.iter().copied().map(Some).collect::<Vec<_>>());
    let mut view = View::default();
    host.observe(&mut view, &mut Vec::new());
    assert_eq!(
        view.regions.iter().find(|region| region.start == Vpn(page)).map(|region| region.node),
        Some(to[0])
    );
    program.end();
}

/// Shared pages that are seen with the first process, those of them that are seen as accessed, and those that
/// are seen with the second process.
fn seen(host: &mut Live, program: &Program) -> [u64; 3] {
    let mut view = View::default();
    host.observe(&mut view, &mut Vec::new());
    assert_eq!(host.take_troubles(), Vec::<String>::new());
    let shared = program.page..program.page + PAGES;
    let of = |pid, is_counted: fn(u32) -> bool| -> u64 {
        let regions = view.regions.of_task(live::task(pid)).filter(|region| is_counted(region.reads));
        let pages = regions.map(|region| region.start.0..region.start.0 + region.pages);
        pages.map(|pages| pages.end.min(shared.end).saturating_sub(pages.start.max(shared.start))).sum()
    };
    [of(program.first, |_| true), of(program.first, |reads| reads > 0), of(program.second, |_| true)]
}
