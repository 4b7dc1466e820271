//! Fidelity of the lab's guest: accessed bits match the pages that a program reads, times match the
//! simulator.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use crate::support::lab::IN_GUEST;
use crate::support::{MEMTIDE, lab_is_here};
use memtide_core::machine::bundled;
use memtide_lab_model::prepare;
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Runs a command in the lab; returns its standard output, and its standard error with the lab's figures.
fn lab(arguments: &[&str]) -> (String, String) {
    let run = Command::new(MEMTIDE).args(["lab", "run", "--timing", "on"]).args(arguments).output();
    let run = run.expect("memtide runs");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && !stderr.contains("did not follow"), "{arguments:?}: {stderr}");
    (String::from_utf8_lossy(&run.stdout).into_owned(), stderr.into_owned())
}

const ALL: usize = 96 * MIB;
const HOT: std::ops::Range<usize> = 32 * MIB..56 * MIB;

#[test]
fn damon_finds_accessed_pages() {
    if env::var_os(IN_GUEST).is_some() {
        return in_guest().expect("DAMON");
    }
    if !lab_is_here() {
        return;
    }
    let test = crate::support::lab::this_test();
    let variable = format!("{IN_GUEST}=1");
    let arguments =
        ["--machine", "ddr5-cxl", "--scale", "64", "--vcpus", "1", "--env", &variable, "--", &test];
    let these = ["damon_finds_accessed_pages", "--nocapture"];
    let stdout = lab(&[&arguments[..], &these].concat()).0;
    let line = stdout.lines().find_map(|line| line.split_once("agreement ")).expect("a result").1;
    println!("agreement {line}");
    let agreement: f64 = line.trim().parse().expect("a number");
    assert!(agreement > 0.9, "DAMON agrees on {agreement} of the pages:\n{stdout}");
}

/// Reads a part of its memory at random, and queries DAMON for it.
fn in_guest() -> io::Result<()> {
    let memory = vec![1u8; ALL];
    let start = memory.as_ptr() as usize;
    let damon = Damon::watch(std::process::id())?;
    let begin = Instant::now();
    let mut at = 88_172_645_463_325_252u64;
    let mut sum = 0u64;
    while begin.elapsed() < Duration::from_millis(600) {
        for _ in 0..2000 {
            at ^= at << 13;
            at ^= at >> 7;
            at ^= at << 17;
            // The next address depends on this load.
            sum += u64::from(memory[HOT.start + (at as usize + (sum as usize & 1)) % HOT.len()]);
        }
    }
    let regions = damon.regions()?;
    let mut agreed = 0;
    for page in (0..ALL).step_by(4096) {
        let accesses = regions.iter().find(|r| (r.0..r.1).contains(&(start + page))).map_or(0, |r| r.2);
        agreed += usize::from((accesses >= 10) == HOT.contains(&page));
    }
    println!("\nregions {regions:x?} from {start:x}");
    println!("agreement {}", agreed as f64 / (ALL / 4096) as f64);
    assert!(sum > 0);
    Ok(())
}

/// DAMON's files for one process.
struct Damon;

const DAMON: &str = "/sys/kernel/mm/damon/admin/kdamonds";

impl Damon {
    fn watch(process: u32) -> io::Result<Damon> {
        let scheme = "0/contexts/0/schemes/0";
        let context = "0/contexts/0";
        let pid = process.to_string();
        let unlimited = u32::MAX.to_string();
        let interval = |name: &str| format!("{context}/monitoring_attrs/intervals/{name}");
        let pattern = |name: &str| format!("{scheme}/access_pattern/{name}");
        let writes = [
            ("nr_kdamonds".to_owned(), "1"),
            ("0/contexts/nr_contexts".to_owned(), "1"),
            (format!("{context}/operations"), "vaddr"),
            (interval("update_us"), "200000"),
            (interval("aggr_us"), "40000"),
            (interval("sample_us"), "2000"),
            (format!("{context}/targets/nr_targets"), "1"),
            (format!("{context}/targets/0/pid_target"), &pid),
            (format!("{context}/schemes/nr_schemes"), "1"),
            (format!("{scheme}/action"), "stat"),
            (pattern("sz/max"), "1099511627776"),
            (pattern("nr_accesses/max"), &unlimited),
            (pattern("age/max"), &unlimited),
            ("0/state".to_owned(), "on"),
        ];
        for (file, text) in writes {
            fs::write(Path::new(DAMON).join(&file), text)
                .map_err(|error| io::Error::other(format!("{text} to {file}: {error}")))?;
        }
        Ok(Damon)
    }

    /// Start, end and accesses of each region.
    fn regions(&self) -> io::Result<Vec<(usize, usize, u32)>> {
        fs::write(Path::new(DAMON).join("0/state"), "update_schemes_tried_regions")?;
        let mut regions = Vec::new();
        for region in fs::read_dir(Path::new(DAMON).join("0/contexts/0/schemes/0/tried_regions"))? {
            let region = region?.path();
            let Ok(start) = fs::read_to_string(region.join("start")) else { continue };
            let number = |name: &str| {
                fs::read_to_string(region.join(name)).map(|text| text.trim().parse().unwrap_or(0))
            };
            regions.push((start.trim().parse().unwrap_or(0), number("end")?, number("nr_accesses")? as u32));
        }
        Ok(regions)
    }
}

/// Compares all bundled machines if set to `all`, or those that it names; [`TWO`] if unset.
const MACHINES: &str = "MEMTIDE_TEST_MACHINES";

/// One whose cores run out of order, and one whose cores run in order and stream writes.
const TWO: &str = "bmpm-2,pms";

/// A channel to probe: its processor has no caches.
const CHANNEL_ONLY: &str = "ddr4-2400";

/// Those whose instruction counts are the native program's, and STREAM, whose code is the closest to it.
const WORKLOADS: [&str; 6] = [
    "stream:threads=1,footprint_mib=24,iterations=2",
    "chase:footprint_mib=24,operations=1000000",
    "gups:threads=1,footprint_mib=24,operations=1000000",
    "uniform:threads=1,footprint_mib=24,operations=1000000",
    "cg:threads=1,footprint_mib=24",
    "pagerank:threads=1,footprint_mib=24",
];

#[test]
fn guest_times_match_simulator() {
    if !lab_is_here() {
        return;
    }
    let wanted = env::var(MACHINES).unwrap_or_else(|_| TWO.to_owned());
    let names: Vec<&str> = match &*wanted {
        "all" => bundled::names().into_iter().filter(|name| *name != CHANNEL_ONLY).collect(),
        names => names.split(',').collect(),
    };
    let mut apart = Vec::new();
    for (name, workload) in names.iter().flat_map(|name| WORKLOADS.map(|workload| (name, workload))) {
        let guest = guest_run(name, workload);
        let (lab_ms, simulated_ms) = (guest.ms, simulated_run(name, workload, guest.instructions).ms);
        let off = lab_ms / simulated_ms - 1.0;
        let row =
            format!("| {name} | {workload} | {lab_ms:.1} | {simulated_ms:.1} | {:+.1} % |", off * 100.0);
        println!("{row}");
        apart.extend((off.abs() > 0.1).then_some(row));
    }
    assert!(apart.is_empty(), "more than 10 % apart: {apart:#?}");
}

/// The simulator's `local`: the kernel migrates nothing, and takes no hint faults to find out.
const WITHOUT_MIGRATION: &str = "echo 0 > /proc/sys/kernel/numa_balancing && exec \"$0\" \"$1\"";

/// A workload's region.
struct Region {
    ms: f64,
    instructions: f64,
}

fn guest_run(machine: &str, workload: &str) -> Region {
    let program = Path::new(MEMTIDE).with_file_name("memtide-workload").display().to_string();
    let options =
        ["-o", "json", "--machine", machine, "--vcpus", "1", "--region", "marks", "--file", &program];
    let shell = ["--", "sh", "-c", WITHOUT_MIGRATION, &program, workload];
    let figures = lab(&[&options[..], &shell].concat()).1;
    let parsed: Value = serde_json::from_str(&figures[figures.find('{').expect("JSON")..]).expect("JSON");
    let figure = |key: &str| parsed["run"][0][key].as_f64().expect("a figure");
    Region { ms: figure("guest_ns") / 1e6, instructions: figure("instructions") }
}

/// The same on the simulator's model of the guest's machine. Of the codes of STREAM, whose instructions are
/// the native compiler's choice, the one with the closest number of instructions.
fn simulated_run(machine: &str, workload: &str, instructions: f64) -> Region {
    let codes: &[&str] = if workload.starts_with("stream") { &STREAM_CODES } else { &[""] };
    let runs = codes.iter().map(|code| simulated(machine, &format!("{workload}{code}")));
    let apart = |run: &Region| (run.instructions - instructions).abs();
    runs.min_by(|a, b| apart(a).total_cmp(&apart(b))).expect("a run")
}

const STREAM_CODES: [&str; 3] = [",code=vector", ",code=scalar", ",code=cortex-a53"];

fn simulated(machine: &str, workload: &str) -> Region {
    let machine = bundled::machine(machine).expect("a bundled machine").expect("a checked machine");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prepared.toml");
    fs::write(&file, prepare(&machine, 1).machine.to_toml()).expect("the machine is written");
    let simulate = ["simulate", "--policy", "local", "-o", "json", "--workload", workload, "--machine"];
    let run = Command::new(MEMTIDE).args(simulate).arg(&file).output().expect("memtide runs");
    let parsed: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let figure = |key: &str| parsed["report"][key].as_f64().expect("a figure");
    Region { ms: figure("time_ms"), instructions: figure("instructions") }
}

/// Reads that `reads_of_huge_pages_need_few_walks` makes at random.
const READS: u64 = 300_000;

#[test]
fn reads_of_huge_pages_need_few_walks() {
    if env::var_os(IN_GUEST).is_some() {
        return read_at_random();
    }
    if !lab_is_here() {
        return;
    }
    let test = crate::support::lab::this_test();
    // A TLB of 64 entries, for 32 MiB.
    let walks = |huge_pages: &str| {
        let script = format!(
            "echo {huge_pages} > /sys/kernel/mm/transparent_hugepage/enabled
             {IN_GUEST}=1 {test} reads_of_huge_pages_need_few_walks"
        );
        let options = ["-o", "json", "--machine", "ddr5-cxl", "--scale", "32", "--vcpus", "1"];
        let stderr = lab(&[&options[..], &["--file", &test, "--", "sh", "-c", &script]].concat()).1;
        let figures: Value = serde_json::from_str(&stderr[stderr.find('{').expect("JSON")..]).expect("JSON");
        figures["run"][0]["page_walks"].as_u64().expect("a figure")
    };
    let [base, huge] = ["never", "always"].map(walks);
    println!("{base} walks in base pages, {huge} in huge pages");
    assert!((READS * 9 / 10..READS * 2).contains(&base), "{base}");
    assert!(huge < base - READS * 3 / 4, "{huge}, and {base} in base pages");
}

fn read_at_random() {
    let memory = vec![1u8; 32 * MIB];
    let (mut at, mut sum) = (88_172_645_463_325_252u64, 0);
    for _ in 0..READS {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        sum += u64::from(memory[at as usize % memory.len()]);
    }
    assert_eq!(sum, READS);
}

#[test]
fn repeated_run_takes_identical_time() {
    if !lab_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lines");
    let lines: String =
        (0..20_000u64).map(|n| format!("{:x}\n", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    fs::write(&file, lines).expect("a file");
    let file = file.display().to_string();
    for vcpus in ["1", "2"] {
        let run = || {
            let arguments =
                ["lab", "run", "-o", "json", "--timing", "on", "--machine", "bmpm-5", "--vcpus", vcpus];
            let program = ["--file", &file, "--", "sort", "--parallel=2", &file];
            let run = Command::new(MEMTIDE).args(arguments).args(program).output().expect("memtide runs");
            let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(run.status.success(), "{stderr}");
            let from = stderr.find('{').expect("JSON");
            let parsed: Value = serde_json::from_str(&stderr[from..]).expect("JSON");
            // Without host time, which differs.
            let row = |key: &str| parsed["run"][0][key].clone();
            let exact =
                ["guest_ns", "faults", "instructions", "accesses", "llc_misses", "page_walks"].map(row);
            assert!(exact.iter().all(|value| value.as_u64().is_some_and(|n| n > 0)), "{exact:?}");
            (exact, parsed["nodes"].clone())
        };
        let first = run();
        println!("{vcpus} virtual CPUs: {:?}", first.0);
        for _ in 0..2 {
            assert_eq!(run(), first, "with {vcpus} virtual CPUs");
        }
    }
}
