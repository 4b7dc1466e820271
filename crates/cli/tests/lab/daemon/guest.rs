//! Requests to a daemon in the guest, from its owner and from other users.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use memtide_core::NodeId;
use memtide_linux::movers::{Mover, nodes_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::lab::IN_GUEST;

const OWNER: u32 = 1000;
const OTHER: u32 = 1001;
const TARGET_BYTES: usize = 64 << 20;

/// Keeps memory until its input ends, then verifies it.
pub fn target() {
    let memory: Vec<u64> = (0..TARGET_BYTES as u64 / 8).collect();
    println!("ready");
    let mut end = String::new();
    std::io::stdin().read_to_string(&mut end).expect("the end of input");
    assert!((0..).zip(&memory).all(|(at, &word)| at == word), "a page changed its content");
}

/// Waits until a condition is met, for up to 20 s.
fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(20), "timed out: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn memtide(uid: u32, arguments: &str) -> Output {
    let mut command = Command::new("/bin/memtide");
    command.args(arguments.split(' ')).uid(uid).gid(uid).output().expect("memtide runs")
}

fn query(uid: u32, arguments: &str) -> Value {
    let output = memtide(uid, &format!("{arguments} -o json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Requests that a daemon refuses.
fn refused(uid: u32, arguments: &str, why: &str) {
    fails(uid, arguments, 1, why);
}

fn fails(uid: u32, arguments: &str, code: i32, why: &str) {
    let output = memtide(uid, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(code) && error.contains(why), "{arguments} by {uid}: {error}");
}

/// A child killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon with a file size limit in blocks of 512 bytes.
fn daemon(config: &str, log: &str, blocks: u64) -> Running {
    fs::write("/second.toml", config).expect("a configuration");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec memtide daemon --config /second.toml");
    let file = File::create(log).expect("a file");
    let daemon = Command::new("sh").args(["-c", &script]).stderr(file).spawn();
    let mut daemon = Running(daemon.expect("a daemon"));
    wait("the daemon listens", || {
        let ended = daemon.0.try_wait().expect("its status");
        assert!(ended.is_none(), "{}", fs::read_to_string(log).unwrap_or_default());
        memtide(0, "status").status.success()
    });
    daemon
}

fn reload(daemon: &Running, config: &str) {
    fs::write("/second.toml", config).expect("a configuration");
    kill_process(Pid::from_child(&daemon.0), Signal::HUP).expect("a signal");
}

/// Migrates the target: all of its memory moves, but pages of files that other processes map too. Returns the
/// seconds.
fn migrates(uid: u32, arguments: &str) -> f64 {
    let result = query(uid, arguments);
    let outcomes = result["outcomes"].as_array().expect("outcomes");
    let pages = |outcome: &Value| outcome["pages"].as_u64().expect("a number");
    assert_eq!(result["found_pages"].as_u64(), Some(outcomes.iter().map(pages).sum()), "{result}");
    assert!(
        outcomes[0]["outcome"] == "moved" && pages(&outcomes[0]) >= TARGET_BYTES as u64 / 4096,
        "{result}"
    );
    assert!(outcomes[1..].iter().all(|outcome| outcome["outcome"] == "not-allowed"), "{result}");
    result["seconds"].as_f64().expect("a number")
}

pub fn daemon_survives_requests_reload_and_kill() {
    let dry_run = "policy = 'hot-cold:epoch_ms=500:cold_epochs=1'\njournal = '/second'\n\
                   dry_run = true\nwatch.uid = 1000\n";
    let idle = "policy = 'hot-cold:epoch_ms=500:cold_epochs=10000'\njournal = '/second'\nwatch.uid = 1000\n";
    let mut target = Command::new(env::current_exe().expect("this test"));
    target.args(env::args().skip(1)).env(IN_GUEST, "target").uid(OWNER).gid(OWNER);
    let target = target.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
    let mut target = Running(target);
    let pid = target.0.id();
    let mut printed = Vec::new();
    let mut output = target.0.stdout.take().expect("its output");
    wait("the target starts", || {
        let mut part = [0; 256];
        let read = output.read(&mut part).expect("its output");
        printed.extend(&part[..read]);
        String::from_utf8_lossy(&printed).contains("ready")
    });

    let log = || fs::read_to_string("/second.log").expect("the daemon's messages");
    let running = daemon(dry_run, "/second.log", 1 << 20);
    wait("the dry run prints a move", || log().contains("would move "));
    let (own, other) = (query(OWNER, "status"), query(OTHER, "status"));
    assert_eq!(own["processes"][0]["pid"], pid, "{own}");
    assert!(own["dry_run"] == true && own["journal"] == "/second" && own["monitor"] == "damon", "{own}");
    assert!(own["processes"][0]["node0_pages"].as_u64() > Some(8000), "{own}");
    assert_eq!(other["processes"].as_array().map(Vec::len), Some(0), "{other}");
    let migrate = move |from: u8, to: u8| format!("migrate {pid} --from {from} --to {to} --max-rate 100");
    refused(OTHER, &migrate(0, 1), "dry run");
    refused(OTHER, &format!("why {pid} 0x1000"), "not yours");
    refused(OTHER, "pause", "only root");

    reload(&running, "policy = 'hot-cold'\nmax_rate_mbps = 0\n");
    wait("the invalid configuration is refused", || {
        log().contains("the old configuration stays in effect: ")
    });
    assert_eq!(query(0, "status")["dry_run"], true);
    reload(&running, idle);
    wait("the configuration is reloaded", || log().contains("configuration reloaded"));
    wait("the configuration takes effect", || query(0, "status")["dry_run"] == false);

    refused(OTHER, &migrate(0, 1), "not yours");
    refused(OTHER, "migrate 1 --from 0 --to 1", "not yours");
    fails(OWNER, &migrate(0, 0), 2, "both name node 0");
    let mover = thread::spawn(move || migrates(OWNER, &migrate(0, 1)));
    let mut replies = 0;
    while !mover.is_finished() {
        let start = Instant::now();
        query(0, "status");
        assert!(start.elapsed() < Duration::from_secs(2), "a migration blocks other requests");
        replies += 1;
    }
    let seconds = mover.join().expect("a migration");
    assert!(replies > 0 && seconds > 0.5, "{replies} replies in {seconds} s");

    // A killed daemon's journal replays, and its stale socket does not block commands.
    drop(running);
    let replayed = query(0, "replay /second");
    let parts = replayed["parts"].as_array().expect("parts");
    assert!(parts.len() == 2 && parts.iter().all(|part| part["differing_epochs"] == 0), "{replayed}");
    assert!(
        parts[0]["epochs"].as_u64() > Some(1) && parts[0]["recorded_pages"].as_u64() > Some(0),
        "{replayed}"
    );
    refused(OTHER, &format!("migrate {pid} --from 1 --to 0"), "not yours");
    migrates(OWNER, &format!("migrate {pid} --from 1 --to 0 --max-rate 10000"));

    // kdamond outlives a killed daemon; the next daemon takes it over.
    let state = fs::read_to_string("/sys/kernel/mm/damon/admin/kdamonds/0/state");
    assert_eq!(state.expect("DAMON").trim(), "on");
    full_journal_ends(idle);
    target.0.stdin.take().expect("its input").write_all(b"end").expect("the target");
    assert!(target.0.wait().expect("its status").success(), "a page of the target changed");
}

/// The journal cannot grow: it ends, the daemon continues.
fn full_journal_ends(config: &str) {
    let running = daemon(&config.replace("/second", "/third"), "/third.log", 16);
    let log = || fs::read_to_string("/third.log").expect("the daemon's messages");
    wait("the journal is full", || log().contains("the journal ends here, the daemon continues"));
    let before = query(0, "status");
    assert_eq!(before["monitor"], "damon", "{before}");
    let doctor = String::from_utf8_lossy(&memtide(0, "doctor -o csv").stdout).into_owned();
    assert!(doctor.contains("memtide's daemon, process") && !doctor.contains("kill "), "{doctor}");
    wait("the epochs continue", || query(0, "status")["epochs"].as_u64() > before["epochs"].as_u64());
    assert!(before["journal"].is_null() && before["troubles"][0]["trouble"].is_string(), "{before}");
    assert_eq!(log().matches("the journal ends here").count(), 1);
    let replayed = query(0, "replay /third");
    assert_eq!(replayed["parts"][0]["differing_epochs"], 0, "{replayed}");
    own_memory_returns(&running);
}

/// What the daemon has on slow memory returns to the fastest tier.
fn own_memory_returns(daemon: &Running) {
    let pid = Pid::from_child(&daemon.0);
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.0.id())).expect("its mappings");
    let heap = maps.lines().find(|line| line.ends_with("[heap]")).expect("a heap");
    let mut ends = heap.split([' ', '-']).map(|end| u64::from_str_radix(end, 16).expect("an address") / 4096);
    let pages: Vec<u64> = (ends.next().expect("a start")..ends.next().expect("an end")).collect();
    let slow: Vec<_> = pages.iter().map(|&page| (page, NodeId(1))).collect();
    Mover::new(Duration::from_secs(1)).move_pages(pid, &slow);
    let on_slow = || {
        let nodes = nodes_of(pid, &pages).expect("the nodes of its heap");
        nodes.into_iter().flatten().filter(|&node| node == NodeId(1)).count()
    };
    assert!(on_slow() > 50, "the heap could not be moved to slow memory");
    wait("the daemon's heap is on fast memory", || on_slow() == 0);
}
