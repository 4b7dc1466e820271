//! Output of `simulate` and `compare`, in three formats.

use crate::support::call::{ROWS, SMALL, file, json, refused, stdout_of};

#[test]
fn policy_is_shown_with_effective_parameters() {
    let of = |policy: &str| json(&["policy", "show", policy]);
    let names = |parsed: &serde_json::Value| -> Vec<String> {
        let rows = parsed["parameters"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let ratio = of("ratio:weights=4:1");
    assert_eq!((&ratio["policy"], &ratio["kind"]), (&"ratio:weights=4:1".into(), &"placement".into()));
    assert_eq!(names(&ratio), names(&of("ratio")));
    let both = of("local+anb");
    assert_eq!(both["kind"], "placement + migration");
    assert_eq!(names(&both), [names(&of("local")), names(&of("anb"))].concat());
    assert_eq!(of("+anb")["kind"], "migration");
    let value = |parsed: &serde_json::Value, name: &str| -> [String; 2] {
        let rows = parsed["parameters"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).expect("the parameter");
        ["value", "default"].map(|key| row[key].as_str().unwrap().to_owned())
    };
    assert_eq!(value(&ratio, "weights")[0], "4:1");
    assert_eq!(value(&of("local+hot-cold:epoch_ms=50"), "epoch_ms"), ["50", "2000"]);
    assert_eq!(value(&of("+hot-cold:epoch_ms=50"), "epoch_ms"), ["50", "2000"]);
    assert_eq!(value(&of("hot-cold"), "epoch_ms"), ["2000", "2000"]);
    assert!(stdout_of(&["policy", "show", "ratio:weights=4:1"]).contains("4:1  "));
    refused(2, &["policy", "show", "ratio:weight=4"], &["weights"]);
}

#[test]
fn runs_say_what_slice_and_scale_do_to_them() {
    let stream = "stream:footprint_mib=4,iterations=1,threads=4";
    let simulated = |arguments: &[&str]| stdout_of(&[&["simulate", "-w", stream], arguments].concat());
    let text = simulated(&["-m", "ddr5-cxl", "--slice", "1", "--scale", "256", "-p", "local"]);
    for lost in ["'L2' has 48 KiB and a CPU's share of 'L3' 8 KiB", "the prefetcher fetches up to 40 KiB"] {
        assert!(text.contains(&format!("at slice 1 and scale 256, {lost}")), "{text}");
    }
    let shared = "up to 100 % (cxl) go to a node of which this slice has a part of a channel only";
    let text = simulated(&["-m", "ddr5-cxl", "-p", "bind:node=cxl"]);
    assert!(text.contains(shared) && !text.contains("Reduced machine"), "{text}");
    let text = simulated(&["-m", "ddr5-cxl", "-p", "local"]);
    assert!(!text.contains("a part of a channel") && !text.contains("Reduced machine"), "{text}");

    let of_threads = |threads: &str| {
        let gups = format!("gups:footprint_mib=4,operations=1000,threads={threads}");
        stdout_of(&["simulate", "-m", "ddr5-cxl", "-p", "local", "-w", &gups])
    };
    let share = "threads share the 8 CPUs of this slice; the whole machine has 64.";
    assert!(of_threads("16").contains(&format!("16 {share}")));
    assert!(!of_threads("8").contains(share) && !of_threads("65").contains(share));

    let bundled = stdout_of(&["machine", "show", "bmpm-2", "-o", "machine"]);
    let of_deviation = |percent: &str| {
        let kept = bundled.lines().filter(|line| !line.starts_with("reduction_deviation_percent"));
        let text = kept.collect::<Vec<_>>().join("\n");
        let set = format!("\nreduction_deviation_percent = {percent}\nscale = ");
        let folder = tempfile::tempdir().unwrap();
        let machine = file(folder.path(), "m.toml", text.replacen("\nscale = ", &set, 1));
        simulated(&["-m", &machine, "-p", "local"])
    };
    let note = "ratios to local deviate by up to 12.5 % from those of less reduced machines";
    assert!(of_deviation("12.5").contains(note));
    assert!(!of_deviation("4.9").contains("ratios to local deviate"));
    let of_scale = |scale: &str| simulated(&["-m", "memos", "-p", "local", "--scale", scale]);
    assert!(of_scale("32").contains("ratios to local deviate"), "reduced more than where it was measured");
    assert!(!of_scale("8").contains("ratios to local deviate"), "less");
}

#[test]
fn warm_up_is_no_part_of_region() {
    let stages = |warmup: &[&str]| {
        let gups = "gups:footprint_mib=4,operations=20000,threads=1";
        let parsed = json(&[&["simulate", "-m", "bmpm-2", "-p", "local", "-w", gups], warmup].concat());
        let all = parsed["report"]["stages"].as_array().unwrap().clone();
        let of = |stage: &serde_json::Value| {
            (stage["stage"].as_str().unwrap().to_owned(), stage["accesses"].as_u64().unwrap())
        };
        assert_eq!(Some(&parsed["report"]["accesses"]), all.last().map(|stage| &stage["accesses"]));
        all.iter().map(of).collect::<Vec<_>>()
    };
    let whole = stages(&[]);
    assert_eq!(whole.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["initialisation", "region"]);
    let [first, warm_up, region] = &stages(&["--warmup", "10000"])[..] else { panic!("three stages") };
    assert_eq!((first, &*warm_up.0, &*region.0), (&whole[0], "warm-up", "region"));
    assert_eq!(warm_up.1 + region.1, whole[1].1);
    let part = ["--skip", "1000", "--limit", "3000", "--warmup", "1000"];
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite3.parquet");
    let of_part = [&["simulate", "-m", "bmpm-2", "-p", "local", "-t", trace][..], &part].concat();
    let stages: Vec<serde_json::Value> = json(&of_part)["report"]["stages"].as_array().unwrap().clone();
    let names: Vec<&str> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(names, ["warm-up", "region"], "a part of a trace has no initialisation");
    assert_eq!(warm_up.1, 10_000);
}

#[test]
fn errors_name_nodes_policies_and_options() {
    let bound = ["simulate", "-m", "bmpm-2", "-p", "bind:node=nvm", "-w", "gups:footprint_mib=1024"];
    refused(1, &bound, &["policy 'bind:node=nvm' binds the program to nvm, without", "'preferred'"]);
    let gups = "gups:footprint_mib=4,operations=1000,threads=1";
    let warm = ["simulate", "-m", "bmpm-2", "-p", "local", "-w", gups, "--warmup", "1000000"];
    refused(2, &warm, &["--warmup 1000000: program 'gups' ends before its region of interest begins"]);
}

#[test]
fn regions_of_unequal_work_are_reported() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite3.parquet");
    let gups = "gups:threads=2,footprint_mib=4,operations=20000";
    let run = |arguments: &[&str]| stdout_of(&[arguments, &["-m", "bmpm-5", "-t", trace]].concat());
    let early = run(&["simulate", "-p", "local", "-w", gups, "--limit", "200000"]);
    assert!(early.contains("sqlite3 ended before the region of interest of the other programs"), "{early}");
    let copies = ["--copies", "16", "--limit", "20000", "-p", "local,bw-interleave"];
    let unequal = run(&[&["compare", "--warmup", "5000"], &copies[..]].concat());
    assert!(unequal.contains("The regions of interest contain different work: "), "{unequal}");
    let whole = run(&[&["compare"], &copies[..]].concat());
    assert!(!whole.contains("different work") && !whole.contains("ended before"), "{whole}");
}

#[test]
fn trace_info_and_trace_runs() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("three.mt").display().to_string();
    let imported = json(&["trace", "import", &rows, "--format", "csv", "--to", &trace]);
    assert_eq!(imported["imported"][0]["accesses"], 3);
    let info = json(&["trace", "info", &trace]);
    assert_eq!(
        (&info["accesses"], &info["writes"], &info["footprint_pages"]),
        (&3.into(), &1.into(), &3.into())
    );
    let run = json(&["simulate", "-m", "laptop", "-t", &trace]);
    assert_eq!(run["report"]["accesses"], 3);
    assert_eq!(run["program"], "three");
    let limited = json(&["simulate", "-m", "laptop", "-t", &trace, "--limit", "2"]);
    assert_eq!(limited["report"]["accesses"], 2);
}

#[test]
fn moves_by_node_add_up_to_migrated_pages() {
    let gups = "gups:threads=4,operations=100000,footprint_mib=32";
    let run = ["simulate", "-m", "bmpm-5", "-w", gups, "-p", "interleave+hot-cold:epoch_ms=10"];
    let pages = json(&run)["report"]["pages"].clone();
    let moved = pages["moves"].as_array().unwrap().iter().map(|path| path["pages"].as_u64().unwrap());
    assert_eq!(moved.sum::<u64>(), pages["migrated"].as_u64().unwrap());
    assert!(pages["migrated"].as_u64() > Some(1000), "{pages}");
}

#[test]
fn bound_is_in_every_format() {
    let compare =
        ["compare", "-m", "bmpm-5", "-w", "gups:operations=20000,footprint_mib=8", "-p", "local,bw-local"];
    let whole = json(&compare);
    let bound = &whole["bound"];
    let [time, latency, bandwidth] =
        ["time_ms", "latency_ms", "bandwidth_ms"].map(|key| bound[key].as_f64().unwrap());
    assert!(time == latency.max(bandwidth) && time > 0.0, "{bound}");
    for row in whole["policies"].as_array().unwrap() {
        let (over, ms) = (row["over_bound"].as_f64().unwrap(), row["time_ms"].as_f64().unwrap());
        assert!(over >= 1.0 && (over - ms / time).abs() < 1e-9, "{row}");
    }
    let note = format!("bound: {time:.3} ms: no placement or migration of this program can be faster");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let table = stdout_of(&[&compare[..], &["--report", &page]].concat());
    let page = std::fs::read_to_string(&page).unwrap();
    for part in [&note[..], "time over bound"] {
        assert!(table.contains(part) && page.contains(part), "{part}:\n{table}");
    }
    assert!(stdout_of(&[&compare[..], &["-o", "csv"]].concat()).contains("over_bound"));
    let of_two = [&compare[..], &["-w", "gups:operations=20000,footprint_mib=8"]].concat();
    let none = json(&of_two);
    assert!(none["bound"].is_null() && none["policies"][0]["over_bound"].is_null(), "{none}");
    assert!(none["notes"].to_string().contains("no bound: several programs"), "{none}");
}

#[test]
fn idle_node_has_no_latency() {
    let idle = ["simulate", "-m", "bmpm-2", "-w", SMALL, "-p", "fast-only"];
    let nodes = json(&idle)["report"]["nodes"].clone();
    assert!(nodes[0]["latency_mean_ns"].as_f64().unwrap() > 0.0, "{nodes}");
    for key in ["latency_mean_ns", "latency_p99_ns", "row_hit_rate"] {
        assert!(nodes[1][key].is_null(), "{key}: {nodes}");
    }
}

#[test]
fn comparison_has_row_per_policy_in_given_order() {
    let base =
        ["compare", "-m", "bmpm-2", "-w", SMALL, "-p", "interleave,local,ratio:weights=3:1", "--seed", "5"];
    let whole = json(&base);
    let names: Vec<&str> =
        whole["policies"].as_array().unwrap().iter().map(|p| p["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["interleave", "local", "ratio:weights=3:1", "oracle"]);
    assert_eq!(whole["seed"], 5);
    assert_eq!(whole["policies"][1]["speedup"], 1.0);
    assert!(whole["verdict"].as_str().unwrap().contains(" best: "), "{whole}");
    let shares = ["dram_page_share", "nvm_page_share"].map(|key| whole["policies"][2][key].as_f64().unwrap());
    assert!((shares[0] - 0.75).abs() < 0.02 && (shares[0] + shares[1] - 1.0).abs() < 1e-9, "{shares:?}");

    let csv = stdout_of(&[&base[..], &["-o", "csv"]].concat());
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header[..7], ["machine", "slice", "scale", "program", "seed", "memtide", "policy"]);
    let rows: Vec<csv::StringRecord> = csv.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.len() == header.len() && &row[3] == SMALL), "{rows:?}");

    let table = stdout_of(&base);
    for part in ["machine bmpm-2", "seed 5", "speed-up over local", "dram, MB/s", " best: "] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn same_seed_gives_same_output() {
    let base = ["compare", "-m", "bmpm-5", "-w", SMALL, "-p", "local,bw-random", "-o", "json"];
    assert_eq!(stdout_of(&base), stdout_of(&base));
    let probe = ["machine", "probe", "bmpm-2", "--load", "50%", "--requests", "5000", "-o", "csv"];
    assert_eq!(stdout_of(&probe), stdout_of(&probe));
    assert_ne!(stdout_of(&probe), stdout_of(&[&probe[..], &["--seed", "2"]].concat()));
}

#[test]
fn simulation_prints_all_figures_as_json_and_nodes_as_table() {
    let run = json(&["simulate", "-m", "bmpm-2", "-w", SMALL, "-p", "bw-local+bw-migration"]);
    assert_eq!(run["policy"], "bw-local+bw-migration");
    let report = &run["report"];
    assert_eq!(report["nodes"].as_array().unwrap().len(), 2);
    assert!(report["time_ms"].as_f64().unwrap() > 0.0);
    let timeline = &report["timeline"];
    let [time, bucket] = [&report["time_ms"], &timeline["bucket_ms"]].map(|ms| ms.as_f64().unwrap());
    for (rates, node) in
        timeline["bandwidth_mbps"].as_array().unwrap().iter().zip(report["nodes"].as_array().unwrap())
    {
        let rates: Vec<f64> = rates.as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
        assert_eq!(rates.len(), (time / bucket).ceil() as usize, "the timeline omits the run's end");
        let length = |index: usize| (time - index as f64 * bucket).min(bucket);
        let mean = rates.iter().enumerate().map(|(index, rate)| rate * length(index)).sum::<f64>() / time;
        let whole = node["bandwidth_mbps"].as_f64().unwrap();
        assert!((mean - whole).abs() <= whole * 1e-6, "{mean}, expected {whole}");
    }
    for (figure, node) in [("demand_lines", 0), ("prefetch_lines", 0), ("copy_lines", 1)] {
        let buckets = timeline[figure][node].as_array().expect("a list for each node");
        let sum: u64 = buckets.iter().map(|lines| lines.as_u64().expect("a count")).sum();
        assert_eq!(sum, report["nodes"][node][figure].as_u64().unwrap(), "{figure}");
    }
    let last_pages = |node: usize| timeline["pages"][node].as_array().and_then(|pages| pages.last()).cloned();
    assert_eq!(last_pages(1).as_ref(), Some(&report["nodes"][1]["pages"]));
    let csv = stdout_of(&["simulate", "-m", "bmpm-2", "-w", SMALL, "-o", "csv"]);
    assert!(
        csv.contains("user_share,0.") && !csv.contains('%'),
        "shares are fractions, not percentages: {csv}"
    );
    let table = stdout_of(&["simulate", "-m", "bmpm-2", "-w", SMALL]);
    assert!(table.contains("page walks") && table.contains("nvm"), "{table}");
    let fast = stdout_of(&["simulate", "-m", "bmpm-2", "-w", SMALL, "-p", "fast-only"]);
    let unused = fast.lines().find(|line| line.starts_with("nvm ")).expect("a row per node");
    let unused: Vec<&str> = unused.split_whitespace().collect();
    assert_eq!(
        unused[4..12],
        ["0.0", "0.0", "0.0", "0", "0", "-", "-", "-"],
        "a node without reads has no latency:\n{fast}"
    );
}

#[test]
fn program_times_are_in_every_format() {
    let run = ["simulate", "-m", "bmpm-2", "-w", SMALL, "-w", SMALL];
    let report = &json(&run)["report"];
    let times: Vec<f64> =
        report["program_times_ms"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
    assert_eq!(times.len(), 2);
    let [csv, table] = ["csv", "table"].map(|format| stdout_of(&[&run[..], &["-o", format]].concat()));
    for (number, time) in (1..).zip(&times) {
        assert!(csv.contains(&format!("program_{number}_time_ms,{time},ms")), "{csv}");
        let row = table.lines().find(|line| line.starts_with(&format!("program {number} (")));
        assert!(row.is_some_and(|row| row.contains(&format!("{time:.3}"))), "{table}");
    }
}

#[test]
fn heat_map_is_an_image_and_described_in_notes() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("heat.png").display().to_string();
    let run = ["simulate", "-m", "bmpm-2", "-w", "gups:operations=20000,footprint_mib=8", "--heat-map"];
    let whole = json(&[&run[..], &[&image]].concat());
    let note = whole["notes"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(note.starts_with(&format!("heat map {image}: accesses")) && note.contains(" gups: "), "{note}");
    assert!(std::fs::read(&image).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    let table = stdout_of(&[&run[..], &[&image]].concat());
    assert!(table.contains("heat map "), "an image replaces an image: {table}");
    let other = file(folder.path(), "notes.txt", "my notes");
    refused(1, &[&run[..], &[&other]].concat(), &["notes.txt", "it exists and is not a PNG image"]);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "my notes");
}
