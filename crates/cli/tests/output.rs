//! Output of the command, in three formats.

mod support;

use support::call::{ROWS, SMALL, file, json, memtide, refused, stdout_of};

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
fn csv_of_probe_is_the_curve_on_every_machine() {
    for machine in ["laptop", "optane"] {
        let probe = ["machine", "probe", machine, "--load", "50%", "--requests", "2000", "-o", "csv"];
        let text = stdout_of(&probe);
        assert!(text.lines().next().is_some_and(|header| header.contains("achieved_mbps,mean_ns")), "{text}");
    }
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
    assert!(same.contains("they place pages alike"), "{same}");
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
        assert!(whole["policies"][1]["migrated_pages"].as_u64().unwrap() > 0, "{trace}: {whole}");
    }
}

#[test]
fn single_memory_node_leaves_nothing_to_place() {
    let verdict =
        json(&["compare", "-m", "laptop", "-w", SMALL, "-p", "local,interleave"])["verdict"].clone();
    assert_eq!(verdict, "laptop has a single memory node, dram: there is nothing to place.");
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
