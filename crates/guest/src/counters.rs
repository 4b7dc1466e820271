//! Kernel counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use memtide_lab_protocol::agent::{KernelCounters, KernelNodeCounters};

const NODES: &str = "/sys/devices/system/node";

/// A node's folder in sysfs.
pub fn folders() -> Vec<PathBuf> {
    (0..).map(|node| PathBuf::from(format!("{NODES}/node{node}"))).take_while(|path| path.exists()).collect()
}

/// The current counters.
pub fn now() -> KernelCounters {
    let events = named(&fs::read_to_string("/proc/vmstat").unwrap_or_default()).into_iter();
    let gauge = |name: &str| name.starts_with("nr_");
    let nodes = folders().into_iter().map(|folder| {
        let counts = named(&fs::read_to_string(folder.join("numastat")).unwrap_or_default());
        let count = |name: &str| counts.get(name).copied().unwrap_or(0);
        let meminfo = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
        KernelNodeCounters {
            total_kib: kib(&meminfo, "MemTotal:"),
            allocations: count("numa_hit") + count("numa_miss"),
        }
    });
    KernelCounters { events: events.filter(|(name, _)| !gauge(name)).collect(), nodes: nodes.collect() }
}

/// The deltas between two times.
pub fn between(before: &KernelCounters, after: &KernelCounters) -> KernelCounters {
    let rose = |(name, count): (&String, &u64)| {
        let by = count.saturating_sub(before.event(name));
        (by > 0).then(|| (name.clone(), by))
    };
    let nodes = after.nodes.iter().zip(&before.nodes).map(|(after, before)| KernelNodeCounters {
        allocations: after.allocations.saturating_sub(before.allocations),
        ..*after
    });
    KernelCounters { events: after.events.iter().filter_map(rose).collect(), nodes: nodes.collect() }
}

/// A figure of `/sys/devices/system/node/nodeN/meminfo`: lines are `Node N NAME: FIGURE kB`.
pub fn kib(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.split_once(name));
    line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn named(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}
