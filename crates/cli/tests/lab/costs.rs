//! Cost of migration and monitoring, in a guest at 8 ns per instruction: times count instructions.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::support::{lab, lab_is_here};
use memtide_core::epoch::Host;
use memtide_core::policy::{Delivery, Frame, Move, Outcome, Plan, Reason, Refusal, Sensors};
use memtide_core::{NodeId, PageSize, Time, Vpn};
use memtide_linux::live::{self, Live};
use memtide_linux::processes;
use memtide_linux::topology::Numbers;

const NS_PER_INSTRUCTION: f64 = 8.0;

/// Instructions per second of the reference core: one per cycle at 2 GHz.
const CORE_HZ: f64 = 2e9;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Role in the guest.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

/// Runs a test of this file in a guest by a shell line, in which `$TEST` runs it.
fn in_guest(machine: &[&str], test: &str, line: &str, files: &[&str]) -> String {
    let test_binary = lab::this_test();
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\n\
         TEST='{test_binary} {test} --nocapture --test-threads 1'\n{line}\n"
    );
    let options = [&["--vcpus", "1", "--timing", "off"], machine].concat();
    lab::script(&options, &[&[&*test_binary], files].concat(), &script).0
}

/// The number after a prefix.
fn figure(out: &str, word: &str) -> f64 {
    let line =
        out.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("no {word}: {out}"));
    line.trim().parse().unwrap_or_else(|_| panic!("{word}: {line}"))
}

/// Pages moved by `move_pages.c`.
const MOVED_PAGES: usize = 16384;

#[test]
fn move_costs_at_most_tenth_above_move_pages() {
    const NAME: &str = "move_costs_at_most_tenth_above_move_pages";
    if env::var_os(ROLE).is_some() {
        return moves();
    }
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = lab::compile(folder.path(), "move_pages");
    let line =
        format!("echo never > /sys/kernel/mm/transparent_hugepage/enabled\n{program} && {ROLE}=move $TEST");
    // At this scale fast memory holds all pages beside the guest's files, which grow with the build.
    let out = in_guest(&["--machine", "hinuma", "--scale", "10"], NAME, &line, &[&program]);
    let [bare, ours] = ["move_pages ", "moved "].map(|word| figure(&out, word) / NS_PER_INSTRUCTION);
    println!(
        "instructions per page: {bare:.0} by move_pages alone, {ours:.0} by memtide: {:.3}",
        ours / bare
    );
    assert!(ours <= 1.10 * bare, "{ours} instructions per page, {bare} by move_pages alone");
}

/// Adjacent pages moved only by the second plan.
const PAGES_AFTER: u64 = 2000;

/// Moves pages like the daemon.
fn moves() {
    let mut memory = vec![0u8; (MOVED_PAGES + 1024 + PAGES_AFTER as usize) * PAGE];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let first = memory.as_ptr() as u64 / PAGE as u64 + 512;
    let sensors = Sensors::new(Delivery::Deployable, Time::from_ms(1000));
    let numbers = Numbers { nodes: vec![NodeId(0), NodeId(1)], cpus: Vec::new(), scan_pages: 0 };
    let mut host =
        Live::new(numbers, &sensors, None, Duration::from_secs(1), false).expect("no sensor is needed");
    let me = rustix::process::getpid();
    // Processes are watched only after a minimum age.
    thread::sleep(SETTLE);
    host.watch(vec![processes::one(me).expect("this process")]);
    let page = |page| Move {
        task: live::task(me),
        page: Vpn(first + page),
        size: PageSize::Base,
        from: NodeId(0),
        to: NodeId(1),
        wish: Frame::ANY,
    };
    let mut plan = Plan::default();
    (0..MOVED_PAGES as u64).for_each(|number| _ = plan.push_move(page(number), Reason::Hot));
    let mut done = Vec::with_capacity(MOVED_PAGES);
    let begin = Instant::now();
    host.act(plan.actions());
    host.completions(&mut done);
    let elapsed = begin.elapsed();
    let failed = done.iter().filter(|completion| !completion.outcome.is_made()).count();
    assert_eq!((failed, done.len()), (0, MOVED_PAGES), "first outcome: {:?}", done[0]);
    println!("\nmoved {}", elapsed.as_nanos() as f64 / MOVED_PAGES as f64);
    // Pages already in place are distinguished, also in a mixed batch.
    (0..PAGES_AFTER).for_each(|number| _ = plan.push_move(page(MOVED_PAGES as u64 + number), Reason::Hot));
    done.clear();
    host.act(plan.actions());
    host.completions(&mut done);
    let (there, after) = done.split_at(MOVED_PAGES);
    assert!(there.iter().all(|completion| completion.outcome == Outcome::Refused(Refusal::AlreadyThere)));
    let failed = after.iter().filter(|completion| !completion.outcome.is_made()).count();
    assert_eq!((failed, after.len() as u64), (0, PAGES_AFTER), "last outcome: {:?}", after.last());
}

/// Measured and settling time of monitoring, in s.
const SETTLE: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(20);

#[test]
fn monitoring_cost_grows_sublinearly_with_memory() {
    const NAME: &str = "monitoring_cost_grows_sublinearly_with_memory";
    match env::var(ROLE).as_deref() {
        Ok("watch") => return watch(NAME),
        Ok(mib) => return use_memory(mib.parse().expect("MiB")),
        Err(_) => {}
    }
    if !lab_is_here() {
        return;
    }
    let out = in_guest(&["--machine", "hinuma", "--scale", "5"], NAME, &format!("{ROLE}=watch $TEST"), &[]);
    let of = |figures: &str, word: &str| figure(&out, &format!("{figures} {word} "));
    let share = |case| of(case, "ns per second") / NS_PER_INSTRUCTION / CORE_HZ;
    let [idle, one, four, many] = ["idle", "1024", "4096", "many"].map(share);
    let regions = ["1024", "4096", "many"].map(|case| of(case, "regions"));
    let by_kernel =
        ["1024", "4096", "many"].map(|case| of(case, "by the kernel") / of(case, "ns per second"));
    let [small, large] = ["1024", "4096"].map(|case| of(case, "KiB") / 1024.0);
    // The cost above an idle daemon depends on the number of regions, which is bounded.
    let cap = f64::from(hot_cold_regions());
    let most = idle + (many - idle) * cap / regions[2];
    println!(
        "share of a core of {CORE_HZ} instructions/s: idle {:.4} %; 1 GiB {:.3} %, 4 GiB {:.3} %, above the \
         region limit {:.3} %, in {regions:.0?} regions; any size at most {:.3} %, in {cap}; by the kernel \
         thread: {by_kernel:.2?}; MiB of memory: {small:.1}, {large:.1}",
        100.0 * idle,
        100.0 * one,
        100.0 * four,
        100.0 * many,
        100.0 * most
    );
    assert!(idle < 0.001, "idle {idle} of a core");
    assert!(four < 2.0 * one && large < 2.0 * small, "{one}, {four}; {small}, {large} MiB");
    assert!(regions[2] > 0.7 * cap, "{regions:?} of {cap} regions");
    assert!(most < 0.01, "{most} of a core for {cap} regions, from {regions:?}");
    assert!(large < 64.0, "{large} MiB");
}

/// Maximum number of regions of `hot-cold`.
fn hot_cold_regions() -> u32 {
    let machine = memtide_core::machine::Machine::parse(
        "hinuma.toml",
        include_str!("../../../../machines/hinuma.toml"),
    );
    let policy = memtide_policies::parse("local+hot-cold").expect("a policy");
    let sensors = policy.migration(&machine.expect("a machine")).sensors();
    sensors.regions().expect("regions").regions_max
}

/// Accesses every other 8 MiB of its memory.
fn use_memory(mib: usize) {
    let mut memory = vec![1u8; mib * MIB];
    loop {
        for part in memory.chunks_mut(8 * MIB).step_by(2) {
            part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 2);
        }
        lab::flush_tlb();
        thread::sleep(Duration::from_millis(100));
    }
}

/// Measures the daemon idle, with 1 GiB, with 4 GiB, and with 1 GiB in twice as many regions.
fn watch(name: &str) {
    let allowed = hot_cold_regions();
    let mut daemon = start(allowed);
    measure(&daemon, "idle", allowed);
    for mib in ["1024", "4096"] {
        watch_process(&daemon, name, mib, mib, allowed);
    }
    daemon.kill().and_then(|()| daemon.wait()).expect("the daemon exits");
    let mut daemon = start(2 * allowed);
    watch_process(&daemon, name, "1024", "many", 2 * allowed);
    daemon.kill().and_then(|()| daemon.wait()).expect("the daemon exits");
}

fn start(regions: u32) -> Child {
    let config = format!("dry_run = true\npolicy = 'hot-cold:regions={regions}'\n");
    fs::write("/daemon.toml", config).expect("a configuration");
    Command::new("memtide").args(["daemon", "--config", "/daemon.toml"]).spawn().expect("memtide daemon")
}

fn watch_process(daemon: &Child, name: &str, mib: &str, case: &str, allowed: u32) {
    let mut process = Command::new(lab::this_test());
    process.args([name, "--nocapture"]).env(ROLE, mib);
    let mut process = process.spawn().expect("a process with memory");
    measure(daemon, case, allowed);
    process.kill().and_then(|()| process.wait()).expect("the process exits");
}

/// CPU time of the daemon and its kernel threads, and the daemon's memory.
fn measure(daemon: &Child, what: &str, allowed: u32) {
    thread::sleep(SETTLE);
    trace("1");
    let (begin, before) = (Instant::now(), run_ns(daemon));
    thread::sleep(MEASURED);
    let after = run_ns(daemon);
    let per_second = |part: usize| spent(&before[part], &after[part]) as f64 / begin.elapsed().as_secs_f64();
    trace("0");
    println!("\n{what} ns per second {}", per_second(0) + per_second(1));
    println!("{what} by the kernel {}", per_second(1));
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("a daemon");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix(" kB"));
    println!("{what} KiB {}", peak.expect("a peak").trim());
    println!("{what} regions {}", regions(allowed.into()));
}

const TRACING: &str = "/sys/kernel/tracing";

/// Enables or disables DAMON's tracepoint.
fn trace(on: &str) {
    let file = Path::new(TRACING).join("events/damon/damon_aggregated/enable");
    fs::write(file, on).expect("tracefs");
}

/// Mean number of DAMON's regions in the trace buffer, given the maximum; clears the buffer. Linux traces
/// regions before it splits each into two, which it does if the result stays within the maximum
/// (`kdamond_split_regions` in mm/damon/core.c).
fn regions(allowed: f64) -> f64 {
    let file = Path::new(TRACING).join("trace");
    let trace = fs::read_to_string(&file).expect("the trace buffer");
    fs::write(file, "").expect("an empty trace buffer");
    // One line per region.
    let counts = trace.lines().filter_map(|line| line.split_once("nr_regions=")?.1.split(' ').next());
    let counts: Vec<f64> = counts.map(|count| count.parse().expect("a number")).collect();
    let intervals: f64 = counts.iter().map(|count| 1.0 / count).sum();
    let split = |count: &f64| if 2.0 * count <= allowed { 2.0 } else { 1.0 };
    counts.iter().map(split).sum::<f64>() / intervals.max(1.0)
}

/// CPU times of threads by their ids, in ns.
type ThreadTimes = BTreeMap<String, u64>;

/// CPU times of the threads of the daemon and of DAMON.
fn run_ns(daemon: &Child) -> [ThreadTimes; 2] {
    let mut all = [ThreadTimes::new(), ThreadTimes::new()];
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let folder = process.path();
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if process.file_name() == *daemon.id().to_string() {
            all[0].extend(threads_ns(&folder));
        } else if name.starts_with("kdamond") {
            all[1].extend(threads_ns(&folder));
        }
    }
    all
}

fn threads_ns(process: &Path) -> ThreadTimes {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let ns = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ns = text.split(' ').next()?.parse().ok()?;
        Some((thread.file_name().to_string_lossy().into_owned(), ns))
    };
    threads.filter_map(ns).collect()
}

/// CPU time between two readings, in ns; all of that of new threads.
fn spent(before: &ThreadTimes, after: &ThreadTimes) -> u64 {
    after.iter().map(|(thread, ns)| ns.saturating_sub(before.get(thread).copied().unwrap_or(0))).sum()
}
