//! Refused input, and messages for common mistakes.

use crate::support;
use std::process::Command;

use crate::support::call::{ROWS, SMALL, file, memtide, refused, stdout_of};
use serde_json::json;

#[test]
fn unknown_names_are_refused_with_suggestion_and_list() {
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
fn out_of_range_values_are_refused_with_range() {
    refused(2, &["machine", "probe", "laptop", "--load", "0%"], &["--load", "above 0%"]);
    refused(2, &["machine", "probe", "laptop", "--load", "50%,120%"], &["120%", "0% to 100%"]);
    refused(2, &["machine", "probe", "laptop", "--reads", "67"], &["67% or 0.67"]);
    refused(2, &["machine", "probe", "laptop", "--in-flight", "0"], &["1"]);
    refused(2, &["machine", "devices", "hbm4"], &["'hbm4'", "hbm3", "ddr5-4800"]);
    refused(2, &["machine", "probe", "laptop", "--in-flight", "1", "--reads", "0%"], &["--reads above 0%"]);
    refused(2, &["machine", "probe", "laptop", "--in-flight", "8193"], &["from 1 to 8192"]);
    for ignored in [["--load", "50%"], ["--reads", "50%"]] {
        let chase = ["machine", "probe", "laptop", "--pattern", "chase"];
        refused(2, &[&chase[..], &ignored].concat(), &["--pattern chase", "without --load and --reads"]);
    }
    refused(2, &["machine", "probe", "laptop", "--requests", "1"], &["100"]);
    refused(2, &["machine", "probe", "laptop", "--load", "-5%"], &["'-5%' is outside 0% to 100%"]);
    let folder = tempfile::tempdir().unwrap();
    let machine = file(folder.path(), "machine.toml", "a user's own");
    let out = folder.path().to_str().unwrap();
    refused(2, &["validate", "--size", "8", "--out", out], &["machine.toml exists", "--out"]);
    assert_eq!(std::fs::read_to_string(machine).unwrap(), "a user's own");
    refused(2, &["simulate", "-m", "laptop", "-w", "stream:threads=0"], &["threads", "from 1 to 1024"]);
    refused(2, &["simulate", "-m", "laptop", "-w", "stream:thread=1"], &["thread", "footprint_mib"]);
    refused(
        2,
        &["simulate", "-m", "laptop", "-w", SMALL, "-p", "ratio:weights=0:1"],
        &["weights", "from 1 to 255"],
    );
    refused(
        2,
        &["simulate", "-m", "laptop", "-w", SMALL, "--scale", "0"],
        &["invalid value '0' for '--scale'", "an integer from 1 to 16384"],
    );
    let laptop = ["simulate", "-m", "laptop", "-w", SMALL, "--scale", "99999"];
    refused(2, &laptop, &["so that each node of 'laptop' has memory"]);
    refused(2, &["compare", "-m", "laptop", "-w", SMALL, "-p", "local,local"], &["'local' is named twice"]);
    for option in ["--copies", "--seed", "--scale"] {
        let negative = ["simulate", "-m", "laptop", "-w", SMALL, option, "-1"];
        refused(2, &negative, &[&format!("invalid value '-1' for '{option}"), "an integer"]);
    }
    refused(2, &["simulate", "-m", "laptop"], &["--workload"]);
    refused(2, &["simulate", "-w", SMALL], &["--machine"]);
    refused(2, &["measure", "--nodes", "0,250"], &["--nodes", "'0,250' names 250", "known: 0"]);
    refused(2, &["measure", "--initiators", "x"], &["--initiators", "'x' is not a list", "0-2,5 or all"]);
    refused(2, &["record", "-o", "x"], &["PROGRAM"]);
    refused(127, &["record", "-o", "x", "--", "no-such-program"], &["no-such-program", "give its path"]);
    let folder = tempfile::tempdir().unwrap();
    let script = file(folder.path(), "script", "#!/bin/sh -e\n");
    let instead = format!("a script; record what runs it: memtide record -o FILE -- /bin/sh -e {script}");
    refused(126, &["record", "-o", "x", "--", &script], &[&instead]);
}

/// As `env` and `timeout` do.
#[test]
fn missing_program_is_127_and_not_executable_126() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "data", "not a program");
    let missing = folder.path().join("missing").display().to_string();
    let trace = folder.path().join("trace").display().to_string();
    let mut runs = vec![vec!["run", "-p", "local"], vec!["record", "-o", &trace]];
    if support::lab_is_here() {
        runs.push(vec!["lab", "run", "-m", "hinuma"]);
    }
    let folder = folder.path().display().to_string();
    for run in runs {
        for (program, code) in
            [("no-such-program", 127), (&missing, 127), (&data, 126), (&folder, 126), ("/etc/passwd", 126)]
        {
            let output = memtide(&[&run[..], &["--", program]].concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{run:?} {program}: {stderr}");
            assert!(stderr.contains(program), "{run:?}: {stderr}");
        }
    }
}

#[test]
fn fifo_or_folder_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo.toml");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let [fifo, folder] = [fifo.as_path(), folder.path()].map(|path| path.display().to_string());
    for (path, says) in [(&fifo, "not a regular file"), (&folder, "a folder")] {
        refused(3, &["trace", "info", path], &[path, says]);
        refused(3, &["simulate", "-m", "laptop", "--trace", path], &[path, says]);
    }
    refused(3, &["machine", "show", &fifo], &[&fifo]);
    refused(3, &["replay", &fifo], &[&fifo]);
    for command in [
        &["machine", "show"][..],
        &["simulate", "-w", SMALL, "-m"],
        &["daemon", "--check", "--config"],
        &["replay"],
        &["topo", "-o", "machine", "--measured"],
    ] {
        refused(3, &[command, &[&folder]].concat(), &[&folder, "it is a folder; give a file"]);
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let name = "a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}b";
    let rows = file(folder.path(), &format!("{name}.csv"), ROWS);
    let trace = folder.path().join(format!("{name}.mt")).display().to_string();
    let machine = file(folder.path(), &format!("{name}.toml"), "name = 5\n");
    let valid = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml"));
    let odd =
        valid.replacen("summary = \"", "summary = \"\\u001b[2J", 1).replacen("\"laptop\"", "\"mine\"", 1);
    let odd = file(folder.path(), "odd.toml", odd);
    let calls: [&[&str]; 9] = [
        &["trace", "import", &rows, "--format", "csv", "--to", &trace],
        &["trace", "info", &trace],
        &["simulate", "-m", "laptop", "-t", &trace],
        &["compare", "-m", "laptop", "-t", &trace, "-p", "local"],
        &["machine", "check", &machine, &odd],
        &["machine", "show", &odd],
        &["machine", "show", name],
        &["compare", "-m", "laptop", "-w", name],
        &[name],
    ];
    for args in calls {
        let output = memtide(args);
        for text in [output.stdout, output.stderr] {
            let text = String::from_utf8(text).unwrap();
            let unsafe_char = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!text.contains(unsafe_char), "{args:?}: {text:?}");
        }
    }
    let info = stdout_of(&["trace", "info", &trace]);
    assert!(info.contains("a\\u{1b}]0;title\\u{7}"), "the name is printed escaped: {info}");
}

#[test]
fn binary_import_error_has_short_escaped_excerpt() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("trace").display().to_string();
    let bytes: Vec<u8> = (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let long = format!("{}{}\n", ROWS, "0,5,".to_owned() + &"\u{1b}x".repeat(2000) + ",8,0");
    for (name, content) in [("noise.csv", bytes), ("long.csv", long.into_bytes())] {
        let from = file(folder.path(), name, content);
        let error = memtide(&["trace", "import", &from, "--format", "csv", "--to", &to]).stderr;
        let error = String::from_utf8(error).unwrap();
        assert!(error.contains(name) && error.len() < from.len() + 300, "{} bytes: {error}", error.len());
        assert!(!error.contains(|c: char| c.is_control() && c != '\n'), "{error:?}");
    }
}

#[test]
fn invalid_machine_name_is_refused() {
    let named = "--name: is \"a b\"; must be made of letters, digits";
    let output = memtide(&["topo", "-o", "machine", "--name", "a b"]);
    let error = String::from_utf8(output.stderr).unwrap();
    // A system without firmware figures is refused for that, whatever the name.
    assert!(error.contains(named), "{error}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn non_numbers_are_refused_with_range() {
    let simulate = ["simulate", "-m", "laptop", "-w", SMALL];
    let with = |more: &[&'static str]| [&simulate[..], more].concat();
    for (args, says) in [
        (
            with(&["--copies", "x"]),
            "invalid value 'x' for '--copies <N>': expected an integer from 1 to 1024",
        ),
        (with(&["--copies", ""]), "invalid value '' for '--copies <N>': expected an integer from 1 to 1024"),
        (
            with(&["--copies", "1.5"]),
            "invalid value '1.5' for '--copies <N>': expected an integer from 1 to 1024",
        ),
        (with(&["--copies=-1"]), "invalid value '-1' for '--copies <N>': expected an integer from 1 to 1024"),
        (
            with(&["--scale", "1e3"]),
            "invalid value '1e3' for '--scale <N>': expected an integer of at least 1",
        ),
        (with(&["--scale", "99999999999999999999"]), "expected an integer of at least 1"),
        (with(&["--seed", "x"]), "invalid value 'x' for '--seed <N>': expected an integer of at least 0"),
        (
            with(&["-p", "local+hot-cold:epoch_ms=x"]),
            "invalid value 'x' for parameter 'epoch_ms': expected an integer from 10 to",
        ),
        (
            vec!["migrate", "x", "--from", "0", "--to", "1"],
            "invalid value 'x' for '<PID>': expected an integer from 1 to 2147483647",
        ),
        (vec!["why", "1", "0xyz"], "invalid value '0xyz' for '<ADDRESS>': expected a hexadecimal address"),
        (vec!["lab", "run", "--vcpus", "no", "--", "true"], "expected an integer from 1 to 64"),
        (
            vec!["machine", "probe", "laptop", "--requests", "many"],
            "expected an integer from 100 to 1000000000",
        ),
    ] {
        let error = String::from_utf8(memtide(&args).stderr).unwrap();
        assert!(error.contains(says), "{args:?}: {error}");
        assert!(!error.contains("invalid digit") && !error.contains("parse integer"), "{args:?}: {error}");
    }
}

#[test]
fn invalid_machine_file_is_refused_with_line_and_field() {
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
    assert!(stdout_of(&["machine", "check", &mine]).contains("sound"));
    refused(3, &["machine", "show", "no/such.toml"], &["no/such.toml", "cannot be read"]);
}

#[test]
fn empty_machine_file_is_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let empty = file(folder.path(), "empty.toml", " \n");
    refused(3, &["machine", "show", &empty], &["empty.toml:1: an empty file"]);
}

#[test]
fn shown_machine_file_is_a_machine() {
    let folder = tempfile::tempdir().unwrap();
    let text = stdout_of(&["machine", "show", "ddr5-cxl", "-o", "machine"]);
    let copy = file(folder.path(), "copy.toml", &text);
    let [original, copied] =
        ["ddr5-cxl", &copy].map(|name| stdout_of(&["machine", "show", name, "-o", "json"]));
    assert_eq!(original, copied);
}

#[test]
fn all_machine_files_are_checked_and_refusal_sets_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.toml", "name = 5\n");
    let output = memtide(&["machine", "check", "-o", "json", &bad, "laptop", "no/such.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<_> = parsed["checked"].as_array().unwrap().iter().map(|row| &row["verdict"]).collect();
    assert_eq!(verdicts, ["refused", "sound", "refused"]);
    let error = String::from_utf8_lossy(&output.stderr);
    for part in ["bad.toml:1: name: invalid value 5: expected a string", "no/such.toml"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn unknown_machine_does_not_stop_check() {
    let output = memtide(&["machine", "check", "-o", "json", "laptpo", "laptop", "bdn"]);
    assert_eq!(output.status.code(), Some(2));
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts: Vec<_> = parsed["checked"].as_array().unwrap().iter().map(|row| &row["verdict"]).collect();
    assert_eq!(verdicts, ["refused", "sound", "refused"]);
    let error = String::from_utf8_lossy(&output.stderr);
    for part in ["did you mean 'laptop'?", "did you mean 'bdm'?"] {
        assert!(error.contains(part), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let bad = file(folder.path(), "bad.toml", "name = 5\n");
    let output = memtide(&["machine", "check", "laptpo", &bad]);
    assert_eq!(output.status.code(), Some(3), "a refused file sets the exit code");
}

#[test]
fn suspicious_value_warns_with_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let good = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/ddr5-cxl.toml"));
    let narrow =
        file(folder.path(), "narrow.toml", good.replacen("bandwidth_mbps = 24000", "bandwidth_mbps = 24", 1));
    let line = 1 + good.lines().position(|line| line.starts_with("bandwidth_mbps = 24000")).expect("a link");
    let says = format!("warning: {narrow}:{line}: link[1].bandwidth_mbps: is 24 MB/s (GB/s?)");
    let of = |format: &str| {
        let output = memtide(&["machine", "check", &narrow, "ddr5-cxl", "-o", format]);
        assert_eq!(output.status.code(), Some(0), "a warning is not a failure");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    assert!(of("table")[0].contains(&says), "{:?}", of("table"));
    let [csv, stderr] = of("csv");
    assert!(
        stderr.contains(&says) && csv.lines().nth(1).is_some_and(|row| row.ends_with(",sound,1")),
        "{csv}{stderr}"
    );
    let whole: serde_json::Value = serde_json::from_str(&of("json")[0]).unwrap();
    assert_eq!((&whole["checked"][0]["warnings"], &whole["checked"][1]["warnings"]), (&1.into(), &0.into()));
    let warning = &whole["warnings"][0];
    assert_eq!((&warning["line"], &warning["field"]), (&line.into(), &"link[1].bandwidth_mbps".into()));
}

#[test]
fn report_overwrites_reports_only() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("good.mt").display().to_string();
    stdout_of(&["trace", "import", &rows, "--format", "csv", "--to", &trace]);
    let machine = file(
        folder.path(),
        "mine.toml",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml")),
    );
    let compare = ["compare", "-m", &machine, "-t", &trace, "-p", "local", "--report"];
    for input in [&trace, &machine, &rows] {
        let before = std::fs::read(input).unwrap();
        refused(
            1,
            &[&compare[..], &[input]].concat(),
            &[input, "exists and is not a report); name another file"],
        );
        assert_eq!(std::fs::read(input).unwrap(), before);
    }
    let page = file(folder.path(), "page.html", "");
    for _ in 0..2 {
        stdout_of(&[&compare[..], &[&page]].concat());
    }
    assert!(std::fs::metadata(&page).unwrap().len() > 1 << 20);
    let other = folder.path().join("other.csv").display().to_string();
    std::fs::copy(&rows, &other).unwrap();
    let import = ["trace", "import", &rows, "--format", "csv", "--to", &other];
    refused(3, &import, &["other.csv", "exists and is not a trace"]);
    refused(
        1,
        &[&compare[..], &["no/such/page.html"]].concat(),
        &["no/such/page.html: cannot be written", "; make the folder first"],
    );
    let error = memtide(&[&compare[..], &["no/such/page.html"]].concat()).stderr;
    assert!(!String::from_utf8_lossy(&error).contains("/.tmp"), "the error contains a temporary name");
}

#[test]
fn usage_errors_suggest_correction() {
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
        &["'0'", "--limit", "an integer of at least 1"],
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
fn invalid_measured_figures_are_refused_with_file() {
    let folder = tempfile::tempdir().unwrap();
    let host = memtide_linux::topology::System::read().unwrap();
    let mut rows = Vec::new();
    for from in host.with_cpus() {
        for to in host.with_memory() {
            rows.push(json!({"initiator": from.id, "node": to.id, "idle_ns": -1.0, "read_mbps": 5e3}));
        }
    }
    let topo = ["topo", "-o", "machine", "--measured"];
    let negative = file(folder.path(), "negative.json", json!({ "nodes": rows }).to_string());
    let says = [
        "negative.json: its figures are not a valid machine",
        "read_latency_ns",
        "memtide measure -o json >",
    ];
    refused(3, &[&topo[..], &[&negative]].concat(), &says);
    let noise = file(folder.path(), "noise.json", "{}");
    refused(3, &[&topo[..], &[&noise]].concat(), &["noise.json: is not what `memtide measure -o json`"]);
    if host.with_memory().all(|node| node.firmware.is_none()) {
        let empty = file(folder.path(), "empty.json", r#"{"nodes": []}"#);
        refused(
            3,
            &[&topo[..], &[&empty]].concat(),
            &["empty.json: latency and bandwidth of", "measure again"],
        );
    }
}

#[test]
fn unwritable_output_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["machine", "list"], &["compare", "--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(support::MEMTIDE).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: cannot be written"));
    }
}

#[test]
fn invalid_traces_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("good.mt").display().to_string();
    stdout_of(&["trace", "import", &rows, "--format", "csv", "--to", &trace]);
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
fn invalid_journal_and_policy_have_distinct_exit_codes() {
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
    assert!(stdout_of(&["replay", &journal, "-p", "hot-cold"]).contains("1970-01-01T00:00:00Z"));
    refused(3, &["replay", &journal], &["journal2: record 1", "state"]);
    refused(
        2,
        &["replay", &journal, "-p", "bw-migration"],
        &["journal2: policy 'bw-migration'", "does not contain"],
    );
    refused(2, &["replay", &journal, "-p", "anb"], &["'anb'", "in the kernel"]);
}

#[test]
fn unwritable_report_is_refused_before_run() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let endless = "stream:footprint_mib=16384,iterations=100000";
    for (to, says) in [(folder.path(), "regular file"), (&pipe, "regular file"), (&pipe.join("x"), "pipe/x")]
    {
        let to = to.to_str().unwrap();
        refused(1, &["compare", "-m", "laptop", "-w", endless, "--report", to], &["cannot be written", says]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
