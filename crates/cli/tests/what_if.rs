//! Figures of a machine set for one run, and swept.

use crate::support;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::call::{file, json, memtide, refused, stdout_of};
use crate::support::docs::root;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn comparison_on_several_machines_has_the_figures_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("several.html");
    let program = ["-w", "zipf:threads=2,footprint_mib=8,operations=20000", "-p", "local,interleave"];
    let on = |machines: &str, more: &[&str]| {
        json(&[&["compare", "-m", machines, "--scale", "64"], &program[..], more].concat())
    };
    let several = on("bmpm-1,bmpm-5", &["--report", report.to_str().unwrap()]);
    let rows = several["machines"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "each policy and the oracle");
    for (machine, rows, whole) in [
        ("bmpm-1", &rows[..3], &several["comparisons"][0]),
        ("bmpm-5", &rows[3..], &several["comparisons"][1]),
    ] {
        let alone = on(machine, &[]);
        assert_eq!(&alone, whole, "{machine}");
        for (row, alone) in rows.iter().zip(alone["policies"].as_array().unwrap()) {
            for same in ["policy", "time_ms", "speedup", "latency_mean_ns", "migrated_pages"] {
                assert_eq!(row[same], alone[same], "{machine}: {same}");
            }
            assert_eq!(row["machine"], machine);
        }
    }
    let time = |row: usize| rows[row]["time_ms"].as_f64().unwrap();
    let faster = rows[4]["machine_speedup"].as_f64().unwrap();
    assert!((faster - time(1) / time(4)).abs() < 1e-9, "under the same policy on the first machine");
    assert!(!several["notes"].to_string().contains("unlike slices"), "{}", several["notes"]);

    let page = fs::read_to_string(report).unwrap();
    for part in ["on bmpm-1, bmpm-5", "chart-time", "chart-bandwidth", "chart-latency"] {
        assert!(page.contains(part), "{part}");
    }
    let unlike = json(&[&["compare", "-m", "bmpm-1,hinuma"], &program[..]].concat());
    assert!(unlike["notes"].to_string().contains("give --slice and --scale"), "{}", unlike["notes"]);
    // A changed copy has the name of its original.
    let copy = fs::read_to_string(root().join("machines/bmpm-1.toml")).unwrap();
    let copy = file(folder.path(), "copy.toml", copy.as_bytes());
    let set = ["--set", "kernel.fault_ns=400"];
    let copies = json(&[&["compare", "-m", &format!("bmpm-1,{copy}")], &program[..], &set].concat());
    let names = copies["machines"].as_array().unwrap().iter().map(|row| row["machine"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["bmpm-1", "bmpm-1", "bmpm-1", &copy, &copy, &copy]);
    assert_eq!(copies["set"], "kernel.fault_ns=400");
    refused(2, &[&["compare", "-m", "bmpm-1, bmpm-1"], &program[..]].concat(), &["named twice"]);
    for empty in ["bmpm-1,", ",bmpm-1", "bmpm-1,,hinuma", ""] {
        let says = [&format!("--machine '{empty}'")[..], "a name is empty"];
        refused(2, &[&["compare", "-m", empty], &program[..]].concat(), &says);
    }
    refused(2, &[&["compare", "-m", "bmpm-1,bmpm"], &program[..]].concat(), &["no machine 'bmpm'"]);
    refused(
        2,
        &[&["simulate", "-m", "bmpm-1,bmpm-5"], &program[..2], &["-p", "local"]].concat(),
        &["no machine"],
    );
}

#[test]
fn figures_of_a_machine_are_set_for_one_run() {
    let set = ["--set", "node.dram0.capacity=512GiB", "--set", "link.socket0-cxl.bandwidth=50%"];
    let shown = stdout_of(&[&["machine", "show", "ddr5-cxl"], &set[..]].concat());
    let figure = |path: &str| shown.lines().find(|line| line.starts_with(path)).expect("a figure").to_owned();
    let capacity = figure("node.dram0.capacity_mib");
    assert!(
        capacity.contains(" 524288 ") && capacity.ends_with("--set node.dram0.capacity=512GiB"),
        "{capacity}"
    );
    assert!(figure("node.dram0.dram.rows").contains("computed: those that node.dram0.capacity_mib needs"));

    let link = |percent: &str| {
        let share = format!("link.socket0-cxl.bandwidth={percent}");
        let probe =
            ["machine", "probe", "ddr5-cxl", "--node", "cxl", "--initiator", "socket0", "--requests", "2000"];
        json(&[&probe[..], &["--set", &share]].concat())
    };
    let peak = |percent| link(percent)["nodes"][0]["peak_mbps"].as_f64().unwrap();
    assert!((peak("10%") / peak("20%") - 0.5).abs() < 0.01, "the link limits the path");

    let run = ["simulate", "-m", "ddr5-cxl", "-w", "gups:footprint_mib=4,operations=1000"];
    let result = json(&[&run[..], &set[..]].concat());
    let names = "link.socket0-cxl.bandwidth=50% node.dram0.capacity=512GiB";
    assert_eq!(result["set"], names);
    assert!(json(&run)["set"].is_null());

    let text = stdout_of(&[&["machine", "show", "ddr5-cxl", "-o", "machine"], &set[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "set.toml", text);
    assert_eq!(json(&["machine", "show", &path])["node"][0]["capacity_mib"], 524_288);
    refused(
        2,
        &["simulate", "-m", "hbm", "-w", "chase", "--set", "node.x.tier=1"],
        &["--set 'node.x.tier=1'"],
    );
    refused(2, &["simulate", "-m", "hbm", "-w", "chase", "--set", "tier"], &["FIGURE=VALUE"]);
}

#[test]
fn sweep_runs_each_combination_and_finds_the_knee() {
    let stream = "stream:kernel=copy,footprint_mib=8,iterations=2,threads=8";
    let sweep =
        |arguments: &[&str]| json(&[&["sweep", "-m", "ddr5-cxl", "-w", stream][..], arguments].concat());
    let time = |row: &serde_json::Value| row["time_ms"].as_f64().unwrap();

    let link = "link.socket0-cxl.bandwidth";
    let range = format!("{link}=5%..10%");
    let swept =
        sweep(&["-p", "bind:node=cxl", "--set", &range, "--points", "3", "--set", "core.store_queue=50"]);
    assert_eq!(swept["set"], "core.store_queue=50");
    let rows = swept["points"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row[link].as_str().unwrap()).collect::<Vec<_>>(), ["5%", "7.5%", "10%"]);
    assert!((time(&rows[0]) / time(&rows[2]) - 2.0).abs() < 0.1, "bound by the link: {rows:#?}");
    assert_eq!([&swept["knees"][0]["good_from"], &swept["knees"][0]["good_up_to"]], ["10%", "10%"]);
    let listed = format!("{link}=10%,5%,7.5%");
    let in_another_order = sweep(&["-p", "bind:node=cxl", "--set", &listed, "--set", "core.store_queue=50"]);
    assert_eq!(in_another_order["knees"], swept["knees"]);
    let scales = sweep(&["--set", "scale=32,64"]);
    assert!(scales["scale"].is_null(), "{scales}");
    assert_eq!(
        scales["points"].as_array().unwrap().iter().map(|row| &row["scale"]).collect::<Vec<_>>(),
        [32, 64]
    );
    let alike = sweep(&["--set", "node.dram0.capacity=100%,2GiB,2048MiB,2048"]);
    assert_eq!(alike["points"].as_array().unwrap().len(), 2, "{alike}");

    let two = ["--set", "core.reorder_buffer=32,512", "--set", "node.dram0.capacity=50%,100%"];
    let swept = sweep(&[&two[..], &["-p", "local,interleave"]].concat());
    let rows = swept["points"].as_array().unwrap();
    let values = |row: &serde_json::Value| {
        ["core.reorder_buffer", "node.dram0.capacity", "policy"]
            .map(|key| row[key].as_str().map_or(row[key].to_string(), str::to_owned))
    };
    assert_eq!(rows.len(), 8);
    assert_eq!(values(&rows[3]), ["32", "100%", "interleave"]);
    assert!(time(&rows[0]) > time(&rows[4]), "a larger reorder buffer is faster");
    assert!(swept["knees"].is_null());
    let single = ["simulate", "-m", "ddr5-cxl", "-w", stream, "--set", "core.reorder_buffer=32"];
    let single = json(&[&single[..], &["--set", "node.dram0.capacity=100%", "-p", "interleave"]].concat());
    assert_eq!(time(&single["report"]), time(&rows[3]), "the same run");

    for (set, says) in [
        ("core.reorder_buffer=5", "needs a list or a range"),
        ("core.reorder_buffer=1..x", "the same unit"),
        ("core.reorder_buffer=4,0", "--set 'core.reorder_buffer=0'"),
        ("core.reorder_bufer=4,5", "did you mean 'reorder_buffer'"),
        ("node.dram0.capacity=1GiB,1024MiB", "all values of node.dram0.capacity are the same"),
        ("core.reorder_buffer=4..4", "all values of core.reorder_buffer are the same"),
    ] {
        refused(2, &["sweep", "-m", "ddr5-cxl", "-w", stream, "--set", set], &[says]);
    }
    let set = "core.reorder_buffer=4,5";
    for (arguments, says) in [
        (&["-m", "ddr5-cxl", "--set", set, "--points", "3"][..], "no figure has a range"),
        (&["-m", "ddr5-cxl,hbm", "--set", set], "`compare` takes several"),
        (&["-m", "ddr5-cxl", "--set", "scale=8,16", "--scale", "8"], "--set scale=8 sets it, too"),
        (&["-m", "ddr5-cxl", "--set", set, "-p", "local,,ratio"], "a name is empty"),
        (
            &["-m", "ddr5-cxl", "--set", set, "-p", "local,local+none"],
            "'local' and 'local+none' are the same",
        ),
    ] {
        refused(2, &[&["sweep", "-w", stream], arguments].concat(), &[says]);
    }
    let endless: Vec<&str> = ["--set", "core.reorder_buffer=1..4096"].repeat(7);
    let endless = [&["sweep", "-m", "hbm", "-w", stream, "--points", "1000"], &endless[..]].concat();
    refused(2, &endless, &["runs; at most 100000"]);
    let many = ["core.reorder_buffer=1..4096", "core.store_queue=1..1024"].map(|set| ["--set", set]).concat();
    let many = [&["sweep", "-m", "hbm", "-w", stream, "--points", "1000"], &many[..]].concat();
    refused(2, &many, &["a sweep of 1000000 runs; at most 100000"]);
}

#[test]
fn knee_of_a_latency_is_the_highest_good_value() {
    let sweep = ["sweep", "-m", "ddr5-cxl", "--set", "link.socket0-cxl.latency_ns=50..1000", "--points", "4"];
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("swept.html").display().to_string();
    let program = ["-w", "gups:threads=2,footprint_mib=4,operations=5000", "-p", "interleave,local"];
    let swept = json(&[&sweep[..], &program, &["--report", &report]].concat());
    let [interleave, local] = [0, 1].map(|row| &swept["knees"][row]);
    assert_eq!([&interleave["good_from"], &interleave["good_up_to"]], ["50", "50"], "{interleave}");
    assert_eq!(interleave["good_up_to_number"], 50);
    assert_eq!(interleave["good_ms"], interleave["shortest_ms"]);
    assert_eq!([&local["good_from"], &local["good_up_to"]], ["50", "1000"], "{local}");
    assert!(fs::read_to_string(&report).unwrap().contains("good up to"));
}

/// Four runs: two values, two seeds.
const FOUR: [&str; 9] = [
    "sweep",
    "-m",
    "memos",
    "-w",
    "gups:footprint_mib=4,operations=1000",
    "--set",
    "node.dram.capacity=50%,100%",
    "--seeds",
    "2",
];

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shards_of_a_sweep_merge_into_the_file_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |out: &str, more: &[&str]| json(&[&FOUR[..], &["--out", &path(out)], more].concat());
    let whole = run("whole.csv", &[]);
    assert_eq!(whole["points"].as_array().unwrap().len(), 4);
    let text = fs::read_to_string(path("whole.csv")).unwrap();
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<BTreeMap<String, String>> = table.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0]["node.dram.capacity"], "50%");
    assert_eq!([0, 1, 2].map(|row| rows[row]["seed"].as_str()), ["1", "2", "1"]);
    let number = |row: usize, key: &str| rows[row][key].parse::<f64>().unwrap();
    assert_eq!(number(2, "node.dram.capacity_mib") / number(0, "node.dram.capacity_mib"), 2.0);
    assert_eq!(number(3, "time_ms"), whole["points"][3]["time_ms"].as_f64().unwrap());

    let first = run("parts.csv", &["--shard", "1/3"]);
    assert_eq!(first["points"].as_array().unwrap().len(), 2);
    assert!(first["knees"].is_null(), "runs are missing");
    let other = ["--seed", "7", "--out", &path("parts.csv"), "--shard", "3/3"];
    refused(3, &[&FOUR[..], &other].concat(), &["parts.csv.1-of-3.partial", "another sweep (other seed"]);
    assert_eq!(names_in(folder.path()), ["parts.csv.1-of-3.partial", "whole.csv"], "it left no journal");
    run("parts.csv", &["--shard", "3/3"]);
    let partial = ["parts.csv.1-of-3.partial", "parts.csv.3-of-3.partial", "whole.csv"];
    assert_eq!(names_in(folder.path()), partial);
    let third = stdout_of(&[&FOUR[..], &["--out", &path("parts.csv"), "--shard", "3/3"]].concat());
    assert!(third.contains("1 run of another part is missing; "), "{third}");
    let all = run("parts.csv", &["--shard", "2/3"]);
    assert_eq!(all["points"], whole["points"]);
    assert_eq!(names_in(folder.path()), ["parts.csv", "parts.csv.done", "whole.csv"]);
    assert_eq!(fs::read_to_string(path("parts.csv")).unwrap(), text);

    refused(2, &[&FOUR[..], &["--out", &path("whole.csv")]].concat(), &["it exists"]);
    refused(2, &[&FOUR[..], &["--out", &path("whole.txt")]].concat(), &[".csv or .parquet"]);
    refused(2, &[&FOUR[..], &["--shard", "1/2"]].concat(), &["--out"]);
    refused(2, &[&FOUR[..], &["--out", &path("x.csv"), "--shard", "3/2"]].concat(), &["such as 3/8"]);
}

#[test]
fn shard_that_starts_after_the_last_finds_results_complete() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("parts.csv").display().to_string();
    let shard = |shard: &'static str| [&FOUR[..], &["--out", &out, "--shard", shard]].concat();
    for part in ["1/8", "2/8", "3/8", "4/8"] {
        stdout_of(&shard(part));
    }
    let text = fs::read(&out).unwrap();
    for late in ["1/8", "5/8"] {
        let shown = stdout_of(&shard(late));
        assert!(shown.contains("All results are in") && shown.contains("parts.csv"), "{shown}");
    }
    assert!(json(&shard("8/8"))["points"].is_null());
    assert_eq!(fs::read(&out).unwrap(), text);
    assert_eq!(names_in(folder.path()), ["parts.csv", "parts.csv.done"]);

    refused(2, &[&shard("5/8")[..], &["--seed", "7"]].concat(), &["it exists"]);
    refused(2, &[&FOUR[..], &["--out", &out]].concat(), &["it exists"]);
    fs::write(&out, "another file\n").unwrap();
    refused(2, &shard("5/8"), &["it exists"]);
    assert_eq!(fs::read(&out).unwrap(), b"another file\n");
}

#[test]
fn results_and_report_in_one_file_are_refused_before_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.csv").display().to_string();
    let same = folder.path().join(".").join("x.csv").display().to_string();
    let says = ["--report", "the same file as --out"];
    refused(2, &[&FOUR[..], &["--out", &out, "--report", &same]].concat(), &says);
    let says = ["--report", "the same file as --markdown"];
    refused(2, &["repro", "--markdown", &out, "--report", &out], &says);
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn interrupted_sweep_goes_on_with_the_same_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (whole, out) = (path("a.csv"), path("b.csv"));
    let out = [&FOUR[..], &["--out", &out]].concat();
    json(&[&FOUR[..], &["--out", &whole]].concat());

    // As a run that was killed while it wrote its third result.
    json(&[&out[..], &["--shard", "1/2"]].concat());
    fs::rename(path("b.csv.1-of-2.partial"), path("b.csv.partial")).unwrap();
    let mut partial = OpenOptions::new().append(true).open(path("b.csv.partial")).unwrap();
    partial.write_all(b"{\"run\":[3,{\"figu").unwrap();
    drop(partial);
    let journal = fs::read(path("b.csv.partial")).unwrap();
    json(&out);
    assert_eq!(fs::read(path("b.csv")).unwrap(), fs::read(path("a.csv")).unwrap());
    assert_eq!(names_in(folder.path()), ["a.csv", "b.csv"]);

    fs::remove_file(path("b.csv")).unwrap();
    fs::write(path("b.csv.partial"), &journal).unwrap();
    let other = [&out[..], &["-p", "interleave"]].concat();
    refused(3, &other, &["b.csv.partial, line 1", "another sweep (other policies)"]);
    fs::write(path("b.csv.partial"), "no journal\n").unwrap();
    refused(3, &out, &["b.csv.partial, line 1", "not a line of a sweep's journal"]);
    assert_eq!(fs::read(path("b.csv.partial")).unwrap(), b"no journal\n", "another's file is kept");
}

#[test]
fn ctrl_c_keeps_results_of_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("long.parquet");
    let mut sweep = Command::new(support::MEMTIDE);
    // Hours of runs.
    let workload = "gups:footprint_mib=16,operations=300000";
    sweep.args(["sweep", "-m", "memos", "-w", workload, "--set", "core.reorder_buffer=64..512"]);
    sweep.args(["--points", "449", "--out"]).arg(&out).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut sweep = sweep.spawn().unwrap();
    let partial = folder.path().join("long.parquet.partial");
    let lines = || fs::read(&partial).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count());
    while lines() < 3 {
        assert!(sweep.try_wait().unwrap().is_none(), "it ended before its first result");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&sweep), Signal::INT).unwrap();
    let ended = sweep.wait_with_output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{error}");
    assert!(
        error.contains("of 449 runs are in") && error.contains("the same command does the rest"),
        "{error}"
    );
    assert_eq!(names_in(folder.path()), ["long.parquet.partial"]);
}

#[test]
fn failed_runs_of_a_sweep_are_named_and_others_kept() {
    let bound =
        ["sweep", "-m", "memos", "-w", "gups:footprint_mib=32,operations=1000", "-p", "bind:node=dram"];
    let swept =
        |values: &str| [&bound[..], &["--set", &format!("node.dram.capacity={values}")]].concat().join(" ");
    let call = swept("64MiB,100%");
    let output = memtide(&[&call.split(' ').collect::<Vec<_>>()[..], &["-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(1), "a run failed");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 2 runs failed"));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = shown["points"].as_array().unwrap();
    assert!(rows[0]["time_ms"].is_null() && rows[0]["failure"].as_str().unwrap().contains("out of memory"));
    assert!(rows[1]["time_ms"].as_f64().unwrap() > 0.0 && rows[1]["failure"].is_null());
    assert_eq!(shown["knees"][0]["good_from"], "100%");
    let call = swept("64MiB,65MiB");
    refused(1, &call.split(' ').collect::<Vec<_>>(), &["node.dram.capacity=64MiB", "out of memory"]);
}

#[test]
fn swapped_pages_are_in_sweep() {
    let sweep = ["sweep", "-m", "bmpm-2", "--scale", "1024", "-w", "stream:footprint_mib=20,iterations=1"];
    let sweep = [&sweep[..], &["--set", "node.dram.capacity=50%,100%"]].concat();
    let of = |policy: &'static str| [&sweep[..], &["-p", policy]].concat();
    let swapped = json(&of("fast-only"))["points"][0]["swapped_pages"].as_u64();
    assert!(swapped.is_some_and(|pages| pages > 1000), "{swapped:?}");
    assert!(stdout_of(&of("fast-only")).contains("pages swapped"));
    assert_eq!(json(&of("local"))["points"][1]["swapped_pages"], 0);
    assert!(!stdout_of(&of("local")).contains("swapped"));
}

#[test]
fn sweep_reports_migration_without_occasion() {
    let sweep = ["sweep", "-m", "bmpm-5", "-w", "gups:operations=20000,footprint_mib=8"];
    let set = ["--set", "node.dram.capacity=50%,100%"];
    let of = |policies: &str| stdout_of(&[&sweep[..], &set, &["-p", policies]].concat());
    let early = of("local,local+hot-cold,local+anb");
    let first = "node.dram.capacity=50% under local+hot-cold, seed 1: No epoch ended under local+hot-cold, ";
    assert!(early.contains(first) && early.contains(" The same for 1 more run of this policy."), "{early}");
    assert!(early.contains("No NUMA hint fault occurred under local+anb, "), "{early}");
    let in_time = of("local,local+hot-cold:epoch_ms=10");
    assert!(!in_time.contains("No epoch") && !in_time.contains("hint fault"), "{in_time}");
}

#[test]
fn sweep_draws_each_figure_with_a_line_per_policy() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("swept.html").display().to_string();
    stdout_of(&[&FOUR[..], &["-p", "local,interleave", "--report", &report]].concat());
    let page = fs::read_to_string(&report).unwrap();
    for part in ["chart-time", "node.dram.capacity, MiB", "dram, MB/s", "error_y", "\"name\":\"interleave\""]
    {
        assert!(page.contains(part), "no {part}");
    }
}
