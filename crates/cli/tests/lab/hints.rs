//! `bw-migration` on a real kernel: pages follow their threads inside a tier, and the balance between tiers
//! stays.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{lab, lab_is_here};
use memtide_core::NodeId;
use memtide_linux::movers::nodes_of;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Memory of each program.
const ALL: usize = 24 * MIB;
const PAGES: u64 = (ALL / PAGE) as u64;

/// Run time.
const TIME: Duration = Duration::from_secs(16);

/// Set where a program below runs in the guest, to its name.
const NAME: &str = "MEMTIDE_TEST_PROGRAM";

const TEST: &str = "pages_follow_threads_and_tier_balance_stays";

#[test]
fn pages_follow_threads_and_tier_balance_stays() {
    if let Ok(name) = env::var(NAME) {
        return program(&name);
    }
    if !lab_is_here() {
        return;
    }
    let test = lab::this_test();
    // Nodes 0 and 1 are DRAM, each with a CPU, and node 2 is slow and attached to node 0.
    let start = |name: &str, cpu: u32, node: u32| {
        format!("{NAME}={name} memtide run -p local -C {cpu} -m {node} -- {test} {TEST} --nocapture &\n")
    };
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing\n\
         echo never > /sys/kernel/mm/transparent_hugepage/enabled\n\
         echo 'policy = \"bw-migration\"\njournal = \"/journal\"' > /memtide.toml\n\
         memtide daemon --config /memtide.toml & daemon=$!\n\
         {}a=$!\n{}b=$!\nwait $a || exit 1; wait $b || exit 1\n\
         memtide status -o json\nmemtide replay /journal || exit 1\n\
         kill $daemon; wait $daemon; echo daemon exit status $?\n",
        start("far", 1, 0),
        start("slow", 0, 2)
    );
    let (out, stderr) =
        lab::script(&["--machine", "ddr5-cxl", "--vcpus", "2", "--timing", "off"], &[&test], &script);
    assert!(out.contains("daemon exit status 0"), "{out}\n{stderr}");
    let [far, slow] = ["far", "slow"].map(|name| pages(&out, name));
    assert_eq!([far[0], slow[0]], [[PAGES, 0, 0], [0, 0, PAGES]], "pages start on the bound nodes");
    let [far, slow] = [far, slow].map(|all| *all.last().expect("pages"));
    assert!(far[1] >= PAGES * 95 / 100 && far[2] == 0, "far: {far:?} of {PAGES} pages");
    assert!(slow[2] >= PAGES - 10, "slow: {slow:?}; threshold is 10 pages");
    // They may be pages that the program does not report: its code, its stack.
    let mut answers =
        serde_json::Deserializer::from_str(&out[out.find("{\n").expect("a status")..]).into_iter();
    let status: Value = answers.next().expect("a status").expect("JSON");
    let between = |row: &&Value| (row["from"] == "node2") != (row["to"] == "node2");
    let rows = status["moved"].as_array().expect("rows").iter().filter(between);
    let pages: u64 = rows.filter_map(|row| row["pages"].as_u64()).sum();
    assert!((1..=10).contains(&pages), "{pages} pages between tiers; threshold is 10 pages");
}

/// Pages of a program on nodes 0, 1 and 2, from its output.
fn pages(out: &str, name: &str) -> Vec<[u64; 3]> {
    let reports = out.lines().filter_map(|line| Some(line.split_once(&format!("{name} has "))?.1));
    let numbers = |pages: &str| -> Vec<u64> {
        pages.split(' ').map(|pages| pages.parse().expect("a number")).collect()
    };
    reports.map(|pages| numbers(pages).try_into().expect("three nodes")).collect()
}

/// Accesses all of its memory in a loop, and prints its placement periodically.
fn program(name: &str) {
    let mut memory = vec![1u8; ALL];
    let begin = Instant::now();
    let mut last_report = begin;
    print_pages(name, &memory);
    while begin.elapsed() < TIME {
        memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
        lab::flush_tlb();
        thread::sleep(Duration::from_millis(20));
        if last_report.elapsed() > Duration::from_secs(2) {
            last_report = Instant::now();
            print_pages(name, &memory);
        }
    }
    print_pages(name, &memory);
    let first = memory[0];
    assert!(memory.iter().step_by(PAGE).all(|&byte| byte == first), "a page changed its content");
}

fn print_pages(name: &str, memory: &[u8]) {
    let first = memory.as_ptr() as u64 / PAGE as u64;
    let pages: Vec<u64> = (first..first + PAGES).collect();
    let nodes = nodes_of(rustix::process::getpid(), &pages).expect("nodes");
    let on = |node| nodes.iter().filter(|found| **found == Some(NodeId(node))).count();
    println!("\n{name} has {} {} {}", on(0), on(1), on(2));
}
