//! Figures of a machine set for one run, and swept.

mod support;

use support::call::{file, json, refused, stdout_of};

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
    assert_eq!(swept["knees"][0]["good_from"], "10%");

    let two = ["--set", "core.reorder_buffer=32,512", "--set", "node.dram0.capacity=50%,100%"];
    let swept = sweep(&[&two[..], &["-p", "local,interleave"]].concat());
    let rows = swept["points"].as_array().unwrap();
    let values = |row: &serde_json::Value| {
        ["core.reorder_buffer", "node.dram0.capacity", "policy"]
            .map(|key| row[key].as_str().unwrap().to_owned())
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
    ] {
        refused(2, &["sweep", "-m", "ddr5-cxl", "-w", stream, "--set", set], &[says]);
    }
    let endless: Vec<&str> = ["--set", "core.reorder_buffer=1..4096"].repeat(7);
    let endless = [&["sweep", "-m", "hbm", "-w", stream, "--points", "1000"], &endless[..]].concat();
    refused(2, &endless, &["runs; at most 100000"]);
    let many = ["core.reorder_buffer=1..4096", "core.store_queue=1..1024"].map(|set| ["--set", set]).concat();
    let many = [&["sweep", "-m", "hbm", "-w", stream, "--points", "1000"], &many[..]].concat();
    refused(2, &many, &["1000000 runs; at most 100000"]);
}
