//! What moving and watching cost, on a guest whose instructions take 8 ns each: so that its times are instructions.

mod support;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use memtide_core::epoch::Host;
use memtide_core::policy::{Delivery, Move, Needs, Reason};
use memtide_core::{NodeId, PageSize, Time, Vpn};
use memtide_linux::live::{self, Live};
use memtide_linux::processes;
use support::{MEMTIDE, lab_is_here};

const NS_PER_INSTRUCTION: f64 = 8.0;

/// Instructions a second of a core that costs are held against: one a cycle at 2 GHz.
const CORE_HZ: f64 = 2e9;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Set in the guest, to what is to be done there.
const ROLE: &str = "MEMTIDE_TEST_ROLE";

/// Runs one of this file's tests in a guest, in a role, under a shell line in which `$TEST` runs it.
fn in_guest(machine: &[&str], test: &str, line: &str, files: &[&str]) -> String {
    let me = env::current_exe().expect("this test's file").display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script").display().to_string();
    let text = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\nTEST='{me} --exact {test} --nocapture --test-threads 1'\n{line}\n"
    );
    fs::write(&script, text).expect("a script");
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "--vcpus", "1", "--timing", "off"]).args(machine);
    for file in [&*format!("{MEMTIDE}:/bin/memtide"), &me, &script].iter().chain(files) {
        command.args(["--file", file]);
    }
    let run = command.args(["--", "sh", &script]).output().expect("memtide runs");
    let (out, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{out}\n{told}");
    assert!(run.status.success(), "{out}\n{told}");
    out.into_owned()
}

/// The number after a word.
fn figure(out: &str, word: &str) -> f64 {
    let line =
        out.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("no {word}: {out}"));
    line.trim().parse().unwrap_or_else(|_| panic!("{word}: {line}"))
}

/// What is moved, page by page in batches of 512, by a program that does nothing else.
const BARE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    enum { PAGES = 16384, BATCH = 512 };
    static void *pages[PAGES];
    static int nodes[PAGES], status[PAGES];
    char *all = mmap(0, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(all, PAGES * 4096ul, MADV_NOHUGEPAGE);
    memset(all, 1, PAGES * 4096ul);
    for (int i = 0; i < PAGES; i++) pages[i] = all + i * 4096ul, nodes[i] = 1;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < PAGES; i += BATCH)
        if (syscall(SYS_move_pages, 0, (long)BATCH, pages + i, nodes + i, status + i, 2)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    for (int i = 0; i < PAGES; i++) if (status[i] != 1) return 2;
    printf("bare %f\n", ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) / PAGES);
    return 0;
}
"#;
const MOVED_PAGES: usize = 16384;

#[test]
fn a_move_costs_about_a_tenth_more_than_move_pages_alone() {
    const NAME: &str = "a_move_costs_about_a_tenth_more_than_move_pages_alone";
    if env::var_os(ROLE).is_some() {
        return moves();
    }
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let bare = compile(folder.path(), BARE);
    let line = format!("{bare} && {bare} && {ROLE}=move $TEST");
    let out = in_guest(&["--machine", "hinuma"], NAME, &line, &[&bare]);
    let [bare, ours] = ["bare ", "moved "].map(|word| figure(&out, word) / NS_PER_INSTRUCTION);
    println!("instructions a page: {bare:.0} by move_pages alone, {ours:.0} by memtide: {:.3}", ours / bare);
    // 1.10 is the aim; 1.095 to 1.104 were measured.
    assert!(ours <= 1.12 * bare, "{ours} instructions a page, {bare} by move_pages alone");
}

fn compile(folder: &Path, source: &str) -> String {
    let (file, program) = (folder.join("bare.c"), folder.join("bare").display().to_string());
    fs::write(&file, source).expect("a source");
    let made = Command::new("cc").args(["-O2", "-o", &program]).arg(file).status().expect("cc runs");
    assert!(made.success());
    program
}

/// Moves as the daemon does.
fn moves() {
    let mut memory = vec![0u8; (MOVED_PAGES + 1024) * PAGE];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let first = memory.as_ptr() as u64 / PAGE as u64 + 512;
    let needs = Needs {
        hint_faults: false,
        regions: None,
        delivery: Delivery::Deployable,
        epoch: Time::from_ms(1000),
    };
    let nodes = vec![NodeId(0), NodeId(1)];
    let mut host =
        Live::new(nodes, &needs, None, Duration::from_secs(1), false).expect("no monitor is needed");
    let me = rustix::process::getpid();
    // Processes are watched once they have lived for a while.
    thread::sleep(SETTLE);
    host.watch(vec![processes::one(me).expect("this process")]);
    let page = |page| Move {
        task: live::task(me),
        page: Vpn(first + page),
        size: PageSize::Base,
        from: NodeId(0),
        to: NodeId(1),
        reason: Reason::Hot,
    };
    let wanted: Vec<Move> = (0..MOVED_PAGES as u64).map(page).collect();
    let begin = Instant::now();
    let results = host.act(&wanted);
    let took = begin.elapsed();
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, 0, "of {MOVED_PAGES} pages; the first: {:?}", results[0]);
    println!("\nmoved {}", took.as_nanos() as f64 / MOVED_PAGES as f64);
}

/// How long watching is measured, in s, after so many to settle.
const SETTLE: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(20);

#[test]
fn watching_costs_grow_less_than_memory_does() {
    const NAME: &str = "watching_costs_grow_less_than_memory_does";
    match env::var(ROLE).as_deref() {
        Ok("watch") => return watch(NAME),
        Ok(mib) => return hog(mib.parse().expect("MiB")),
        Err(_) => {}
    }
    if !lab_is_here() {
        return;
    }
    let out = in_guest(&["--machine", "hinuma", "--scale", "5"], NAME, &format!("{ROLE}=watch $TEST"), &[]);
    let share = |word: &str| figure(&out, word) / NS_PER_INSTRUCTION / CORE_HZ;
    let [idle, one, four] = ["idle ns a second ", "1024 ns a second ", "4096 ns a second "].map(share);
    let [small, large] = ["1024 KiB ", "4096 KiB "].map(|word| figure(&out, word) / 1024.0);
    // What it costs to watch memory goes by the regions that it is watched in, of which there are never more than so many.
    let regions = figure(&out, "4096 regions ");
    let cap = hot_cold_regions();
    let most = four * (cap / regions).max(1.0);
    println!(
        "of a core of {CORE_HZ} instructions a second: idle {:.4} %, 1 GiB {:.3} %, 4 GiB {:.3} % in {regions} regions, any size at \
         most {:.3} % in {cap}; MiB of memory: {small:.1}, {large:.1}",
        100.0 * idle,
        100.0 * one,
        100.0 * four,
        100.0 * most
    );
    assert!(idle < 0.001, "idle {idle} of a core");
    assert!(four < 2.0 * one && large < 2.0 * small, "{one}, {four}; {small}, {large} MiB");
    assert!(regions > 0.3 * cap && most < 0.02, "{most} of a core for {cap} regions by that of {regions}");
    assert!(large < 64.0, "{large} MiB");
}

/// Regions that `hot-cold` has memory watched in at most.
fn hot_cold_regions() -> f64 {
    let machine =
        memtide_core::machine::Machine::parse("hinuma.toml", include_str!("../../../machines/hinuma.toml"));
    let policy = memtide_policies::parse("local+hot-cold").expect("a policy");
    let needs = policy.migration(&machine.expect("a machine")).needs();
    f64::from(needs.regions.expect("regions").regions_max)
}

/// Uses every second of 128 equal parts of its memory.
fn hog(mib: usize) {
    let mut memory = vec![1u8; mib * MIB];
    loop {
        for part in memory.chunks_mut(mib * MIB / 128).step_by(2) {
            part.iter_mut().step_by(PAGE).for_each(|byte| *byte = 2);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Measures the daemon when it has nothing to watch, 1 GiB and 4 GiB.
fn watch(name: &str) {
    fs::write("/daemon.toml", "dry_run = true\n").expect("a configuration");
    let mut daemon = Command::new("memtide");
    let mut daemon = daemon.args(["daemon", "--config", "/daemon.toml"]).spawn().expect("memtide daemon");
    measure(&daemon, "idle");
    for mib in ["1024", "4096"] {
        let test = env::current_exe().expect("this test's file");
        let mut hog = Command::new(test);
        hog.args(["--exact", name, "--nocapture"]).env(ROLE, mib);
        let mut hog = hog.spawn().expect("a process with memory");
        measure(&daemon, mib);
        hog.kill().and_then(|()| hog.wait()).expect("it ends");
    }
    daemon.kill().and_then(|()| daemon.wait()).expect("it ends");
}

/// The processor time that the daemon and the kernel's threads for it take, and the daemon's memory.
fn measure(daemon: &Child, what: &str) {
    thread::sleep(SETTLE);
    let (begin, before) = (Instant::now(), run_ns(daemon));
    thread::sleep(MEASURED);
    let ns = (run_ns(daemon) - before) as f64 / begin.elapsed().as_secs_f64();
    println!("\n{what} ns a second {ns}");
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("a daemon");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix(" kB"));
    println!("{what} KiB {}", peak.expect("a peak").trim());
    println!("{what} regions {}", regions());
}

/// Regions that DAMON watches: the most that are seen for an epoch and more, for the daemon has them made anew now and then.
fn regions() -> usize {
    let all = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0/tried_regions";
    let seen = |_| {
        thread::sleep(Duration::from_millis(100));
        fs::read_dir(all).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()).count()
    };
    (0..30).map(seen).max().unwrap_or(0)
}

/// Nanoseconds that the daemon and DAMON's threads have run.
fn run_ns(daemon: &Child) -> u64 {
    let mut all = 0;
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let folder = process.path();
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        if process.file_name() == *daemon.id().to_string() || name.starts_with("kdamond") {
            all += threads_ns(&folder);
        }
    }
    all
}

fn threads_ns(process: &Path) -> u64 {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let ns = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.map(ns).sum()
}
