//! The monitors of `memtide daemon` on a real kernel.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::support::{lab, lab_is_here};
use memtide_core::epoch::Host;
use memtide_core::policy::{Delivery, RegionSampling, Regions, Sensor, Sensors, View};
use memtide_core::{NodeId, Time};
use memtide_linux::live::Live;
use memtide_linux::movers::nodes_of;
use memtide_linux::processes::{self, Process};
use memtide_linux::sensors::regions::{Damon, Found, Kind, RegionMonitor, Smaps, SoftDirty};
use memtide_linux::topology::Numbers;
use rustix::process::Pid;

const MIB: usize = 1 << 20;

/// Role of a process in the guest: a test's name, or `idle`.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

const SAMPLING: RegionSampling = RegionSampling {
    sampling: Time::from_ms(5),
    aggregation: Time::from_ms(100),
    regions_max: 500,
    writes: true,
    budget_bp: None,
};

/// Runs a test of this file in a guest, with its name as its role.
fn in_guest(name: &str, timing: &str) {
    let test = lab::this_test();
    let (out, stderr) = guest(name, timing, &format!("{test} {name} --nocapture"));
    assert!(out.contains("1 passed"), "{out}\n{stderr}");
}

/// Runs a script in a guest, with this test in this role. Returns its output.
fn guest(role: &str, timing: &str, script: &str) -> (String, String) {
    let (role, kernel) = (format!("{ROLE}={role}"), env::var("MEMTIDE_TEST_KERNEL"));
    let mut options = vec!["--machine", "hinuma", "--scale", "96", "--vcpus", "1", "--timing", timing];
    options.extend(["--env", &role]);
    options.extend(kernel.iter().flat_map(|kernel| ["--kernel", kernel]));
    lab::script(&options, &[&lab::this_test()], script)
}

fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// A process with idle memory; killed on drop.
struct Idle(Child);

impl Idle {
    fn start(name: &str) -> Idle {
        let child = Command::new(lab::this_test()).args([name]).env(ROLE, "idle").spawn();
        Idle(child.expect("a process"))
    }

    fn process(&self) -> Process {
        let pid = Pid::from_raw(self.0.id().cast_signed()).expect("a pid");
        processes::one(pid).expect("a process that lives")
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

fn idle() {
    let memory = vec![1u8; 48 * MIB];
    thread::sleep(Duration::from_secs(600));
    drop(memory);
}

fn sleep_s(seconds: f64) {
    thread::sleep(Duration::from_secs_f64(seconds));
}

fn free_damon() {
    // Missing files need no change.
    let _ = fs::write("/proc/sys/kernel/numa_balancing", "0");
    let _ = fs::write("/sys/module/damon_stat/parameters/enabled", "N");
}

fn without_huge_pages() {
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").expect("a kernel with huge pages");
}

/// Median age of pages, in aggregation intervals.
fn median_age(found: &[Found]) -> u32 {
    let mut ages: Vec<(u32, u64)> = found.iter().map(|found| (found.age, found.pages)).collect();
    ages.sort_unstable();
    let half = ages.iter().map(|(_, pages)| pages).sum::<u64>() / 2;
    let mut before = 0;
    let median = ages.iter().find(|(_, pages)| {
        before += pages;
        before > half
    });
    median.expect("regions").0
}

#[test]
fn damon_keeps_ages_across_process_changes() {
    let name = "damon_keeps_ages_across_process_changes";
    match role().as_deref() {
        Some("idle") => return idle(),
        None if lab_is_here() => return in_guest(name, "off"),
        None => return,
        Some(_) => {}
    }
    free_damon();
    let [first, second, third] = [(); 3].map(|()| Idle::start(name));
    sleep_s(1.0);
    let [a, b, c] = [&first, &second, &third].map(Idle::process);
    Damon::check().expect("DAMON");
    let mut damon = Damon::new(&SAMPLING);
    let mut sample = |processes: &[&Process], after_s: f64| {
        let processes: Vec<Process> = processes.iter().map(|&process| process.clone()).collect();
        damon.watch(&processes).expect("DAMON's targets");
        sleep_s(after_s);
        let found = damon.read().expect("regions");
        let pages: Vec<u64> = found.iter().map(|found| found.iter().map(|found| found.pages).sum()).collect();
        assert!(pages.iter().all(|&pages| pages >= (48 * MIB / 4096) as u64), "{pages:?}");
        let ages: Vec<u32> = found.iter().map(|found| median_age(found)).collect();
        println!("ages {ages:?}");
        ages
    };
    let ages = sample(&[&a, &b], 5.0);
    assert!(ages.iter().all(|age| (25..60).contains(age)), "{ages:?}");
    // An interval takes somewhat longer than 100 ms.
    let mut known = ages[1];
    let mut grown_to = |age: u32, intervals: u32| age >= std::mem::replace(&mut known, age) + intervals;
    let ages = sample(&[&b, &c], 2.0);
    // A new one has at most 20 intervals after 2 s.
    assert!(grown_to(ages[0], 15) && ages[1] <= 20, "the second process stays, the third is new: {ages:?}");
    drop(first);
    let ages = sample(&[&b], 2.0);
    assert!(grown_to(ages[0], 15), "{ages:?}");
    let fourth = Idle::start(name);
    sleep_s(1.0);
    let ages = sample(&[&b, &c, &fourth.process()], 2.0);
    assert!(grown_to(ages[0], 15) && ages[1] <= 20 && ages[2] <= 20, "{ages:?}");
    drop(second);
    let kept = sample(&[&c, &fourth.process()], 2.0);
    let are_kept = kept.iter().zip(&ages[1..]).all(|(age, before)| *age >= before + 10);
    assert!(are_kept, "ages before: {ages:?}, after: {kept:?}");
}

/// Sizes of a process's read, written and idle parts.
const PARTS: [usize; 3] = [24 * MIB, 24 * MIB, 48 * MIB];

/// Prints its parts' addresses, and accesses them every few ms.
fn three_parts() {
    let [mut read, mut written, idle] = PARTS.map(|bytes| vec![1u8; bytes]);
    let first = |part: &[u8]| part.as_ptr() as u64 / 4096 + 1;
    println!("parts {} {} {}", first(&read), first(&written), first(&idle));
    let mut sum = 0u64;
    loop {
        sum += read.iter().step_by(4096).map(|&byte| u64::from(byte)).sum::<u64>();
        std::hint::black_box((&mut read, sum));
        written.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        thread::sleep(Duration::from_millis(7));
    }
}

/// Pages of each part by how they were seen: long idle, idle, read, written.
type Classes = [[u64; 4]; 3];

fn classify(seen: &Regions, starts: [u64; 3]) -> Classes {
    let mut classes = Classes::default();
    for region in seen.iter() {
        let class = match (region.reads, region.writes) {
            (0, 0) if region.age >= 20 => 0,
            (0 | 1, 0) => 1,
            (_, 0) => 2,
            _ => 3,
        };
        let pages = region.start.0..region.start.0 + region.pages * region.size.base_pages();
        for (part, (start, bytes)) in starts.into_iter().zip(PARTS).enumerate() {
            let end = start + bytes as u64 / 4096 - 2;
            classes[part][class] += pages.end.min(end).saturating_sub(pages.start.max(start));
        }
    }
    classes
}

#[test]
fn read_written_and_idle_pages_are_distinguished() {
    let name = "read_written_and_idle_pages_are_distinguished";
    match role().as_deref() {
        Some("idle") => return three_parts(),
        None if lab_is_here() => return in_guest(name, "on"),
        None => return,
        Some(_) => {}
    }
    free_damon();
    without_huge_pages();
    let mut command = Command::new(lab::this_test());
    command.args([name, "--nocapture"]).env(ROLE, "idle").stdout(Stdio::piped());
    let mut child = Idle(command.spawn().expect("a process"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let starts = lines.find_map(|line| {
        let line = line.expect("a line");
        let words: Option<Vec<u64>> =
            line.split_once("parts ")?.1.split(' ').map(|word| word.parse().ok()).collect();
        words?.try_into().ok()
    });
    let starts: [u64; 3] = starts.expect("addresses of its parts");
    let sensors = Sensors::new(Delivery::Deployable, Time::from_ms(1000)).require(Sensor::Regions(SAMPLING));
    let numbers = Numbers { nodes: vec![NodeId(0), NodeId(1)], cpus: Vec::new(), scan_pages: 0 };
    let mut live =
        Live::new(numbers, &sensors, Some(Kind::Damon), Duration::from_millis(20), true).expect("DAMON");
    sleep_s(2.5);
    let samples = (0..8).map(|_| {
        live.watch(vec![child.process()]);
        sleep_s(1.0);
        let mut view = View::default();
        live.observe(&mut view, &mut Vec::new());
        assert_eq!(live.take_troubles(), Vec::<String>::new());
        let classes = classify(&view.regions, starts);
        println!("{} regions: {classes:?}", view.regions.len());
        classes
    });
    let samples: Vec<Classes> = samples.skip(4).collect();
    for classes in &samples {
        let [read, written, idle] = classes;
        assert_eq!((read[0], written[0]), (0, 0), "accessed pages look idle: {classes:?}");
        let correct = [read[2], written[3], idle[0] + idle[1]];
        for (correct, bytes) in correct.into_iter().zip(PARTS) {
            let pages = bytes as u64 / 4096;
            assert!(correct * 10 >= pages * 9, "{correct} of {pages} pages: {classes:?}");
        }
    }
    assert_eq!(samples.len(), 4);
}

/// Sizes of the next test's accessed and idle mappings.
const USED: usize = 16 * MIB;
const UNUSED: usize = 48 * MIB;

/// Accesses a mapping for a while, then prints the share of it and of another one on fast memory.
fn two_mappings() {
    let mut used = vec![1u8; USED];
    // The guard page of a thread's stack prevents the kernel from merging both mappings.
    let between = thread::spawn(thread::park);
    let unused = vec![1u8; UNUSED];
    let begin = Instant::now();
    let both = |used: &[u8]| [used, unused.as_slice()].map(fast_share);
    println!("initial {:?}", both(&used));
    while begin.elapsed() < Duration::from_secs(40) {
        used.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        sleep_s(0.007);
    }
    println!("final {:?}", both(&used));
    between.thread().unpark();
    between.join().expect("a thread");
}

/// Share of memory on node 0.
fn fast_share(memory: &[u8]) -> f64 {
    let first = memory.as_ptr() as u64 / 4096 + 1;
    let pages: Vec<u64> = (first..first + memory.len() as u64 / 4096 - 1).collect();
    let nodes = nodes_of(rustix::process::getpid(), &pages).expect("nodes");
    nodes.iter().filter(|node| **node == Some(NodeId(0))).count() as f64 / nodes.len() as f64
}

#[test]
fn without_damon_whole_mappings_are_promoted() {
    let name = "without_damon_whole_mappings_are_promoted";
    if role().is_some() {
        return two_mappings();
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let use_damon = "S=/sys/module/damon_stat/parameters/enabled; [ ! -e $S ] || echo N > $S\n\
        D=/sys/kernel/mm/damon/admin/kdamonds; echo 1 > $D/nr_kdamonds; echo 1 > $D/0/contexts/nr_contexts\n\
        echo vaddr > $D/0/contexts/0/operations; echo 1 > $D/0/contexts/0/targets/nr_targets\n\
        echo $$ > $D/0/contexts/0/targets/0/pid_target; echo on > $D/0/state || exit 1\n";
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\n{use_damon}memtide daemon & daemon=$!\n\
         memtide run -p interleave -- {test} {name} --nocapture || exit 1\n\
         memtide status -o json\nkill $daemon; wait $daemon; echo daemon exit status $?\n"
    );
    let (out, stderr) = guest(name, "off", &script);
    assert!(
        out.contains("daemon exit status 0") && out.contains("\"monitor\": \"smaps\""),
        "{out}\n{stderr}"
    );
    assert!(stderr.contains("memory is monitored by smaps (damon: another program uses DAMON"), "{stderr}");
    let share = |when: &str| -> Option<[f64; 2]> {
        let line = out.lines().find_map(|line| line.split_once(when))?.1;
        let shares: Result<Vec<f64>, _> = line.trim_matches(['[', ']']).split(", ").map(str::parse).collect();
        shares.ok()?.try_into().ok()
    };
    let first = share("initial ").expect("initial shares");
    assert!(first.iter().all(|share| (0.3..0.7).contains(share)), "{first:?}");
    let [used, unused] = share("final ").expect("final shares");
    assert!(
        used > 0.95 && unused < first[1] + 0.05,
        "{used} of the used mapping and {unused} of the other are on fast memory\n{out}\n{stderr}"
    );
}

/// Bounds from docs/live.md, in thousands of instructions per 4 KiB of memory.
const SMAPS: f64 = 1.2;
const CLEAR: f64 = 0.1;
const FAULT: f64 = 2.0;

#[test]
fn monitoring_cost_without_damon() {
    let name = "monitoring_cost_without_damon";
    match role() {
        None if lab_is_here() => return in_guest(name, "off"),
        None => return,
        Some(_) => without_huge_pages(),
    }
    let mut memory = vec![1u8; 64 * MIB];
    let me = processes::one(rustix::process::getpid()).expect("this process");
    // Without the model, the guest's clock advances 8 ns per instruction.
    let pages = (64 * MIB / 4096) as f64;
    let thousands = |start: Instant| start.elapsed().as_nanos() as f64 / 8.0 / 1000.0 / pages;
    let mut touch = || {
        let start = Instant::now();
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
        thousands(start)
    };
    let plain = touch();
    let mut smaps = Smaps::new(&SAMPLING);
    smaps.watch(std::slice::from_ref(&me)).expect("this process");
    let start = Instant::now();
    smaps.read().expect("mappings");
    let reading = thousands(start) - SAMPLING.sampling.as_ns() / 8.0 / 1000.0 / pages;
    touch();
    let mut writes = SoftDirty::default();
    let start = Instant::now();
    writes.written(&me, &[]).expect("cleared bits");
    let clear = thousands(start);
    let fault = touch() - plain;
    println!("reading smaps {reading:.2}, clearing soft-dirty bits {clear:.2}, the next write {fault:.2}");
    assert!(reading < SMAPS && clear < CLEAR && (0.5..FAULT).contains(&fault), "{reading} {clear} {fault}");
}
