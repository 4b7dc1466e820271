//! A hot set that was filled last, after fast memory was full of huge pages: `relative-heat` moves it to fast
//! memory, in one piece or scattered.

use std::cmp::Ordering;
use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use memtide_lab_protocol::mark::{BEGIN, END, WARM_UP, mark};
use serde_json::Value;

use crate::support::lab::IN_GUEST;
use crate::support::{MEMTIDE, lab, lab_is_here};

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comparison/two-tier.toml");

/// Words of a piece of 256 KiB, and the number of pieces: a fifth of them are hot.
const PIECE: usize = (256 << 10) / 8;
const PIECES: usize = 1150;
const HOT: usize = PIECES / 5;

/// Time for the policy to act, and time after that in which traffic is measured.
const SETTLING: Duration = Duration::from_secs(12);
const MEASURED: Duration = Duration::from_secs(1);

/// Updates per burst, and the time between two bursts.
const BURST: usize = 10_000;
const PAUSE: Duration = Duration::from_millis(4);

#[test]
fn hot_set_filled_last_moves_to_fast_memory_that_is_full_of_huge_pages() {
    if let Some(scale) = scale_in_guest() {
        return in_guest(PIECES, (PIECES - HOT..PIECES).collect(), SETTLING / scale);
    }
    let test = "hot_set_filled_last_moves_to_fast_memory_that_is_full_of_huge_pages";
    let Some(parsed) = compared(test, SUBJECTS, (1, 240)) else { return };
    let share = |row| lab::traffic_share(&parsed, row, ["dram", "cxl"]);
    assert!(share(0) < 0.3, "traffic of dram under first touch: {}", share(0));
    assert!(share(1) > 0.8, "traffic of dram with relative-heat: {}", share(1));
}

/// Pieces are smaller than huge pages and than DAMON's regions: access samples alone find them.
#[test]
fn scattered_hot_set_moves_to_fast_memory_in_few_moves() {
    if let Some(scale) = scale_in_guest() {
        return in_guest(PIECES, (0..PIECES).step_by(5).collect(), SETTLING / scale);
    }
    let test = "scattered_hot_set_moves_to_fast_memory_in_few_moves";
    let Some(parsed) = compared(test, SUBJECTS, (1, 240)) else { return };
    let share = |row| lab::traffic_share(&parsed, row, ["dram", "cxl"]);
    assert!(share(1) > share(0) + 0.1, "traffic of dram: {} and {}", share(0), share(1));
    assert!(share(1) > 0.75, "traffic of dram with relative-heat: {}", share(1));
    let moved = parsed["subjects"][1]["migrated_pages"].as_u64().expect("a number");
    let hot = (HOT * PIECE * 8 / 4096) as u64;
    assert!((hot / 10..hot * 3).contains(&moved), "{moved} pages moved for a hot set of {hot}");
}

/// With half the memory a program takes half the time, and the subjects act twice as often. NUMA balancing is
/// not among them: the share that it reaches is another one in each run of this program, 0.05 to 0.56.
#[test]
fn ranking_is_the_same_at_half_the_time_scale() {
    if let Some(scale) = scale_in_guest() {
        let pieces = PIECES * 8 / scale as usize;
        return in_guest(pieces, (pieces - pieces / 5..pieces).collect(), SETTLING / scale);
    }
    let mut rankings = Vec::new();
    // The kernel's memory, of more than 100 MiB, is not divided.
    for (scale, dram_mib) in [(8, 240), (4, 384)] {
        let test = "ranking_is_the_same_at_half_the_time_scale";
        let subjects = "default,weighted,memtide:local+relative-heat";
        let Some(parsed) = compared(test, subjects, (scale, dram_mib)) else { return };
        let shares = [0, 1, 2].map(|row| lab::traffic_share(&parsed, row, ["dram", "cxl"]));
        println!("traffic of dram at a time scale of {scale}: {shares:?}");
        assert!(shares[2] > 0.8, "relative-heat acts within the divided time: {shares:?}");
        rankings.push(ranking(&shares));
    }
    assert_eq!(rankings[0], rankings[1]);
}

/// The order of each pair of subjects by the traffic that their fastest memory has; shares that are near each
/// other are equal.
fn ranking(shares: &[f64]) -> Vec<Ordering> {
    const NEAR: f64 = 0.1;
    let order = |a: f64, b: f64| if (a - b).abs() < NEAR { Ordering::Equal } else { a.total_cmp(&b) };
    let pairs = (0..shares.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.map(|(a, b)| order(shares[a], shares[b])).collect()
}

const SUBJECTS: &str = "default,memtide:local+relative-heat";

/// What subjects make of a test's program; `None` without the lab.
fn compared(test: &str, subjects: &str, (scale, dram_mib): (u32, u32)) -> Option<Value> {
    if !lab_is_here() {
        return None;
    }
    let (this, variable) = (lab::this_test(), format!("{IN_GUEST}={scale}"));
    let dram = format!("node.dram.capacity_mib={dram_mib}");
    let output = Command::new(MEMTIDE)
        .args(["lab", "compare", "-o", "json", "--machine", MACHINE, "--set", &dram])
        .args(["--vcpus", "2", "--timing", "on", "--region", "marks", "--env", &variable])
        .args(["--time-scale", &scale.to_string(), "--subjects", subjects, "--", &this, test])
        .output()
        .expect("memtide runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let parsed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{parsed:#}");
    Some(parsed)
}

/// The time scale, for a test that runs in the guest.
fn scale_in_guest() -> Option<u32> {
    env::var(IN_GUEST).ok()?.parse().ok()
}

/// Updates random words, nine tenths of them in hot pieces, which are filled last.
fn in_guest(pieces: usize, hot: Vec<usize>, settling: Duration) {
    let mut memory = vec![0u64; pieces * PIECE];
    let (last, first): (Vec<usize>, Vec<usize>) = (0..pieces).partition(|piece| hot.contains(piece));
    first.iter().chain(&last).for_each(|piece| memory[piece * PIECE..][..PIECE].fill(1));
    let mut random = 88_172_645_463_325_252_u64;
    let mut update_for = |time: Duration| {
        let begin = Instant::now();
        while begin.elapsed() < time {
            for _ in 0..BURST {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let word = (random >> 8) as usize;
                let piece = word / PIECE;
                let piece = if random % 10 < 9 { hot[piece % hot.len()] } else { piece % pieces };
                memory[piece * PIECE + word % PIECE] += 1;
            }
            thread::sleep(PAUSE);
        }
    };
    mark(WARM_UP, 0);
    update_for(settling);
    mark(BEGIN, 0);
    update_for(MEASURED);
    mark(END, 0);
    assert!(memory.iter().sum::<u64>() > memory.len() as u64);
}
