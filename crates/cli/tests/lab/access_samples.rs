//! The rings of perf_event_open on a real kernel: page faults in place of a processor's misses.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use memtide_core::{NodeId, Time};
use memtide_linux::processes::{self, Process};
use memtide_linux::sensors::access_samples::Sampled;
use memtide_linux::sensors::access_samples::perf::Perf;
use memtide_linux::sensors::access_samples::pmu::SampledEvent;
use rustix::process::Pid;

use crate::support::{lab, lab_is_here};

const TEST: &str = "faults_are_sampled_with_process_address_and_node";

/// Set in the guest: to `samples`, or in the program that is sampled, to `faults`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

const PAGE: u64 = 4096;
/// Pages that the program touches first, and then.
const PAGES: [u64; 2] = [1000, 4000];
/// Faults per sample of the second pages.
const PERIOD: u32 = 10;

#[test]
fn faults_are_sampled_with_process_address_and_node() {
    match env::var(ROLE).as_deref() {
        Ok("samples") => return samples(),
        Ok("faults") => return faults(),
        _ => {}
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let script = format!(
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled\n{ROLE}=samples {test} {TEST} --nocapture"
    );
    let options = ["--machine", "ddr5-cxl", "--vcpus", "2", "--timing", "off"];
    let (out, stderr) = lab::script(&options, &[&test], &script);
    assert!(out.contains("1 passed"), "{out}\n{stderr}");
}

/// Touches pages at each line of its input, and prints where they begin.
fn faults() {
    let mut told = std::io::stdin().lines();
    for pages in PAGES {
        // The heap would serve a small block from memory that it has.
        let mut memory: Vec<u8> = Vec::with_capacity((pages * PAGE) as usize);
        println!("\nat {} {}", std::process::id(), memory.as_ptr() as u64 / PAGE + 1);
        told.next().expect("a line").expect("a line");
        memory.resize((pages * PAGE) as usize, 1);
        println!("\ndone");
        told.next().expect("a line").expect("a line");
    }
}

struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Program {
    /// Starts it on CPU 1, with its memory on this node.
    fn on(node: u8) -> Program {
        let (test, node) = (lab::this_test(), node.to_string());
        let mut child = Command::new("memtide")
            .args(["run", "-p", "local", "-C", "1", "-m", &node, "--"])
            .args([&test, TEST, "--nocapture"])
            .env(ROLE, "faults")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("memtide runs");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Program { child, lines }
    }

    fn next(&mut self, prefix: &str) -> String {
        let mut rest = self.lines.by_ref().map(|line| line.expect("a line"));
        rest.find_map(|line| Some(line.strip_prefix(prefix)?.to_owned())).expect("the program's line")
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").expect("it reads");
    }

    /// Its process, and the first page that it touches next.
    fn begun(&mut self) -> (Process, u64) {
        let line = self.next("at ");
        let (pid, page) = line.split_once(' ').expect("two numbers");
        let pid = Pid::from_raw(pid.parse().expect("a pid")).expect("a pid");
        (processes::one(pid).expect("it lives"), page.parse().expect("a page"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn samples() {
    const NODE: u8 = 2;
    assert!(SampledEvent::misses().is_err(), "the emulated processor samples nothing");
    let mut perf = Perf::open(SampledEvent::page_faults(), 1).expect("rings");
    let mut program = Program::on(NODE);
    let now = Time::from_ms(5);
    let mut next = |perf: &mut Perf, pages: u64| {
        let (process, first) = program.begun();
        let read =
            |perf: &mut Perf| perf.samples(std::slice::from_ref(&process), &Some, now).expect("samples");
        read(perf);
        program.tell();
        program.next("done");
        let sampled = read(perf);
        program.tell();
        let last = first + pages - 1;
        let within = |sampled: &Sampled| (first..last).contains(&(sampled.address.0 / PAGE));
        let sampled: Vec<Sampled> = sampled.into_iter().filter(within).collect();
        for one in &sampled {
            assert_eq!((one.pid, one.node, one.latency), (process.pid, NodeId(NODE), None), "{one:?}");
            assert!(one.thread.0 >= process.pid.as_raw_nonzero().get().cast_unsigned(), "{one:?}");
        }
        sampled
    };
    let all = next(&mut perf, PAGES[0]);
    let touched: BTreeSet<u64> = all.iter().map(|one| one.address.0 / PAGE).collect();
    assert_eq!((touched.len() as u64, all.len()), (PAGES[0] - 1, touched.len()), "every page once");
    assert!(all.iter().all(|one| one.period == 1));
    assert_eq!(perf.set_period(PERIOD).expect("a period"), PERIOD);
    let some = next(&mut perf, PAGES[1]);
    let expected = PAGES[1] as usize / PERIOD as usize;
    assert!(some.len().abs_diff(expected) <= 2, "{} of {} faults", some.len(), PAGES[1]);
    assert!(some.iter().all(|one| one.period == PERIOD));
}
