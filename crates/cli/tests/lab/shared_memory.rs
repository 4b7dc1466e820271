//! Memory that two processes map, or share since a fork: each page is seen once, with the accesses of both,
//! and moves whichever process has it.

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
use memtide_linux::processes::{self, Process};
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::Numbers;
use rustix::process::Pid;

use crate::support::{lab, lab_is_here};

/// Set in the guest, to the program that shares memory.
const PROGRAM: &str = "MEMTIDE_TEST_PROGRAM";

/// As in `shared_memory.c`.
const PAGES: u64 = 16384;

const STALL: Duration = Duration::from_millis(20);

const SAMPLING: RegionSampling = RegionSampling {
    sampling: Time::from_ms(20),
    aggregation: Time::from_ms(400),
    regions_max: 100,
    writes: false,
    budget_bp: None,
};

#[test]
fn shared_memory_is_seen_once_and_moves() {
    in_lab("shared_memory_is_seen_once_and_moves", mapped_by_both);
}

#[test]
fn memory_shared_since_a_fork_is_seen_once_and_moves() {
    in_lab("memory_shared_since_a_fork_is_seen_once_and_moves", shared_since_a_fork);
}

/// Runs a test's part in a guest, with the program.
fn in_lab(name: &str, in_guest: fn(&str)) {
    if let Ok(program) = env::var(PROGRAM) {
        return in_guest(&program);
    }
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (test, program) = (lab::this_test(), lab::compile(folder.path(), "shared_memory"));
    let script =
        format!("echo 0 > /proc/sys/kernel/numa_balancing\n{PROGRAM}={program} {test} {name} --nocapture");
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
    fn start(program: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line = lines.find_map(|line| Some(line.expect("a line").strip_prefix("at ")?.to_owned()));
        let line = line.expect("its processes");
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [first, second, page] = words[..] else { panic!("{line}") };
        let pid = |number| Pid::from_raw(number as i32).expect("a process");
        Program { child, first: pid(first), second: pid(second), page, _lines: lines }
    }

    fn processes(&self) -> [Process; 2] {
        [self.first, self.second].map(|pid| processes::one(pid).expect("a process"))
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success(), "a page changed its content");
    }
}

/// Watches both processes until these pages are [`seen`].
fn watching(program: &Program, sampling: RegionSampling, expected: [u64; 3]) -> Live {
    let numbers = Numbers { nodes: vec![NodeId(0), NodeId(1)], cpus: Vec::new(), scan_pages: 0 };
    let sensors = Sensors::new(Delivery::Deployable, Time::from_ms(1000));
    let sensors = sensors.require(Sensor::Regions(sampling));
    let mut host = Live::new(numbers, &sensors, Some(Kind::Smaps), STALL, false).expect("smaps");
    host.watch(program.processes().to_vec());
    let begun = Instant::now();
    loop {
        let seen = seen(&mut host, program);
        if seen == expected {
            return host;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{seen:?} pages, expected {expected:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Moves base pages of a process to the other node each, and returns the outcomes.
fn exchange(host: &mut Live, pid: Pid, pages: &[(u64, NodeId)], reason: Reason) -> Vec<Outcome> {
    let mut plan = Plan::default();
    for &(page, from) in pages {
        let (task, page, size, wish) = (live::task(pid), Vpn(page), PageSize::Base, Frame::ANY);
        plan.push_move(Move { task, page, size, from, to: other(from), wish }, reason);
    }
    host.act(plan.actions());
    let mut done: Vec<Completion> = Vec::new();
    host.completions(&mut done);
    done.into_iter().map(|done| done.outcome).collect()
}

fn other(node: NodeId) -> NodeId {
    NodeId(1 - node.0)
}

/// The node of a page's run in the host's view.
fn node_in_view(host: &mut Live, page: u64) -> Option<NodeId> {
    let mut view = View::default();
    host.observe(&mut view, &mut Vec::new());
    view.regions.iter().find(|region| region.start == Vpn(page)).map(|region| region.node)
}

fn mapped_by_both(program: &str) {
    let program = Program::start(program, &[]);
    let (pid, page) = (program.first, program.page);
    // The accesses of the second process count, though the pages are the first one's. With writes, by samples
    // of the pages; without them, page by page.
    watching(&program, RegionSampling { writes: true, ..SAMPLING }, [PAGES, PAGES, 0]);
    let mut host = watching(&program, SAMPLING, [PAGES, PAGES, 0]);
    assert_eq!(host.owner_of(&program.processes()[1], Vpn(page)), (pid, Vpn(page)));
    // Pages of both, of the first, of the second.
    let places = [0, 1, 100, PAGES / 2 - 1, PAGES / 2, PAGES - 1].map(|at| page + at);
    let nodes = |pid| nodes_of(pid, &places).expect("nodes");
    let is_resident = |pid| nodes(pid).iter().map(Option::is_some).collect::<Vec<bool>>();
    assert_eq!(is_resident(program.first), [true, true, true, true, false, false]);
    assert_eq!(is_resident(program.second), [true, true, false, false, true, true]);
    let of_any = || nodes(program.first).into_iter().zip(nodes(program.second));
    let on: Vec<NodeId> = of_any().map(|(first, second)| first.or(second).expect("it is resident")).collect();
    let alone = Mover::new(STALL).move_pages(pid, &[(page, other(on[0]))]);
    assert_eq!(alone, [Err(Refusal::NotAllowed)], "a page of both");
    let pages: Vec<(u64, NodeId)> = places.into_iter().zip(on.iter().copied()).collect();
    let requested = exchange(&mut host, pid, &pages[..1], Reason::Request);
    assert_eq!(requested, [Outcome::Refused(Refusal::NotAllowed)]);
    assert_eq!(exchange(&mut host, pid, &pages, Reason::Hot), [Outcome::MADE; 6]);
    let moved: Vec<Option<NodeId>> = of_any().map(|(first, second)| first.or(second)).collect();
    assert_eq!(moved, on.iter().map(|&on| Some(other(on))).collect::<Vec<_>>());
    assert_eq!(node_in_view(&mut host, page), Some(other(on[0])));
    program.end();
}

fn shared_since_a_fork(program: &str) {
    let program = Program::start(program, &["forked"]);
    let (pid, page) = (program.first, program.page);
    // The second process reads pages of the first half, which are the first one's, and has written the rest.
    let expected = [PAGES, PAGES / 2, PAGES / 2];
    watching(&program, RegionSampling { writes: true, ..SAMPLING }, expected);
    let mut host = watching(&program, SAMPLING, expected);
    let second = &program.processes()[1];
    let owner_of = |at| host.owner_of(second, Vpn(page + at)).0;
    assert_eq!([0, PAGES / 2 - 1, PAGES / 2].map(owner_of), [pid, pid, program.second]);
    let places = [0, PAGES / 2 - 1, PAGES / 2].map(|at| page + at);
    let nodes = |pid| nodes_of(pid, &places).expect("nodes").into_iter().map(|node| node.expect("resident"));
    let pages: Vec<(u64, NodeId)> = places.into_iter().zip(nodes(pid)).collect();
    let alone = Mover::new(STALL).move_pages(pid, &[(page, other(pages[0].1))]);
    assert_eq!(alone, [Err(Refusal::NotAllowed)], "a page of both");
    let requested = exchange(&mut host, pid, &pages[..1], Reason::Request);
    assert_eq!(requested, [Outcome::Refused(Refusal::NotAllowed)]);
    let before: Vec<NodeId> = nodes(program.second).collect();
    assert_eq!(exchange(&mut host, pid, &pages, Reason::Hot), [Outcome::MADE; 3]);
    let moved: Vec<NodeId> = pages.iter().map(|&(_, from)| other(from)).collect();
    assert_eq!(nodes(pid).collect::<Vec<_>>(), moved);
    let of_second = [moved[0], moved[1], before[2]];
    assert_eq!(nodes(program.second).collect::<Vec<_>>(), of_second, "the last one is its own");
    assert_eq!(node_in_view(&mut host, page), Some(moved[0]));
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
