//! What the command answers, in three formats.

mod support;

use support::call::{ROWS, SMALL, answer, file, json, refused};

#[test]
fn a_policy_is_shown_as_it_is_run() {
    let of = |policy: &str| json(&["policy", "show", policy]);
    let names = |answer: &serde_json::Value| -> Vec<String> {
        let rows = answer["parameters"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let ratio = of("ratio:weights=4:1");
    assert_eq!((&ratio["policy"], &ratio["kind"]), (&"ratio:weights=4:1".into(), &"placement".into()));
    assert_eq!(names(&ratio), names(&of("ratio")));
    let both = of("local+anb");
    assert_eq!(both["kind"], "placement + migration");
    assert_eq!(names(&both), [names(&of("local")), names(&of("anb"))].concat());
    assert_eq!(of("+anb")["kind"], "migration");
    refused(2, &["policy", "show", "ratio:weight=4"], &["weights"]);
}

#[test]
fn a_machine_is_shown_at_its_scale_or_another() {
    let capacity =
        |args: &[&str]| json(&[&["machine", "show"], args].concat())["node"][0]["capacity_mib"].clone();
    let whole = capacity(&["ddr5-cxl"]).as_u64().unwrap();
    let scale = json(&["machine", "show", "ddr5-cxl"])["scale"].as_u64().unwrap();
    assert!(scale > 1);
    assert_eq!(capacity(&["--scale", "ddr5-cxl"]), whole / scale);
    assert_eq!(capacity(&["ddr5-cxl", "--scale=2"]), whole / 2);
}

#[test]
fn a_trace_says_what_it_holds_and_runs() {
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
fn the_verdict_names_ties_what_could_not_migrate_and_no_node_busier_than_it_can_be() {
    let verdict = |arguments: &[&str]| {
        json(&[&["compare"], arguments].concat())["verdict"].as_str().expect("a verdict").to_owned()
    };
    let small = "gups:operations=20000,footprint_mib=8";
    let tie = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,bw-local,bw-local+bw-migration"]);
    assert!(tie.contains("bw-local and bw-local+bw-migration are equally best"), "{tie}");
    assert!(tie.contains("No NUMA hint fault occurred under bw-local+bw-migration"), "{tie}");
    let alike = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+anb"]);
    assert!(alike.contains("they place pages alike"), "{alike}");
    let early = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+hot-cold"]);
    assert!(
        early.contains("No epoch ended under local+hot-cold,") && !early.contains("hint fault"),
        "{early}"
    );
    let in_time = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+hot-cold:epoch_ms=10"]);
    assert!(!in_time.contains("No epoch"), "{in_time}");
    let triad = "stream:kernel=triad,threads=16,footprint_mib=48,iterations=1";
    let link = verdict(&["-m", "ddr5-cxl", "-w", triad, "-p", "local,ratio:weights=1:1"]);
    let busy = link.split("cxl is ").nth(1).and_then(|rest| rest.split(" %").next()).expect("a busy node");
    let busy: f64 = busy.parse().expect("a share");
    assert!((70.0..=100.0).contains(&busy), "{link}");
}

#[test]
fn a_comparison_has_a_row_a_policy_in_the_order_asked_in_every_format() {
    let base =
        ["compare", "-m", "bmpm-2", "-w", SMALL, "-p", "interleave,local,ratio:weights=3:1", "--seed", "5"];
    let whole = json(&base);
    let names: Vec<&str> =
        whole["policies"].as_array().unwrap().iter().map(|p| p["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["interleave", "local", "ratio:weights=3:1"]);
    assert_eq!(whole["seed"], 5);
    assert_eq!(whole["policies"][1]["speedup"], 1.0);
    assert!(whole["verdict"].as_str().unwrap().contains(" best: "), "{whole}");
    let shares = ["dram_page_share", "nvm_page_share"].map(|key| whole["policies"][2][key].as_f64().unwrap());
    assert!((shares[0] - 0.75).abs() < 0.02 && (shares[0] + shares[1] - 1.0).abs() < 1e-9, "{shares:?}");

    let csv = answer(&[&base[..], &["-o", "csv"]].concat());
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header[..7], ["machine", "scale", "program", "seed", "memtide", "policy", "time_ms"]);
    let rows: Vec<csv::StringRecord> = csv.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.len() == header.len() && &row[2] == SMALL), "{rows:?}");

    let table = answer(&base);
    for part in ["machine bmpm-2", "seed 5", "speed-up over local", "dram, MB/s", " best: "] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn the_verdict_tells_of_swapping_and_calls_no_tie_a_win() {
    // 20 MiB do not fit into the fast node, of 16 MiB at this scale, but into both.
    let compared =
        ["compare", "-m", "bmpm-2", "--scale", "1024", "-w", "stream:footprint_mib=20,iterations=1"];
    let whole = json(&[&compared[..], &["-p", "local,fast-only"]].concat());
    let verdict = whole["verdict"].as_str().unwrap();
    assert!(verdict.contains("Under fast-only memory runs out"), "{whole}");
    let swapped = [0, 1].map(|row| whole["policies"][row]["swapped_pages"].as_u64().unwrap());
    assert!(swapped[0] == 0 && swapped[1] > 1000, "{whole}");
    assert!(answer(&[&compared[..], &["-p", "local,fast-only"]].concat()).contains("pages swapped"));
    assert!(!answer(&[&compared[..], &["-p", "local"]].concat()).contains("swapped"));
    let tied = ["-m", "bmpm-1", "--scale", "2048", "-w", "stream:footprint_mib=20,iterations=1"];
    let tied = json(&[&["compare", "-p", "local,local+anb,interleave"], &tied[..]].concat());
    let verdict = tied["verdict"].as_str().unwrap();
    assert!(!verdict.contains("1.00 times") && !verdict.contains("1.01 times"), "{verdict}");
    let best = verdict.split(" are equally best").next().expect("a first part");
    assert!(
        verdict.contains("as fast as local+anb") && best.contains("local") && best.contains("interleave"),
        "{verdict}"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let base = ["compare", "-m", "bmpm-5", "-w", SMALL, "-p", "local,bw-random", "-o", "json"];
    assert_eq!(answer(&base), answer(&base));
    let probe = ["machine", "probe", "bmpm-2", "--load", "50%", "--requests", "5000", "-o", "csv"];
    assert_eq!(answer(&probe), answer(&probe));
    assert_ne!(answer(&probe), answer(&[&probe[..], &["--seed", "2"]].concat()));
}

#[test]
fn a_simulation_shows_everything_as_json_and_every_node_as_a_table() {
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
        assert_eq!(rates.len(), (time / bucket).ceil() as usize, "the run's end is left out");
        let length = |index: usize| (time - index as f64 * bucket).min(bucket);
        let mean = rates.iter().enumerate().map(|(index, rate)| rate * length(index)).sum::<f64>() / time;
        let whole = node["bandwidth_mbps"].as_f64().unwrap();
        assert!((mean - whole).abs() <= whole * 1e-6, "{mean} against {whole}");
    }
    let csv = answer(&["simulate", "-m", "bmpm-2", "-w", SMALL, "-o", "csv"]);
    assert!(
        csv.contains("user_share,0.") && !csv.contains('%'),
        "shares go to 1, and are no per cent: {csv}"
    );
    let table = answer(&["simulate", "-m", "bmpm-2", "-w", SMALL]);
    assert!(table.contains("page walks") && table.contains("nvm"), "{table}");
    let fast = answer(&["simulate", "-m", "bmpm-2", "-w", SMALL, "-p", "fast-only"]);
    let unused = fast.lines().find(|line| line.starts_with("nvm ")).expect("a row a node");
    let unused: Vec<&str> = unused.split_whitespace().collect();
    assert_eq!(unused[4..9], ["0.0", "0.0", "-", "-", "-"], "a node without reads has no latency:\n{fast}");
}

#[test]
fn a_probe_finds_the_idle_latency_and_peak_that_show_tells() {
    for name in ["bmpm-2", "pms", "optane"] {
        let probe = json(&["machine", "probe", name, "--load", "50%", "--requests", "20000"]);
        let shown = answer(&["machine", "show", name]);
        for row in probe["nodes"].as_array().unwrap() {
            let (from, node) = (row["initiator"].as_str().unwrap(), row["node"].as_str().unwrap());
            let of_row = |line: &&str| line.split_whitespace().take(2).eq([from, node]);
            let line: Vec<&str> =
                shown.lines().find(of_row).expect("the same row").split_whitespace().collect();
            let idle: f64 = line[4].parse().unwrap();
            let measured = row["idle_ns"].as_f64().unwrap();
            // A chase meets refreshes and, where rows stay open, rows that must be closed first.
            assert!(
                (0.99..1.2).contains(&(measured / idle)),
                "{name} {from} {node}: {measured} against {idle}"
            );
            let closed = row["closed_row_ns"].as_f64();
            assert!(closed.is_none_or(|closed| (closed - idle).abs() < 0.1), "{closed:?} against {idle}");
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
fn the_demonstration_shows_what_placement_is_worth() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite3.parquet");
    let demo = [
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
    let whole = json(&demo);
    assert_eq!(whole["program"], "16 x sqlite3 [200000 accesses from 0]");
    let [local, random] = [0, 1].map(|row| &whole["policies"][row]);
    assert!(random["speedup"].as_f64().unwrap() > 1.1, "{random}");
    assert!(
        local["llc_misses_per_kilo_instruction"].as_f64().unwrap() > 1.0,
        "the trace stays in the caches: {local}"
    );
    let mbps: f64 =
        ["dram", "nvm"].iter().map(|n| random[format!("{n}_bandwidth_mbps")].as_f64().unwrap()).sum();
    assert!(mbps > 5_000.0, "{mbps} MB/s is no load");
}
