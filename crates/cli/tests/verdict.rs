//! The verdict of `compare`: which policies are best and why, and what would change it.

use crate::support::call::{SMALL, json, stdout_of};

/// The best policy of a verdict, and those that are about as fast.
fn within_2_percent(verdict: &str) -> (&str, Vec<&str>) {
    let (best, rest) = verdict.split_once(" is best: ").expect("a best policy");
    let others = rest.split_once("; within 2 % of the best: ").expect("others").1;
    let others = others.split_once(". ").expect("a sentence").0;
    (best, others.split(" and ").flat_map(|names| names.split(", ")).collect())
}

#[test]
fn verdict_names_ties_and_idle_migration() {
    let verdict = |arguments: &[&str]| {
        json(&[&["compare"], arguments].concat())["verdict"].as_str().expect("a verdict").to_owned()
    };
    let small = "gups:operations=20000,footprint_mib=8";
    let tie = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,bw-local,bw-local+bw-migration"]);
    let (best, others) = within_2_percent(&tie);
    let mut tied = [&[best][..], &others].concat();
    tied.sort_unstable();
    assert_eq!(tied, ["bw-local", "bw-local+bw-migration"], "{tie}");
    assert!(tie.contains("No NUMA hint fault occurred under bw-local+bw-migration"), "{tie}");
    let same = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+anb"]);
    assert!(same.contains("each node gets the same share of their requests"), "{same}");
    let early = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+hot-cold"]);
    assert!(
        early.contains("No epoch ended under local+hot-cold,") && !early.contains("hint fault"),
        "{early}"
    );
    let in_time = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+hot-cold:epoch_ms=10"]);
    assert!(!in_time.contains("No epoch"), "{in_time}");
    let on_fast = verdict(&["-m", "ddr5-cxl", "-w", small, "-p", "local,local+linux-tiering"]);
    assert!(on_fast.contains("no page below the fastest tier was accessed after a scan"), "{on_fast}");
}

#[test]
fn verdict_explains_the_worst_policy_and_sums_its_time() {
    let policies = "local,bw-local,bw-random,local+hot-cold:epoch_ms=10";
    let gups = "gups:operations=20000,footprint_mib=8,threads=8";
    let whole = json(&["compare", "-m", "bmpm-5", "-w", gups, "-p", policies]);
    let verdict = whole["verdict"].as_str().unwrap();
    let worst = "local+hot-cold:epoch_ms=10";
    assert!(verdict.contains(&format!("as fast as {worst}, the worst")), "{verdict}");
    let explained = [format!("Under {worst} "), format!("under {worst}")];
    assert!(explained.iter().any(|start| verdict.contains(start)), "{verdict}");
}

const TRIAD: &str = "stream:kernel=triad,threads=16,footprint_mib=48,iterations=1";

#[test]
fn saturated_link_is_in_verdict_and_every_format() {
    let compare = ["compare", "-m", "ddr5-cxl", "-w", TRIAD, "-p", "local,ratio:weights=1:1"];
    let whole = json(&compare);
    let verdict = whole["verdict"].as_str().unwrap();
    let busy =
        verdict.split("the link from cxl to socket0 is ").nth(1).and_then(|rest| rest.split(" %").next());
    let busy: f64 = busy.unwrap_or_else(|| panic!("{verdict}")).parse().expect("a share");
    let row = &whole["policies"][1];
    let [share, mbps] = ["share", "mbps"].map(|unit| row[format!("cxl_socket0_{unit}")].as_f64().unwrap());
    assert!((0.7..=1.0).contains(&share) && (busy - share * 100.0).abs() <= 0.5, "{share}: {verdict}");
    let slice_mbps = 24_000.0 / whole["slice"].as_f64().unwrap();
    assert!((mbps / slice_mbps - share).abs() < 1e-6, "{mbps} of {slice_mbps} MB/s is {share}");
    assert!(row["socket0_socket1_mbps"].is_number() && row["socket1_socket0_share"].is_number(), "{row}");

    let csv = stdout_of(&[&compare[..], &["-o", "csv"]].concat());
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let at = csv.headers().unwrap().iter().position(|key| key == "cxl_socket0_share").expect("a column");
    let shares: Vec<f64> = csv.records().map(|row| row.unwrap()[at].parse().unwrap()).collect();
    assert_eq!(shares[1], share);

    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let table = stdout_of(&[&compare[..], &["--report", &page]].concat());
    let page = std::fs::read_to_string(&page).unwrap();
    for title in ["cxl to socket0, MB/s", "cxl to socket0, %"] {
        assert!(table.contains(title) && page.contains(title), "{title} is missing:\n{table}");
    }
    let shown = format!("{:.1}", share * 100.0);
    let of_links = table.split("cxl to socket0, MB/s").nth(1).expect("the links' table");
    assert!(of_links.contains(&shown), "{shown} is missing:\n{table}");
}

#[test]
fn verdict_separates_demand_prefetch_and_migration_traffic() {
    let compare = ["compare", "-m", "ddr5-cxl", "-w", TRIAD, "-p", "local,ratio:weights=1:1"];
    let whole = json(&compare);
    let verdict = whole["verdict"].as_str().unwrap();
    let mut prefetched = Vec::new();
    for (name, row) in ["local", "ratio:weights=1:1"].iter().zip(whole["policies"].as_array().unwrap()) {
        let percent = |key: &str| format!("{:.0} %", row[key].as_f64().unwrap() * 100.0);
        let of_nodes =
            ["dram0", "dram1", "cxl"].map(|n| format!("{} to {n}", percent(&format!("{n}_demand_share"))));
        assert!(verdict.contains(&of_nodes.join(", ")), "{of_nodes:?}: {verdict}");
        assert!(row["prefetch_share"].as_f64().unwrap() > 0.3, "the triad is prefetched: {row}");
        assert!(verdict.contains(&format!(" under {name}")), "{verdict}");
        prefetched.push(percent("prefetch_share"));
    }
    let [a, b] = [&prefetched[0], &prefetched[1]];
    let expected = format!("Prefetching adds {a} of all lines under local, {b} under ratio:weights=1:1.");
    assert!(verdict.contains(&expected) && !verdict.contains("Migration adds "), "{expected} {verdict}");
}

#[test]
fn run_shorter_than_epoch_suggests_epoch() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite3.parquet");
    let compare = |policy: &str| {
        json(&[
            "compare",
            "-m",
            "bmpm-5",
            "-t",
            trace,
            "--limit",
            "2000000",
            "-p",
            &format!("interleave,{policy}"),
        ])
    };
    let early = compare("interleave+hot-cold:low=1");
    let verdict = early["verdict"].as_str().unwrap();
    let advised = verdict.split("; use ").nth(1).and_then(|rest| rest.strip_suffix('.')).expect("advice");
    assert!(advised.starts_with("interleave+hot-cold:epoch_ms=") && advised.ends_with(",low=1"), "{verdict}");
    assert!(early["policies"][1]["migrated_pages"] == 0, "{early}");
    let then = compare(advised);
    assert!(!then["verdict"].as_str().unwrap().contains("No epoch"), "{then}");
    assert!(then["policies"][1]["migrated_pages"].as_u64().unwrap() > 0, "{then}");
    let simulate = ["simulate", "-m", "bmpm-5", "-w", SMALL, "-p", "local+hot-cold"];
    assert!(stdout_of(&simulate).contains("No epoch ended under local+hot-cold"));
    assert!(json(&simulate)["notes"][0].as_str().unwrap().contains("local+hot-cold:epoch_ms="));
}

#[test]
fn readme_example_migrates_on_every_bundled_trace() {
    let readme = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"));
    let example = readme.lines().find(|line| line.starts_with("memtide compare")).expect("an example");
    let words: Vec<&str> = example.split_whitespace().skip(1).collect();
    for trace in ["sqlite3", "redis", "sort"] {
        let trace = format!("{}/../../traces/{trace}.parquet", env!("CARGO_MANIFEST_DIR"));
        let words: Vec<&str> =
            words.iter().map(|&word| if word == "mine.parquet" { &trace } else { word }).collect();
        let whole = json(&words);
        let policies = whole["policies"].as_array().expect("policies").iter();
        let mut migrating = policies.filter(|row| row["policy"].as_str().unwrap().contains('+'));
        assert!(migrating.next().unwrap()["migrated_pages"].as_u64().unwrap() > 0, "{trace}: {whole}");
    }
}

#[test]
fn single_memory_node_leaves_nothing_to_place() {
    let verdict =
        json(&["compare", "-m", "laptop", "-w", SMALL, "-p", "local,interleave"])["verdict"].clone();
    assert_eq!(verdict, "laptop has a single memory node, dram: there is nothing to place.");
}

#[test]
fn verdict_reports_swapping_and_ties() {
    // 20 MiB exceed the fast node (16 MiB at this scale), but not both nodes.
    let compared =
        ["compare", "-m", "bmpm-2", "--scale", "1024", "-w", "stream:footprint_mib=20,iterations=1"];
    let whole = json(&[&compared[..], &["-p", "local,fast-only"]].concat());
    let verdict = whole["verdict"].as_str().unwrap();
    assert!(verdict.contains("Under fast-only memory runs out"), "{whole}");
    let swapped = [0, 1].map(|row| whole["policies"][row]["swapped_pages"].as_u64().unwrap());
    assert!(swapped[0] == 0 && swapped[1] > 1000, "{whole}");
    assert!(stdout_of(&[&compared[..], &["-p", "local,fast-only"]].concat()).contains("pages swapped"));
    assert!(!stdout_of(&[&compared[..], &["-p", "local"]].concat()).contains("swapped"));
    let tied = ["-m", "bmpm-1", "--scale", "1024", "-w", "stream:footprint_mib=20,iterations=1"];
    let tied = json(&[&["compare", "-p", "local,local+anb,interleave"], &tied[..]].concat());
    let verdict = tied["verdict"].as_str().unwrap();
    assert!(!verdict.contains("1.00 times") && !verdict.contains("1.01 times"), "{verdict}");
    let (best, others) = within_2_percent(verdict);
    let mut names = [&[best][..], &others].concat();
    names.sort_unstable();
    assert_eq!(names, ["local", "local+anb"], "{verdict}");
    // Policies that never migrate here, in more than four names.
    let many = "local,local+anb,local+hot-cold,local+bw-migration,local+hot-cold:low=1,local+hot-cold:low=2";
    let many = format!("{many},interleave");
    let machine = ["-m", "bmpm-1", "--scale", "1024", "-w", "stream:footprint_mib=20,iterations=1"];
    let many = json(&[&["compare", "-p", &many], &machine[..]].concat());
    let verdict = many["verdict"].as_str().unwrap();
    assert!(within_2_percent(verdict).1.len() == 5 && !verdict.contains(" more"), "{verdict}");
    assert!(verdict.contains("times as fast as interleave"), "{verdict}");
}

/// The trace of `make demo`: one of its processes, with less DRAM.
#[test]
fn demo_has_its_newest_orders_in_cxl_memory_and_migration_acts() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/orders.parquet");
    let dram = ["--set", "node.dram0.capacity=16GiB", "--set", "node.dram1.capacity=16GiB"];
    let command = ["compare", "-m", "ddr5-cxl", "--scale", "64", "-t", trace, "--limit", "6000000"];
    let policies = ["-p", "local,local+hot-cold:epoch_ms=50"];
    let whole = json(&[&command[..], &dram, &policies].concat());
    let [local, moved] = [0, 1].map(|row| &whole["policies"][row]);
    let share = |of: &str| local[of].as_f64().unwrap();
    assert!(share("cxl_access_share") > 2.0 * share("cxl_page_share"), "{local}");
    assert_eq!(local["migrated_pages"], 0);
    assert!(moved["migrated_pages"].as_u64().unwrap() > 1000, "{moved}");
}

#[test]
fn placement_pays_on_a_bundled_trace() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite3.parquet");
    let command = [
        "compare",
        "-m",
        "bmpm-5",
        "-t",
        trace,
        "--copies",
        "16",
        "--limit",
        "200000",
        "-p",
        "local,bw-random",
    ];
    let whole = json(&command);
    assert_eq!(whole["program"], "16 x sqlite3 [200000 accesses from 0]");
    let [local, random] = [0, 1].map(|row| &whole["policies"][row]);
    assert!(random["speedup"].as_f64().unwrap() > 1.1, "{random}");
    assert!(
        local["llc_misses_per_kilo_instruction"].as_f64().unwrap() > 1.0,
        "the trace fits into the caches: {local}"
    );
    let mbps: f64 =
        ["dram", "nvm"].iter().map(|n| random[format!("{n}_bandwidth_mbps")].as_f64().unwrap()).sum();
    assert!(mbps > 5_000.0, "{mbps} MB/s is too low a load");
}

#[test]
fn verdict_says_where_time_goes_if_memory_is_no_slower() {
    // Everything hits the caches, so that only hint faults differ.
    let text = stdout_of(&[
        "compare",
        "-m",
        "bmpm-1",
        "-w",
        "cached:threads=2",
        "-p",
        "local,local+anb",
        "--set",
        "kernel.numa_scan_period_ms=2",
    ]);
    for part in [
        "local is best",
        "Memory is no slower under local+anb than under local",
        " ms more in the kernel, and ",
    ] {
        assert!(text.contains(part), "no '{part}': {text}");
    }
}
