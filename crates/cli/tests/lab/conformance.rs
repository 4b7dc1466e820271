//! The live host passes the conformance suite on a real kernel: the same script as for the simulator and the
//! fake host.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, thread};

use memtide_core::conformance::script::{AREA_PAGES, Area, EPOCHS, Phase, SCRIPT, Step, UNPLUG};
use memtide_core::conformance::{ConformancePolicy, Layout, Log, Placed};
use memtide_core::epoch::{Host, Limits, PolicyRunner};
use memtide_core::policy::{Completion, Event, Migration, Planned, View};
use memtide_core::{CpuId, NodeId, PAGE_BYTES, Time, VirtAddr};
use memtide_linux::live::Live;
use memtide_linux::processes::{self, Process};
use memtide_linux::topology::{Numbers, memory_of};
use rustix::process::Pid;

use super::nodes::Lab;
use crate::support::{MEMTIDE, lab, lab_is_here};

/// Role of this program in the guest: `host`, or the script's `program`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

const EPOCH: Time = Time::from_ms(400);

/// Base pages of the large area beyond the slow node's free memory.
const EXCESS_PAGES: u64 = 2000;

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A machine whose slow node is small.
fn machine_file(folder: &Path) -> String {
    let hinuma = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/hinuma.toml");
    let text = fs::read_to_string(hinuma).expect("a machine file");
    let parts: Vec<&str> = text.split("capacity_mib = 32768").collect();
    let [head, dram, nvm] = parts[..] else { panic!("two nodes of 32 GiB") };
    let file = folder.join("small.toml");
    let small = format!("{head}capacity_mib = 98304{dram}capacity_mib = 24576{nvm}");
    fs::write(&file, small).expect("a file");
    file.display().to_string()
}

#[test]
fn live_host_conforms() {
    let name = "conformance::live_host_conforms";
    match role().as_deref() {
        Some("program") => return program(),
        None if lab_is_here() => {
            let folder = tempfile::tempdir().expect("a folder");
            let machine = machine_file(folder.path());
            let role = format!("{ROLE}=host");
            let options =
                ["--machine", &machine, "--scale", "96", "--vcpus", "1", "--timing", "off", "--env", &role];
            let test = lab::this_test();
            let (out, stderr) =
                lab::script(&options, &[&test], &format!("{test} {name} --exact --nocapture"));
            assert!(out.contains("1 passed"), "{out}\n{stderr}");
            return;
        }
        None => return,
        Some(_) => {}
    }
    conform(SCRIPT, name, NodeId(1), |_| panic!("no unplug in this script"));
}

#[test]
fn live_host_conforms_across_node_unplug() {
    let name = "conformance::live_host_conforms_across_node_unplug";
    match role().as_deref() {
        Some("program") => return program(),
        None => return hotplug_from_host(name),
        Some(_) => {}
    }
    println!("\nready");
    let cxl = loop {
        thread::sleep(Duration::from_millis(200));
        let plugged =
            |node: &u8| memory_of(NodeId(*node)).is_some_and(|memory| memory.total_kib == 512 << 10);
        if let Some(node) = (1..4).find(plugged) {
            break NodeId(node);
        }
    };
    conform(UNPLUG, name, cxl, |node| {
        println!("\nunplug");
        while memory_of(node).is_some_and(|memory| memory.total_kib > 0) {
            thread::sleep(Duration::from_millis(200));
        }
    });
    println!("\nconforms");
}

/// Plugs a node in once the guest is ready, and unplugs it on the guest's request.
fn hotplug_from_host(name: &str) {
    let Some(lab) = Lab::new() else { return };
    let (test, role) = (lab::this_test(), format!("{ROLE}=host"));
    let options = ["--timing", "off", "--absent", "cxl,dram1", "--file", MEMTIDE, "--env", &role];
    let mut guest = lab.start(&options, &[&test, name, "--exact", "--nocapture"]);
    guest.wait_for_line("ready");
    lab.succeeds(&["node", "add", "cxl"]);
    guest.wait_for_line("unplug");
    lab.succeeds(&["node", "remove", "cxl"]);
    guest.wait_for_line("conforms");
    guest.finish();
}

/// A live host that, if `due`, kills the program between a plan and its moves.
struct EndsTaskInFlight {
    live: Live,
    program: Scripted,
    due: bool,
}

impl Host for EndsTaskInFlight {
    fn now(&self) -> Time {
        self.live.now()
    }

    fn observe(&mut self, view: &mut View, events: &mut Vec<Event>) {
        self.live.observe(view, events);
    }

    fn act(&mut self, actions: &[Planned]) {
        if self.due && !actions.is_empty() {
            self.program.end();
        }
        self.live.act(actions);
    }

    fn completions(&mut self, done: &mut Vec<Completion>) {
        self.live.completions(done);
    }
}

/// Runs a script on this system, with slow node `slow`.
fn conform(script: &'static [Phase], name: &str, slow: NodeId, unplug: impl Fn(NodeId)) {
    // Missing files need no change.
    let _ = fs::write("/proc/sys/kernel/numa_balancing", "0");
    let _ = fs::write("/sys/module/damon_stat/parameters/enabled", "N");
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").expect("a kernel with huge pages");
    let free_kib = memory_of(slow).expect("the slow node").free_kib;
    let program = Scripted::start(name, free_kib / 4 + EXCESS_PAGES);
    let layout = program.layout;
    let (policy, log) = ConformancePolicy::new(script, layout, EPOCH);
    let numbers = Numbers { nodes: vec![NodeId(0), slow], cpus: vec![CpuId(0); 64], scan_pages: 8192 };
    let live = Live::new(numbers, &policy.sensors(), None, Duration::from_millis(20), false);
    let mut host = EndsTaskInFlight { live: live.expect("the policy's sensors"), program, due: false };
    let mut runner = PolicyRunner::new(Box::new(policy), Limits::default());
    // Processes are watched only after a minimum age.
    thread::sleep(Duration::from_secs(4));
    for phase in script {
        for step in phase.steps {
            match step {
                Step::Fill(area) => host.program.request("fill", *area),
                Step::Unmap(area) => host.program.request("unmap", *area),
                Step::UnplugSlow => unplug(slow),
                Step::EndUnderway => host.due = true,
            }
        }
        run_phase(&mut runner, &mut host);
    }
    check(&log, script, &layout, &mut host.live);
}

fn run_phase(runner: &mut PolicyRunner, host: &mut EndsTaskInFlight) {
    for _ in 0..EPOCHS {
        thread::sleep(Duration::from_millis(EPOCH.0 / Time::from_ms(1).0));
        host.live.watch(host.program.process().into_iter().collect());
        runner.epoch(host, &mut ());
    }
}

fn check(log: &Log, script: &[Phase], layout: &Layout, live: &mut Live) {
    let troubles = live.take_troubles();
    log.check(script, layout).unwrap_or_else(|error| panic!("{error}\n{troubles:?}"));
}

/// The script's program, a separate process.
struct Scripted {
    child: Child,
    requests: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
    layout: Layout,
}

impl Scripted {
    fn start(name: &str, large_pages: u64) -> Scripted {
        let mut command = Command::new(lab::this_test());
        command
            .args([name, "--exact", "--nocapture"])
            .env(ROLE, "program")
            .env("LARGE", large_pages.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let requests = child.stdin.take().expect("a pipe");
        let mut replies = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut starts = replies.by_ref().find_map(|line| {
            let line = line.expect("a line");
            let starts = line.split_once("areas ")?.1.split(' ');
            Some(starts.map(|start| start.parse().expect("an address")).collect::<Vec<u64>>())
        });
        let starts = starts.take().expect("addresses of its areas");
        let pages = [AREA_PAGES, AREA_PAGES, large_pages];
        let [hot, idle, large] =
            [0, 1, 2].map(|at: usize| Placed { start: VirtAddr(starts[at]), pages: pages[at] });
        let nowhere = Placed { start: VirtAddr(1 << 40), pages: AREA_PAGES };
        Scripted { child, requests, replies, layout: Layout { areas: [hot, idle, large, nowhere] } }
    }

    fn request(&mut self, what: &str, area: Area) {
        writeln!(self.requests, "{what} {}", area as usize).expect("the program runs");
        let reply = self.replies.next().expect("the program runs").expect("a line");
        assert_eq!(reply, "done");
    }

    /// The process, unless it has exited.
    fn process(&self) -> Option<Process> {
        processes::one(Pid::from_raw(self.child.id().cast_signed()).expect("a pid"))
    }

    fn end(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the program exits");
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        // The program may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory mapped at the start and touched on request.
fn reserve(pages: u64) -> (Vec<u8>, u64) {
    let memory: Vec<u8> = Vec::with_capacity(((pages + 1) * PAGE_BYTES) as usize);
    let start = (memory.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
    (memory, start)
}

/// The program: executes requests, and reads the hot area until it exits.
fn program() {
    let large_pages = env::var("LARGE").expect("its size").parse().expect("a number");
    let mut areas: Vec<Option<(Vec<u8>, u64)>> =
        [AREA_PAGES, AREA_PAGES, large_pages].map(|pages| Some(reserve(pages))).into();
    let starts: Vec<String> = areas.iter().flatten().map(|(_, start)| start.to_string()).collect();
    println!("\nareas {}", starts.join(" "));
    let hot: Arc<Mutex<Vec<u8>>> = Arc::default();
    let reading = Arc::new(AtomicBool::new(true));
    let reader = thread::spawn({
        let (hot, reading) = (Arc::clone(&hot), Arc::clone(&reading));
        move || read(&hot, &reading)
    });
    for request in std::io::stdin().lines().map_while(Result::ok) {
        let (what, area) = request.split_once(' ').expect("a request");
        let area: usize = area.parse().expect("an area");
        let (mut memory, start) = areas[area].take().expect("a mapped area");
        if what == "fill" {
            let from = (start - memory.as_ptr() as u64) as usize;
            memory.resize(memory.capacity(), 1);
            assert!(from < PAGE_BYTES as usize);
            match area {
                0 => *hot.lock().expect("the reader") = memory,
                _ => areas[area] = Some((memory, start)),
            }
        } else {
            drop(memory);
        }
        println!("done");
    }
    reading.store(false, Ordering::Relaxed);
    reader.join().expect("a reader");
}

fn read(hot: &Mutex<Vec<u8>>, reading: &AtomicBool) {
    while reading.load(Ordering::Relaxed) {
        let sum: u64 =
            hot.lock().expect("the main thread").iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
        std::hint::black_box(sum);
        lab::flush_tlb();
        thread::sleep(Duration::from_millis(2));
    }
}
