//! A hot set that was filled last, after fast memory was full of huge pages: `relative-heat` moves it to fast
//! memory.

use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use serde_json::Value;

use crate::support::lab::IN_GUEST;
use crate::support::{MEMTIDE, lab, lab_is_here};

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comparison/two-tier.toml");

const WORDS: usize = (288 << 20) / 8;
/// The hot set, the last part of all words.
const HOT: usize = WORDS / 5;

/// Time for the policy to act, and time after that in which traffic is measured.
const SETTLING: Duration = Duration::from_secs(9);
const MEASURED: Duration = Duration::from_secs(1);

/// Updates per burst, and the time between two bursts.
const BURST: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(4);

#[test]
fn hot_set_filled_last_moves_to_fast_memory_that_is_full_of_huge_pages() {
    if env::var_os(IN_GUEST).is_some() {
        return in_guest();
    }
    if !lab_is_here() {
        return;
    }
    let (test, variable) = (lab::this_test(), format!("{IN_GUEST}=1"));
    let output = Command::new(MEMTIDE)
        .args(["lab", "compare", "-o", "json", "--machine", MACHINE, "--set", "node.dram.capacity_mib=240"])
        .args(["--vcpus", "2", "--timing", "on", "--region", "marks", "--env", &variable])
        .args(["--subjects", "default,memtide:local+relative-heat", "--", &test])
        .arg("hot_set_filled_last_moves_to_fast_memory_that_is_full_of_huge_pages")
        .output()
        .expect("memtide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let parsed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{parsed:#}");
    let share = |row| lab::traffic_share(&parsed, row, ["dram", "cxl"]);
    assert!(share(0) < 0.3, "traffic of dram under first touch: {}", share(0));
    assert!(share(1) > 0.8, "traffic of dram with relative-heat: {}", share(1));
}

/// Updates random words, nine tenths of them in the hot set.
fn in_guest() {
    let mut memory = vec![1u64; WORDS];
    let mut random = 88_172_645_463_325_252_u64;
    let mut update_for = |time: Duration| {
        let begin = Instant::now();
        while begin.elapsed() < time {
            for _ in 0..BURST {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (first, words) = if random % 10 < 9 { (WORDS - HOT, HOT) } else { (0, WORDS) };
                memory[first + (random >> 8) as usize % words] += 1;
            }
            thread::sleep(PAUSE);
        }
    };
    mark(WARM_UP, 0);
    update_for(SETTLING);
    mark(BEGIN, 0);
    update_for(MEASURED);
    mark(END, 0);
    assert!(memory.iter().sum::<u64>() > WORDS as u64);
}
