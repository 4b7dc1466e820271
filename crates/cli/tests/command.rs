//! The `memtide` command as its users meet it: answers in three formats, and what it says to careless mistakes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn memtide(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    command.env_remove("COLUMNS").args(args).output().expect("the command starts")
}

/// Standard output of a call that succeeds.
#[track_caller]
fn answer(args: &[&str]) -> String {
    let output = memtide(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&answer(&[args, &["--output", "json"]].concat())).expect("one JSON value")
}

/// A call that is refused with this code and a message that has all these parts.
#[track_caller]
fn refused(code: i32, args: &[&str], parts: &[&str]) {
    let output = memtide(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} printed an answer");
    assert!(error.starts_with("memtide: error: "), "{args:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{args:?} does not say '{part}': {error}");
    }
    for foreign in ["panicked", "Error(", "Some(", "RUST_BACKTRACE"] {
        assert!(!error.contains(foreign), "{args:?}: {error}");
    }
}

fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

const SMALL: &str = "stream:threads=4,footprint_mib=4,iterations=1";

const ROWS: &str =
    "thread,instructions,address,size,write\n0,1,0x10000,8,0\n0,2,0x20000,8,1\n0,3,0x30000,8,0\n";

#[test]
fn names_that_do_not_exist_are_refused_with_the_nearest_and_all_known() {
    refused(
        2,
        &["compare", "-m", "optaen", "-w", SMALL],
        &["'optaen'", "did you mean 'optane'?", "hinuma", "machine file"],
    );
    refused(2, &["machine", "show", "laptpo"], &["did you mean 'laptop'?"]);
    refused(2, &["compare", "-m", "laptop", "-w", "steam"], &["did you mean 'stream'?", "gups"]);
    refused(2, &["workload", "show", "steam"], &["did you mean 'stream'?"]);
    refused(
        2,
        &["compare", "-m", "laptop", "-w", SMALL, "-p", "locall"],
        &["did you mean 'local'?", "bw-random"],
    );
    refused(2, &["policy", "show", "bw-globl"], &["bw-local"]);
    refused(2, &["machine", "probe", "bmpm-2", "--node", "dramm"], &["did you mean 'dram'?", "nvm"]);
    refused(2, &["machine", "probe", "bmpm-2", "--initiator", "x"], &["socket0", "socket1"]);
    refused(2, &["comparr"], &["comparr", "compare"]);
}

#[test]
fn values_out_of_range_are_refused_with_what_is_allowed() {
    refused(2, &["machine", "probe", "laptop", "--load", "0%"], &["--load", "above 0%"]);
    refused(2, &["machine", "probe", "laptop", "--load", "50%,120%"], &["120%", "0% to 100%"]);
    refused(2, &["machine", "probe", "laptop", "--reads", "67"], &["67% or 0.67"]);
    refused(2, &["machine", "probe", "laptop", "--requests", "1"], &["100"]);
    refused(2, &["simulate", "-m", "laptop", "-w", "stream:threads=0"], &["threads", "from 1 to 1024"]);
    refused(2, &["simulate", "-m", "laptop", "-w", "stream:thread=1"], &["thread", "footprint_mib"]);
    refused(
        2,
        &["simulate", "-m", "laptop", "-w", SMALL, "-p", "ratio:weights=0:1"],
        &["weights", "from 1 to 255"],
    );
    refused(2, &["simulate", "-m", "laptop", "-w", SMALL, "--scale", "0"], &["--scale 0", "from 1 to 16384"]);
    refused(2, &["simulate", "-m", "laptop", "-w", SMALL, "--scale", "99999"], &["no memory left"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "-p", "local,local"], &["'local' is named twice"]);
    refused(2, &["simulate", "-m", "laptop"], &["--workload"]);
    refused(2, &["simulate", "-w", SMALL], &["--machine"]);
    refused(2, &["record", "-o", "x"], &["PROGRAM"]);
    refused(125, &["record", "-o", "x", "--", "no-such-program"], &["no-such-program", "give its path"]);
}

#[test]
fn a_wrong_machine_file_is_refused_with_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let good =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml")).unwrap();
    let line = |of: &str| 1 + good.lines().position(|line| line == of).expect("a line of the file");
    let cases = [
        ("ways = 20", "ways = 0", "cache[1].ways", "from 1 to 64"),
        ("channels = 2", "channels = 3", "node[0].timed.channels", "powers of two"),
        ("walk_cycles = 30", "walk_cicles = 30", "walk_cicles", "expected"),
        ("clock_mhz = 3000", "clock_mhz = \"fast\"", "", "expected"),
    ];
    for (from, to, field, says) in cases {
        let path = file(folder.path(), "mine.toml", good.replacen(from, to, 1));
        let place = format!("mine.toml:{}:", line(from));
        refused(3, &["machine", "show", &path], &[&place, field, says]);
        refused(3, &["simulate", "-m", &path, "-w", SMALL], &[&place]);
    }
    let mine = file(folder.path(), "mine.toml", good.replacen("\"laptop\"", "\"mine\"", 1));
    assert!(answer(&["machine", "check", &mine]).contains("sound"));
    refused(3, &["machine", "show", "no/such.toml"], &["no/such.toml", "cannot be read"]);
}

#[test]
fn every_machine_file_is_checked_and_one_that_is_refused_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.toml", "name = 5\n");
    let output = memtide(&["machine", "check", "-o", "json", &bad, "laptop", "no/such.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<_> = answer["checked"].as_array().unwrap().iter().map(|row| &row["verdict"]).collect();
    assert_eq!(verdicts, ["refused", "sound", "refused"]);
    let error = String::from_utf8_lossy(&output.stderr);
    for part in ["bad.toml:1: name: is integer `5`; expected is a text", "no/such.toml"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_report_replaces_reports_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("good.mt").display().to_string();
    answer(&["trace", "import", &rows, "--format", "csv", "--to", &trace]);
    let machine = file(
        folder.path(),
        "mine.toml",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml")),
    );
    let compare = ["compare", "-m", &machine, "-t", &trace, "-p", "local", "--report"];
    for input in [&trace, &machine, &rows] {
        let before = std::fs::read(input).unwrap();
        refused(1, &[&compare[..], &[input]].concat(), &[input, "there already, and no report"]);
        assert_eq!(std::fs::read(input).unwrap(), before);
    }
    let page = file(folder.path(), "page.html", "");
    for _ in 0..2 {
        answer(&[&compare[..], &[&page]].concat());
    }
    assert!(std::fs::metadata(&page).unwrap().len() > 1 << 20);
    let other = folder.path().join("other.csv").display().to_string();
    std::fs::copy(&rows, &other).unwrap();
    let import = ["trace", "import", &rows, "--format", "csv", "--to", &other];
    refused(3, &import, &["other.csv", "there already, and no trace"]);
    refused(1, &[&compare[..], &["no/such/page.html"]].concat(), &["no/such/page.html: cannot be written"]);
    let error = memtide(&[&compare[..], &["no/such/page.html"]].concat()).stderr;
    assert!(!String::from_utf8_lossy(&error).contains("/.tmp"), "a temporary name is shown");
}

#[test]
fn usage_errors_say_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "mine.parquet", b"PAR1\xff\xfe");
    refused(3, &["compare", "-m", &trace, "-w", SMALL], &["mine.parquet", "no machine file", "--trace"]);
    let noise = file(folder.path(), "noise.toml", b"\xff\xfe");
    refused(3, &["compare", "-m", &noise, "-w", SMALL], &["noise.toml", "text in UTF-8"]);
    for option in ["--limit", "--skip"] {
        refused(2, &["compare", "-m", "laptop", option, "5"], &[option, "is for traces", "--trace FILE"]);
    }
    refused(
        2,
        &["compare", "-m", "laptop", "-t", "x", "--limit", "0"],
        &["'0'", "--limit", "numbers from 1"],
    );
    let error = memtide(&["compare", "-m", "laptop", "-t", "x", "--limit", "0"]).stderr;
    assert!(!String::from_utf8_lossy(&error).contains("18446744073709551615"));
    refused(1, &["man", &trace], &["mine.parquet", "it is a file; give a folder"]);
}

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
fn what_cannot_be_written_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["machine", "list"], &["compare", "--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_memtide")).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: cannot be written"));
    }
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
fn traces_that_are_missing_cut_short_damaged_or_foreign_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("good.mt").display().to_string();
    answer(&["trace", "import", &rows, "--format", "csv", "--to", &trace]);
    let bytes = std::fs::read(&trace).unwrap();

    refused(3, &["trace", "info", "no-such.mt"], &["no-such.mt"]);
    let of_folder = folder.path().to_str().unwrap();
    refused(
        3,
        &["trace", "import", of_folder, "--format", "csv", "--to", &trace],
        &["a folder", "give the file"],
    );
    refused(3, &["simulate", "-m", "laptop", "-t", "no-such.mt"], &["no-such.mt"]);
    for keep in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        let short = file(folder.path(), "short.mt", &bytes[..keep]);
        refused(3, &["trace", "info", &short], &["short.mt"]);
        refused(3, &["compare", "-m", "laptop", "-t", &short], &["short.mt"]);
    }
    let mut damaged = bytes.clone();
    damaged[20] ^= 0xff;
    let damaged = file(folder.path(), "damaged.mt", damaged);
    refused(3, &["trace", "info", &damaged], &["damaged.mt", "damaged"]);
    refused(3, &["trace", "info", &rows], &["rows.csv", "memtide record"]);
    refused(2, &["compare", "-m", "laptop", "-t", &trace, "--skip", "3"], &["--skip 3", "has 3 accesses"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "--skip", "3"], &["--trace"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "--limit", "3"], &["--trace"]);
    refused(2, &["compare", "-m", "laptop"], &["--workload", "--trace"]);
    let foreign = file(folder.path(), "bad.csv", ROWS.replace("0x20000", "here"));
    refused(3, &["trace", "import", &foreign, "--format", "csv", "--to", &trace], &["bad.csv:3", "here"]);
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
    assert!(tie.contains("No NUMA hint fault came under bw-local+bw-migration"), "{tie}");
    let alike = verdict(&["-m", "bmpm-5", "-w", small, "-p", "local,local+anb"]);
    assert!(alike.contains("they place pages alike"), "{alike}");
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
    assert!(
        answer(&[&compared[..], &["-p", "local,fast-only"]].concat()).contains("pages swapped out and in")
    );
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
fn lists_name_everything_that_can_be_shown() {
    for (kind, key) in [("machine", "machines"), ("workload", "workloads"), ("policy", "policies")] {
        let list = json(&[kind, "list"]);
        let all = list[key].as_array().unwrap();
        assert!(all.len() >= 9, "{kind}: {}", all.len());
        for entry in all {
            let shown = answer(&[kind, "show", entry["name"].as_str().unwrap()]);
            assert!(shown.contains(entry["summary"].as_str().unwrap()), "{shown}");
        }
    }
    let machines = json(&["machine", "list"]);
    let laptop = machines["machines"].as_array().unwrap().iter().find(|m| m["name"] == "laptop").unwrap();
    assert_eq!(laptop["nodes"], serde_json::json!(["dram"]));
    assert_eq!(json(&["machine", "show", "hinuma"])["node"][1]["given"]["read_latency_ns"], 170.0);
}

#[test]
fn completions_and_man_pages_come_from_the_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = answer(&["completions", shell]);
        assert!(script.contains("memtide") && script.contains("probe"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    answer(&["man", folder.path().join("man1").to_str().unwrap()]);
    for (page, says) in
        [("memtide", "compare"), ("memtide-machine-probe", "reads"), ("memtide-record", "PROGRAM")]
    {
        let text = std::fs::read_to_string(folder.path().join(format!("man1/{page}.1"))).unwrap();
        assert!(text.contains(says) && text.contains("Exit codes"), "{page}");
        assert!(!text.contains("EXTRA") && text.contains(".SH \"EXIT STATUS\""), "{text}");
        let title = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(title.contains("\"memtide 0."), "{title}");
    }
    for (page, program) in [("record", "PROGRAM"), ("run", "PROGRAM"), ("lab-run", "PROGRAM")] {
        let text = std::fs::read_to_string(folder.path().join(format!("man1/memtide-{page}.1"))).unwrap();
        let synopsis = text.split(".SH SYNOPSIS").nth(1).unwrap().lines().nth(1).unwrap();
        assert!(synopsis.contains(&format!("\\-\\- <\\fI{program}")), "{synopsis}");
    }
}

#[test]
fn help_and_version_succeed_and_tell_the_exit_codes() {
    for args in [&["--help"][..], &["compare", "--help"], &["machine", "probe", "--help"]] {
        assert!(answer(args).contains("130 interrupted"), "{args:?}");
    }
    assert!(answer(&["--version"]).starts_with("memtide 0."));
}

#[test]
fn tables_keep_to_the_terminals_width_and_csv_does_not() {
    let at = |columns: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
        let output = command.args(args).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let calls: [&[&str]; 6] = [
        &["compare", "-m", "bmpm-2", "-w", SMALL, "-p", "local,bw-local+bw-migration"],
        &["simulate", "-m", "bmpm-2", "-w", SMALL],
        &["machine", "probe", "bmpm-2", "--load", "50%", "--requests", "1000"],
        &["machine", "show", "bmpm-2"],
        &["workload", "list"],
        &["policy", "show", "anb"],
    ];
    for args in calls {
        let (narrow, wide) = (at("80", args), answer(args));
        assert!(widest(&narrow) <= 80 && widest(&wide) > 80, "{narrow}\n{wide}");
        assert_eq!(at("80", &[args, &["-o", "csv"]].concat()), answer(&[args, &["-o", "csv"]].concat()));
    }
}

#[test]
fn help_is_about_memtide_by_whatever_name_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("file.tmp");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_memtide"), &other).unwrap();
    for args in [&["--help"][..], &["trace", "import"], &["compare", "--nonsense"]] {
        let output = Command::new(&other).args(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains("Usage: memtide") && !text.contains("file.tmp"), "{text}");
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    let mut child = command
        .args(["machine", "show", "hbm"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let long = "stream:footprint_mib=16384,iterations=100000";
    for (to, says) in [(folder.path(), "regular file"), (&pipe, "regular file"), (&pipe.join("x"), "pipe/x")]
    {
        let to = to.to_str().unwrap();
        refused(1, &["compare", "-m", "laptop", "-w", long, "--report", to], &["cannot be written", says]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Interrupts a call after `wait`; it must then end soon, with code 130.
#[track_caller]
fn interrupted(args: &[&str], wait: impl FnOnce()) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtide"));
    let child = command.args(args).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait();
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{args:?} took {:?} to end", asked.elapsed());
    assert_eq!(output.status.code(), Some(130), "{args:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{args:?}");
}

fn a_while() {
    std::thread::sleep(Duration::from_millis(700));
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn an_interrupt_ends_a_run_with_code_130_and_leaves_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html").display().to_string();
    let stream = "stream:footprint_mib=256,iterations=100";
    interrupted(&["compare", "-m", "bmpm-2", "-w", stream, "--report", &report], a_while);
    assert!(is_empty(folder.path()), "a part of the report was left");
}

#[test]
fn an_interrupt_is_obeyed_while_a_workload_is_built_and_late_in_a_probe() {
    interrupted(&["simulate", "-m", "ddr5-cxl", "-w", "pagerank:footprint_mib=1024"], a_while);
    interrupted(&["machine", "probe", "ddr4-2400", "--requests", "20000000", "--load", "50%"], a_while);
}

#[test]
fn an_interrupt_ends_an_import_that_waits_for_its_input_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = tempfile::tempdir().unwrap();
    let (from, to) = (pipe.display().to_string(), out.path().join("trace").display().to_string());
    let mut input = None;
    interrupted(&["trace", "import", &from, "--format", "csv", "--to", &to], || {
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        pipe.write_all(ROWS.as_bytes()).unwrap();
        input = Some(pipe);
        while is_empty(out.path()) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(is_empty(out.path()), "a part of the trace was left");
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
