//! What the command refuses, and what it says to careless mistakes.

mod support;

use std::process::Command;

use serde_json::json;
use support::call::{ROWS, SMALL, answer, file, memtide, refused};

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
    refused(2, &["measure", "--nodes", "0,250"], &["--nodes", "'0,250' names 250", "known: 0"]);
    refused(2, &["measure", "--initiators", "x"], &["--initiators", "'x' is not a list", "0-2,5 or all"]);
    refused(2, &["record", "-o", "x"], &["PROGRAM"]);
    refused(125, &["record", "-o", "x", "--", "no-such-program"], &["no-such-program", "give its path"]);
    let folder = tempfile::tempdir().unwrap();
    let script = file(folder.path(), "script", "#!/bin/sh -e\n");
    let instead = format!("a script; record what runs it: memtide record -o FILE -- /bin/sh -e {script}");
    refused(125, &["record", "-o", "x", "--", &script], &[&instead]);
}

#[test]
fn a_wrong_machine_file_is_refused_with_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let good =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml")).unwrap();
    let line = |of: &str| 1 + good.lines().position(|line| line == of).expect("a line of the file");
    let cases = [
        ("ways = 20", "ways = 0", "cache[1].ways", "from 1 to 64"),
        ("channels = 2", "channels = 3", "node[0].dram.channels", "power of two"),
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
    for part in ["bad.toml:1: name: is integer `5`; expected a string", "no/such.toml"] {
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
        refused(1, &[&compare[..], &[input]].concat(), &[input, "exists and is not a report"]);
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
    refused(3, &import, &["other.csv", "exists and is not a trace"]);
    refused(1, &[&compare[..], &["no/such/page.html"]].concat(), &["no/such/page.html: cannot be written"]);
    let error = memtide(&[&compare[..], &["no/such/page.html"]].concat()).stderr;
    assert!(!String::from_utf8_lossy(&error).contains("/.tmp"), "a temporary name is shown");
}

#[test]
fn usage_errors_say_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "mine.parquet", b"PAR1\xff\xfe");
    refused(3, &["compare", "-m", &trace, "-w", SMALL], &["mine.parquet", "not a machine file", "--trace"]);
    let noise = file(folder.path(), "noise.toml", b"\xff\xfe");
    refused(3, &["compare", "-m", &noise, "-w", SMALL], &["noise.toml", "UTF-8 text"]);
    for option in ["--limit", "--skip"] {
        refused(2, &["compare", "-m", "laptop", option, "5"], &[option, "is for traces", "--trace FILE"]);
    }
    refused(
        2,
        &["compare", "-m", "laptop", "-t", "x", "--limit", "0"],
        &["'0'", "--limit", "an integer from 1"],
    );
    let error = memtide(&["compare", "-m", "laptop", "-t", "x", "--limit", "0"]).stderr;
    assert!(!String::from_utf8_lossy(&error).contains("18446744073709551615"));
    let measured = file(folder.path(), "measured.json", r#"{"nodes": []}"#);
    for (option, value) in [("--measured", measured.as_str()), ("--name", "mine")] {
        for output in ["table", "json", "picture"] {
            refused(2, &["topo", "-o", output, option, value], &[option, "add -o machine"]);
        }
    }
    refused(1, &["man", &trace], &["mine.parquet", "it is a file; name a folder"]);
}

#[test]
fn measured_figures_that_make_no_machine_are_refused_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let host = memtide_linux::topology::System::read().unwrap();
    let mut rows = Vec::new();
    for from in host.with_cpus() {
        for to in host.with_memory() {
            rows.push(json!({"initiator": from.id, "node": to.id, "idle_ns": -1.0, "read_mbps": 5e3}));
        }
    }
    let topo = ["topo", "-o", "machine", "--measured"];
    let wrong = file(folder.path(), "wrong.json", json!({ "nodes": rows }).to_string());
    let says =
        ["wrong.json: its figures are not a valid machine", "read_latency_ns", "memtide measure -o json >"];
    refused(3, &[&topo[..], &[&wrong]].concat(), &says);
    let noise = file(folder.path(), "noise.json", "{}");
    refused(3, &[&topo[..], &[&noise]].concat(), &["noise.json: is not what `memtide measure -o json`"]);
    if host.with_memory().all(|node| node.firmware.is_none()) {
        let empty = file(folder.path(), "empty.json", r#"{"nodes": []}"#);
        refused(3, &[&topo[..], &[&empty]].concat(), &["empty.json: latency and bandwidth of", "measure again"]);
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["machine", "list"], &["compare", "--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(support::MEMTIDE).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: cannot be written"));
    }
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
    for (command, parts) in [
        (&["trace", "info"][..], ["rows.csv: not a Parquet file", "memtide record", "memtide trace import"]),
        (&["simulate", "-m", "laptop", "-t"], ["rows.csv", "memtide record -o FILE", "memtide trace import"]),
    ] {
        refused(3, &[command, &[&rows]].concat(), &parts);
    }
    refused(2, &["compare", "-m", "laptop", "-t", &trace, "--skip", "3"], &["--skip 3", "has 3 accesses"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "--skip", "3"], &["--trace"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "--limit", "3"], &["--trace"]);
    refused(2, &["compare", "-m", "laptop"], &["--workload", "--trace"]);
    let foreign = file(folder.path(), "bad.csv", ROWS.replace("0x20000", "here"));
    refused(3, &["trace", "import", &foreign, "--format", "csv", "--to", &trace], &["bad.csv:3", "here"]);
}

#[test]
fn a_file_that_is_no_journal_and_a_policy_that_cannot_be_asked_have_their_own_codes() {
    let folder = tempfile::tempdir().unwrap();
    let noise = file(folder.path(), "noise", ROWS);
    refused(3, &["replay", &noise], &["noise: not a memtide journal"]);
    let machine = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/hinuma.toml"));
    let journal = |format: u32| {
        let head = json!({"format": format, "memtide": "0", "begun_unix_s": 0, "policy": "hot-cold",
                          "machine": machine, "state": "x"});
        let head = zstd::encode_all(json!({ "head": head }).to_string().as_bytes(), 1).unwrap();
        file(folder.path(), &format!("journal{format}"), head)
    };
    refused(3, &["replay", &journal(1)], &["format 1, by memtide 0; this version reads format 2"]);
    let journal = journal(2);
    assert!(answer(&["replay", &journal, "-p", "hot-cold"]).contains("1970-01-01T00:00:00Z"));
    refused(3, &["replay", &journal], &["journal2: record 1", "state"]);
    refused(
        2,
        &["replay", &journal, "-p", "bw-migration"],
        &["journal2: policy 'bw-migration'", "does not contain"],
    );
    refused(2, &["replay", &journal, "-p", "anb"], &["'anb'", "in the kernel"]);
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
