//! `memtide daemon` on a real kernel with exact accessed bits.

mod guest;

use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::support::lab::IN_GUEST;
use crate::support::{lab, lab_is_here};
use memtide_core::{Machine, NodeId};
use memtide_lab_model::prepare;
use memtide_linux::movers::nodes_of;
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Options of the guest without its clock.
const GUEST: [&str; 6] = ["--machine", "hinuma", "--scale", "48", "--vcpus", "1"];

/// Memory of the program, and its hot part: the first half is read, the second half written.
const ALL: usize = 256 * MIB;
const HOT: std::ops::Range<usize> = 176 * MIB..240 * MIB;

/// Run time, and time limit to converge; the last minute measures residual migration.
const TIME: Duration = Duration::from_secs(83);
const SETTLED: f64 = 20.0;

#[test]
fn hot_pages_are_promoted_and_cold_pages_demoted() {
    if env::var_os(IN_GUEST).is_some() {
        return in_guest();
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let name = "hot_pages_are_promoted_and_cold_pages_demoted";
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\n\
         echo 'policy = \"hot-cold\"\njournal = \"/journal\"' > /memtide.toml\n\
         memtide daemon --config /memtide.toml & daemon=$!\n\
         {IN_GUEST}=1 memtide run -p interleave -- {test} {name} --nocapture || exit 1\n\
         memtide status -o json\nmemtide replay /journal || exit 1\n\
         memtide top || exit 1\nmemtide top --journal /journal --once --width 80 || exit 1\n\
         kill $daemon; wait $daemon; echo daemon exit status $?\n"
    );
    let (out, stderr) = lab::script(&[&GUEST[..], &["--timing", "on"]].concat(), &[&test], &script);
    assert!(out.contains("daemon exit status 0"), "{out}\n{stderr}");
    let tops: Vec<&str> = out.split("memtide top  hot-cold, damon, epoch").skip(1).collect();
    // Of the running daemon, and of its journal.
    let is_whole =
        |top: &&str| top.contains("\nnode0 ") && top.contains("1 process, ") && top.contains(" cold ");
    assert!(tops.len() == 2 && tops.iter().all(is_whole), "{out}");
    let shares = |line: &str| -> Option<[f64; 4]> {
        let words: Vec<f64> =
            line.strip_prefix("at ")?.split(' ').filter_map(|word| word.parse().ok()).collect();
        words.try_into().ok()
    };
    let seen: Vec<[f64; 4]> = out.lines().filter_map(shares).collect();
    let (first, last) = (seen[0], seen[seen.len() - 1]);
    assert!((0.3..0.95).contains(&first[1]) && first[2] > 0.3, "the pages start on both nodes: {first:?}");
    let settled: Vec<[f64; 4]> = seen.into_iter().filter(|[at, ..]| *at > SETTLED).collect();
    let [from, hot, cold, migrated] = settled[0];
    // Pages misplaced at that time but not at the end: they converge, which is not residual migration.
    let converged = (64.0 * (last[1] - hot) + 192.0 * (cold - last[2])) * 256.0;
    let a_minute = (last[3] - migrated - converged.max(0.0)) / (last[0] - from) * 60.0;
    assert!(a_minute < 0.01 * (ALL / 4096) as f64, "{a_minute} pages per minute still move");
    for [at, hot, cold, _] in settled {
        let right = (64.0 * hot + 192.0 * (1.0 - cold)) / 256.0;
        assert!(
            hot > 0.95 && right > 0.95,
            "after {at} s, {hot} of the hot part and {cold} of the cold part are on fast memory"
        );
    }
    assert!(last[0] > from + 50.0 && last[1] > 0.98 && last[2] < 0.02, "{last:?}");
    let moved: Vec<u64> =
        out.lines().filter_map(|line| line.trim().strip_prefix("\"pages\": ")?.parse().ok()).collect();
    let misplaced = (1.0 - first[1]) * 64.0 + first[2] * 192.0;
    let moved_mib = moved.iter().sum::<u64>() as f64 / 256.0;
    assert!(moved_mib < 1.6 * misplaced, "{moved_mib} MiB moved for {misplaced} MiB misplaced");
}

#[test]
fn node_traffic_is_reported_where_counted() {
    if !lab_is_here() {
        return;
    }
    let script = "echo \"policy = 'hot-cold:epoch_ms=500'\" > /memtide.toml\n\
                  memtide daemon --dry-run --config /memtide.toml & daemon=$!\n\
                  memtide measure --nodes 1 --mib 24 --loads 1000 --rounds 10000 --limit 8 --reads 100% \
                  > /measured & program=$!\n\
                  sleep 7; memtide status -o json\nkill $program $daemon; wait $program; wait $daemon";
    let (out, _) = lab::script(&[&GUEST[..], &["--timing", "on"]].concat(), &["/bin/sleep"], script);
    let status: Value = serde_json::from_str(&out).expect("JSON");
    let mbps = |node: usize, key: &str| status["nodes"][node][key].as_f64().expect("a figure");
    let machine =
        Machine::parse("hinuma", include_str!("../../../../../machines/hinuma.toml")).expect("a machine");
    let due = prepare(&machine, 1).machine.nodes[1].fixed.as_ref().expect("a fixed node").read_bandwidth_mbps;
    let read = mbps(1, "read_mbps");
    assert!((0.8 * due..1.05 * due).contains(&read), "{read} MB/s of {due}");
    assert!(mbps(1, "write_mbps") < 0.05 * read && mbps(0, "read_mbps") < 0.05 * read, "{status}");
    assert!(mbps(1, "free_mib") < mbps(1, "memory_mib") - 20.0, "{status}");
}

#[test]
fn daemon_survives_requests_reload_and_kill() {
    match env::var(IN_GUEST).as_deref() {
        Ok("requests") => return guest::daemon_survives_requests_reload_and_kill(),
        Ok(_) => return guest::target(),
        Err(_) => {}
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\n\
         {IN_GUEST}=requests {test} daemon_survives_requests_reload_and_kill --nocapture"
    );
    lab::script(&[&GUEST[..], &["--timing", "off"]].concat(), &[&test], &script);
}

/// Accesses a part of its memory, and periodically prints the shares of it and of the rest on fast memory.
fn in_guest() {
    let mut memory = vec![1u8; ALL];
    let begin = Instant::now();
    let mut last_report = begin;
    let middle = (HOT.start + HOT.end) / 2;
    let mut sum = 0u64;
    while begin.elapsed() < TIME {
        sum += (HOT.start..middle).step_by(4096).map(|at| u64::from(memory[at])).sum::<u64>();
        (middle..HOT.end).step_by(4096).for_each(|at| memory[at] = 1);
        thread::sleep(Duration::from_millis(40));
        let settled = begin.elapsed().as_secs_f64() > SETTLED + 1.0;
        if last_report.elapsed() > Duration::from_secs(if settled { 10 } else { 2 }) {
            last_report = Instant::now();
            let (hot, cold) =
                (share(&memory, |page| HOT.contains(&page)), share(&memory, |page| !HOT.contains(&page)));
            println!("at {:.1} {hot:.4} {cold:.4} {}", begin.elapsed().as_secs_f64(), migrated());
        }
    }
    assert!(sum > 0);
    assert!(memory.iter().all(|&byte| byte == 1), "a page changed its content");
}

/// Pages migrated by the kernel since boot.
fn migrated() -> u64 {
    let vmstat = fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let pages = vmstat.lines().find_map(|line| line.strip_prefix("pgmigrate_success ")?.parse().ok());
    pages.expect("migrated pages")
}

/// Share of the selected pages on node 0.
fn share(memory: &[u8], chosen: impl Fn(usize) -> bool) -> f64 {
    let first = memory.as_ptr() as u64 / 4096 + 1;
    let places = (0..memory.len() - 4096).step_by(4096).filter(|&page| chosen(page));
    let pages: Vec<u64> = places.map(|page| first + page as u64 / 4096).collect();
    let nodes = nodes_of(rustix::process::getpid(), &pages).expect("nodes");
    nodes.iter().filter(|node| **node == Some(NodeId(0))).count() as f64 / nodes.len() as f64
}
