//! Output of `machine show`, `probe` and `devices`.

use crate::support::call::{json, memtide, refused, stdout_of};

#[test]
fn machine_show_applies_slice_and_scale() {
    let show = |args: &[&str]| json(&[&["machine", "show", "ddr5-cxl"], args].concat());
    let capacity = |args: &[&str]| show(args)["node"][0]["capacity_mib"].as_u64().unwrap();
    let whole = capacity(&[]);
    let [slice, scale] = ["slice", "scale"].map(|key| show(&[])[key].as_u64().unwrap());
    assert!(slice * scale > 1);
    assert_eq!(capacity(&["--reduced"]), whole / slice / scale);
    for scale in [&["--scale", "2"][..], &["--scale=2"]] {
        assert_eq!(capacity(scale), whole / slice / 2);
    }
    for slice in [&["--slice", "4"][..], &["--slice=4"]] {
        let all = [slice, &["--scale", "2"]].concat();
        assert_eq!(capacity(&all), whole / 8);
        assert_eq!(show(&all)["initiator"][0]["cpus"], 8);
        assert_eq!(show(&all)["slice"], 1);
    }
    refused(2, &["machine", "show", "ddr5-cxl", "--slice", "5"], &["'--slice'", "1, 2, 4, 8, 16, 32"]);
    let figure = |args: &[&str], path: &str| {
        let shown = stdout_of(&[&["machine", "show", "ddr5-cxl"], args].concat());
        shown.lines().find(|line| line.starts_with(path)).expect("a figure").to_owned()
    };
    let from = format!("reduced from {whole}: ");
    assert!(figure(&["--reduced"], "node.dram0.capacity_mib").contains(&from));
    assert!(!figure(&[], "node.dram0.capacity_mib").contains("reduced from"));
    assert!(!figure(&["--reduced"], "core.clock_mhz").contains("reduced from"));
    assert!(figure(&[], "reduction_deviation_percent").ends_with("memtide: scripts/reductions"));
}

#[test]
fn csv_of_probe_is_the_curve_on_every_machine() {
    for machine in ["laptop", "optane"] {
        let probe = ["machine", "probe", machine, "--load", "50%", "--requests", "2000", "-o", "csv"];
        let text = stdout_of(&probe);
        assert!(text.lines().next().is_some_and(|header| header.contains("achieved_mbps,mean_ns")), "{text}");
    }
}

#[test]
fn probe_matches_shown_idle_latency_and_peak() {
    for name in ["bmpm-2", "pms", "optane"] {
        let probe = json(&["machine", "probe", name, "--load", "50%", "--requests", "20000"]);
        let shown = stdout_of(&["machine", "show", name]);
        for row in probe["nodes"].as_array().unwrap() {
            let (from, node) = (row["initiator"].as_str().unwrap(), row["node"].as_str().unwrap());
            let of_row = |line: &&str| line.split_whitespace().take(2).eq([from, node]);
            let line: Vec<&str> =
                shown.lines().find(of_row).expect("the same row").split_whitespace().collect();
            let idle: f64 = line[4].parse().unwrap();
            let measured = row["idle_ns"].as_f64().unwrap();
            // A chase also meets refreshes and, with open rows, row conflicts.
            assert!(
                (0.99..1.2).contains(&(measured / idle)),
                "{name} {from} {node}: {measured}, expected {idle}"
            );
            let closed = row["closed_row_ns"].as_f64();
            assert!(closed.is_none_or(|closed| (closed - idle).abs() < 0.1), "{closed:?}, expected {idle}");
        }
        assert_eq!(probe["curve"].as_array().unwrap().len(), probe["nodes"].as_array().unwrap().len());
        for row in probe["curve"].as_array().unwrap() {
            let [mean, p99] = ["mean_ns", "p99_ns"].map(|key| row[key].as_f64().unwrap());
            assert!(row["saturated"].is_boolean(), "{row}");
            assert!(mean > 0.0 && p99 > mean && row["achieved_mbps"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn probe_prints_map_hashes_and_page_policy_of_each_dram_device() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hashed.toml");
    let machine = stdout_of(&["machine", "show", "bmpm-2", "-o", "machine"]);
    // One device has a hash of its own and leaves rows open, the other stays as it is.
    let (before, nvm) = machine.split_at(machine.rfind("[node.dram]").unwrap());
    let hash = "address_hash = [\"rank[0] ^= column[3] ^ row[9]\"]";
    let nvm = nvm.replacen("address_hash = []", hash, 1).replacen("\"closed\"", "\"open\"", 1);
    std::fs::write(&file, format!("{before}{nvm}")).unwrap();
    let file = file.to_str().unwrap();
    let probe = json(&["machine", "probe", file, "--load", "50%", "--requests", "1000"]);
    let devices = probe["devices"].as_array().unwrap();
    let of_rows = ["bank[0]^=row[0]", "bank[1]^=row[1]", "bank_group[0]^=row[2]", "bank_group[1]^=row[3]"];
    let map = "row 33-18 | column 17-14 | rank 13 | bank 12-11 | column 10-8 | bank_group 7-6";
    assert_eq!(devices.len(), 2);
    for (device, (policy, own)) in
        devices.iter().zip([("closed", None), ("open", Some("rank[0]^=column[3]^row[9]"))])
    {
        let hashes: Vec<&str> = of_rows.into_iter().chain(own).collect();
        assert_eq!(device["address_map"], map, "{device}");
        assert_eq!(device["address_hash"], serde_json::json!(hashes), "{device}");
        assert_eq!((&device["page_policy"], &device["open_rows"]), (&policy.into(), &1.into()), "{device}");
    }
    let fixed = json(&["machine", "probe", "optane", "--load", "50%", "--requests", "1000"]);
    assert!(fixed.get("devices").is_none(), "it has no dram device");
}

#[test]
fn probe_says_that_requests_are_too_few() {
    let probe = ["machine", "probe", "optane", "--load", "50%", "--requests", "1000"];
    let warning = "1000 requests are fewer than the 200000 ";
    assert!(stdout_of(&probe).contains(warning));
    let json = memtide(&[&probe[..], &["-o", "json"]].concat());
    assert!(String::from_utf8_lossy(&json.stderr).contains(warning));
}

#[test]
fn probe_in_flight_obeys_littles_law_and_default_curve_rises_to_the_cap() {
    let probe = ["machine", "probe", "ddr5-cxl", "--initiator", "socket0", "--node", "cxl", "--requests"];
    let closed = json(&[&probe[..], &["20000", "--in-flight", "1,64"]].concat());
    for row in closed["curve"].as_array().unwrap() {
        let of = |key: &str| row[key].as_f64().unwrap();
        let in_flight = of("achieved_mbps") / 64e3 * of("mean_ns");
        assert!((in_flight / of("reads_in_flight") - 1.0).abs() < 0.03, "{row}");
        assert!(row["load_share"].is_null(), "{row}");
    }
    let open = json(&[&probe[..], &["100000"]].concat());
    let node = &open["nodes"][0];
    let [peak, cap] = ["peak_mbps", "cap_mbps"].map(|key| node[key].as_f64().unwrap());
    assert!(peak == 24_000.0 && (0.99..1.01).contains(&(cap / peak)), "the link's bandwidth: {node}");
    let curve: Vec<(f64, f64)> = open["curve"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["offered_mbps"].as_f64().unwrap() / cap, row["mean_ns"].as_f64().unwrap()))
        .collect();
    assert!(curve.len() >= 7 && curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{curve:?}");
    assert!((curve[0].0 - 0.05).abs() < 0.002 && (curve.last().unwrap().0 - 0.95).abs() < 0.01, "{curve:?}");
}

#[test]
fn every_device_is_listed_with_sources_and_a_probed_row_in_its_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/devices.md");
    let page = std::fs::read_to_string(page).unwrap();
    let listed = json(&["machine", "devices"]);
    let devices = listed["devices"].as_array().unwrap();
    assert!(devices.len() >= 8);
    for row in devices {
        let (name, channels) = (row["name"].as_str().unwrap(), row["channels"].as_f64().unwrap());
        let peak_mbps = channels * row["channel_mbps"].as_f64().unwrap();
        let begin = format!("| `{name}` | {channels} | {peak_mbps:.0} |");
        assert!(page.contains(&begin), "docs/devices.md lacks {begin}: run scripts/devices");
        let fields = json(&["machine", "devices", name]);
        for field in fields["fields"].as_array().unwrap() {
            assert!(field["source"].as_str().is_some_and(|source| source.len() > 3), "{name}: {field}");
        }
    }
}
