//! Run files: programs with starts, priorities and locks, and what is refused.

use std::path::Path;

use crate::support::call::{ROWS, file, json, memtide, refused, stdout_of};
use crate::support::docs::root;
use serde_json::Value;

/// Local memory of 27 MiB and 4 MiB of remote memory: a batch job does not fit beside a server.
const MACHINE: [&str; 6] = ["-m", "pms", "--scale", "64", "--set", FAST_LINK];

/// Pages leave within the tests' short programs; remote reads take as long as over pms' own link.
const FAST_LINK: &str = "link.zynq-remote.bandwidth_mbps=20000";

const MIX: &str = r#"
[[program]]
name = "batch"
workload = "gups:threads=1,footprint_mib=16,operations=20000"
priority = 1
send = ["table"]

[[program]]
name = "server"
workload = "gups:threads=1,footprint_mib=8,operations=20000"
priority = 5
send = ["table"]

[[program]]
name = "unranked"
workload = "gups:threads=1,footprint_mib=1,operations=20000"
start_ms = 2
"#;

/// Moves all that must leave from one program, in one step.
const STRICT: &str = "local+pms:migrate=10,return=20,pages=1000000";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn mix(folder: &Path, text: &str) -> String {
    file(folder, "mix.toml", text.as_bytes())
}

/// Priorities and mean slow-downs of a policy's levels.
fn levels(whole: &Value, policy: &str) -> Vec<(u64, f64)> {
    let rows = whole["levels"].as_array().expect("a table").iter();
    let rows = rows.filter(|row| row["policy"] == policy);
    rows.map(|row| (row["priority"].as_u64().expect("a level"), number(&row["slowdown"]))).collect()
}

#[test]
fn high_priority_is_protected_from_low_under_pms() {
    let folder = tempfile::tempdir().unwrap();
    let mix = mix(folder.path(), MIX);
    let policies = format!("local,{STRICT}");
    let args = [&MACHINE[..], &["--run", &mix]].concat();
    let whole = json(&[&["compare"], &args[..], &["-p", &policies]].concat());
    let [(1, batch), (5, server)] = levels(&whole, STRICT)[..] else { panic!("{}", whole["levels"]) };
    assert!(server < 1.25 && batch > 2.0, "{batch} and {server}");
    let programs = whole["programs"].as_array().expect("a table");
    let priorities: Vec<Option<u64>> = programs.iter().map(|row| row["priority"].as_u64()).collect();
    assert_eq!(priorities[..3], [Some(1), Some(5), None]);
    assert_eq!(programs[2]["start_ms"], 2.0);
    let alone = json(&[&["simulate"], &args[..], &["-p", STRICT]].concat());
    assert_eq!(alone["programs"].as_array().map(Vec::len), Some(3));
    let [(1, low), (5, high)] = levels(&alone, STRICT)[..] else { panic!("{}", alone["levels"]) };
    assert!(low > high, "{low} and {high}");
}

#[test]
fn levels_are_in_every_format_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let mix = mix(folder.path(), MIX);
    let args = [&MACHINE[..], &["--run", &mix]].concat();
    let table = stdout_of(&[&["simulate"], &args[..]].concat());
    for part in ["priority  programs  mean slow-down", "batch (gups:", "from 2 ms", "weighted speed-up"] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
    let csv = stdout_of(&[&["simulate"], &args[..], &["-o", "csv"]].concat());
    assert!(csv.contains("program_3_slowdown") && csv.contains("priority_5_slowdown"), "{csv}");
    let csv = stdout_of(&[&["compare"], &args[..], &["-p", "local", "-o", "csv"]].concat());
    assert!(csv.lines().next().unwrap().contains("priority_1_slowdown"), "{csv}");
    let explained = stdout_of(&[&["explain"], &args[..], &["-p", "local"]].concat());
    assert!(explained.contains("On average, they take ") && explained.contains(" with priority 5."));
}

#[test]
fn options_of_traces_are_refused_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let mix = mix(folder.path(), MIX);
    for option in ["--skip", "--limit"] {
        let args = [&["simulate"], &MACHINE[..], &["--run", &mix, option, "100"]].concat();
        refused(2, &args, &[&format!("{option} is for traces")]);
    }
}

#[test]
fn mean_of_a_level_is_that_of_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let mix = mix(folder.path(), &MIX.replace("priority = 5", "priority = 1"));
    let whole = json(&[&["simulate"], &MACHINE[..], &["--run", &mix]].concat());
    let [(1, mean)] = levels(&whole, "local")[..] else { panic!("{}", whole["levels"]) };
    let slowdowns: Vec<f64> = (0..2).map(|at| number(&whole["programs"][at]["slowdown"])).collect();
    assert!((mean - slowdowns.iter().sum::<f64>() / 2.0).abs() < 1e-9, "{mean}: {slowdowns:?}");
    let most = slowdowns.iter().copied().fold(0.0, f64::max);
    assert_eq!(number(&whole["levels"][0]["max_slowdown"]), most);
    assert_eq!(whole["levels"][0]["programs"], 2);
}

#[test]
fn run_file_is_the_same_as_workload_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let workload = "stream:kernel=copy,threads=1,footprint_mib=6,iterations=2";
    let keys = "priority = 3\nsend = ['a', 'c']\nlock = ['c']\nstart_ms = 1.5";
    let text = format!("[[program]]\nname = 'stream'\nworkload = '{workload}'\n{keys}\n");
    let mix = mix(folder.path(), &text);
    let args = [&["simulate"], &MACHINE[..], &["-p", "local+pms:migrate=100,return=100,epoch_ms=1"]].concat();
    let of_file = json(&[&args[..], &["--run", &mix]].concat());
    let given = format!("{workload},priority=3,send=a+c,lock=c");
    let of_options = json(&[&args[..], &["-w", &given, "--start-ms", "1.5"]].concat());
    assert_eq!(of_file["report"], of_options["report"]);
    assert!(number(&of_file["report"]["pages"]["migrated"]) > 0.0);
}

#[test]
fn full_remote_node_is_reported_with_pages_and_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let mix = mix(folder.path(), MIX);
    let full = "local+pms:migrate=40,return=50";
    let args = [&MACHINE[..], &["--run", &mix]].concat();
    let whole = json(&[&["simulate"], &args[..], &["-p", full]].concat());
    let notes = whole["notes"].to_string();
    assert!(notes.contains("local+pms:migrate=40,return=50 left "), "{notes}");
    assert!(notes.contains(" on average: node remote was full at "), "{notes}");
    let of_report = &whole["report"]["full"][0];
    assert_eq!(of_report["node"], 1);
    assert!(number(&of_report["epochs"]) > 0.0 && number(&of_report["pages_mean"]) > 0.0, "{of_report}");
    let compared = json(&[&["compare"], &args[..], &["-p", &format!("local,{full}")]].concat());
    assert!(compared["verdict"].as_str().unwrap().contains("node remote was full at"), "{compared}");
    let fits = json(&[&["simulate"], &args[..], &["-p", STRICT]].concat());
    assert!(!fits["notes"].to_string().contains("was full"), "{}", fits["notes"]);
    assert!(fits["report"].get("full").is_none());
}

#[test]
fn traces_offer_names_and_ranges_and_are_relative_to_the_run_file() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "rows.csv", ROWS);
    let trace = folder.path().join("rows.parquet");
    stdout_of(&["trace", "import", &rows, "--format", "csv", "--to", trace.to_str().unwrap()]);
    std::fs::create_dir(folder.path().join("mixes")).unwrap();
    let sort = root().join("traces/sort.parquet");
    let text = format!(
        "[[program]]\nname = 'range'\ntrace = '../rows.parquet'\nsend = ['0x20000-0x30000']\n\
         [[program]]\nname = 'heap'\ntrace = {sort:?}\nsend = ['heap', 'anonymous']\npriority = 2\n"
    );
    let mix = file(&folder.path().join("mixes"), "mix.toml", &text);
    let policy = "local+pms:migrate=100,return=100,epoch_ms=1";
    let machine = ["simulate", "-m", "pms", "--set", FAST_LINK];
    let args = [&machine[..], &["--run", &mix, "--limit", "200000", "-p", policy]].concat();
    let whole = json(&args);
    assert!(number(&whole["report"]["pages"]["migrated"]) > 100.0, "{}", whole["report"]["pages"]);
    assert_eq!(levels(&whole, policy).len(), 2);
    let said = whole["program"].as_str().unwrap();
    assert!(said.contains("range (rows:priority=1,send=0x20000-0x30000) [200000 accesses from 0]"), "{said}");

    let unknown = file(&folder.path().join("mixes"), "mix.toml", text.replace("'heap', ", "'heep', "));
    let parts = [":8: program[1].send[0]: there is no array 'heep'; did you mean 'heap'?", "libc.so.6"];
    refused(3, &["simulate", "-m", "pms", "--run", &unknown], &parts);
    let outside = text.replace("0x20000-0x30000", "0x200000-0x201000");
    let outside = file(&folder.path().join("mixes"), "mix.toml", outside);
    let parts = [":4: program[0].send[0]: the program maps nothing in this range; it maps 0x0-0x100000"];
    refused(3, &["simulate", "-m", "pms", "--run", &outside], &parts);
}

fn call<'a>(path: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["simulate", "-m", "pms", "--run", path], more].concat()
}

#[test]
fn mistakes_are_refused_with_file_line_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let with = |from: &str, to: &str| {
        assert!(MIX.contains(from), "{from}");
        mix(folder.path(), &MIX.replacen(from, to, 1))
    };
    for (from, to, parts) in [
        ("priority = 1", "prioritiy = 1", ["mix.toml:5: program[0].prioritiy", "expected one of"]),
        ("priority = 1", "priority = 9", ["mix.toml:5: program[0].priority", "from 1 to 5"]),
        ("\"gups:", "\"gusp:", ["mix.toml:4: program[0].workload", "did you mean 'gups'?"]),
        ("[\"table\"]", "[\"tabel\"]", ["mix.toml:6: program[0].send[0]", "did you mean 'table'?"]),
    ] {
        refused(3, &call(&with(from, to), &[]), &parts);
    }
    let missing =
        with("workload = \"gups:threads=1,footprint_mib=16,operations=20000\"", "trace = \"no.parquet\"");
    refused(3, &call(&missing, &[]), &["mix.toml:4: program[0].trace", "no.parquet", "No such file"]);
    let absent = folder.path().join("absent.toml").display().to_string();
    refused(3, &call(&absent, &[]), &["absent.toml: cannot be read", "check the path"]);
    refused(3, &call(folder.path().to_str().unwrap(), &[]), &["cannot be read"]);
    refused(3, &call("/dev/zero", &[]), &["/dev/zero"]);
    let trace = root().join("traces/sort.parquet").display().to_string();
    refused(3, &call(&trace, &[]), &["a trace, not a run file; give it by --trace"]);
    let bytes = file(folder.path(), "bytes.toml", [0xff, 0xfe]);
    refused(3, &call(&bytes, &[]), &["bytes.toml: not a run file: it is not UTF-8 text"]);
    let mix = mix(folder.path(), MIX);
    for other in [["-w", "gups"], ["-t", &trace], ["--start-ms", "1"]] {
        refused(2, &call(&mix, &other), &["--run"]);
    }
    refused(2, &["simulate", "-m", "pms"], &["--workload", "--run"]);
}

#[test]
fn hostile_run_files_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let deep = format!("{}{}", "a = [".repeat(100_000), "]".repeat(100_000));
    let dotted = format!("{}x = 1", "a.".repeat(100_000));
    for text in [
        "",
        "\0",
        "[[program]]",
        "program = 1",
        "program = {}",
        "[program]\nname = 'x'",
        &deep,
        &dotted,
        "[[program]]\nname = 'x'\nworkload = 'gups:footprint_mib=99999999999999'",
        "[[program]]\nname = 'x'\nworkload = ''",
        "[[program]]\nname = '\u{1b}[31m'\nworkload = '\u{1b}'",
        "[[program]]\nname = 'x'\nworkload = 'gups'\nsend = ['0x-0x']",
        "[[program]]\nname = 'x'\nworkload = 'gups'\nsend = ['0xffffffffffffffff-0xffffffffffffffff']",
        "[[program]]\nname = 'x'\nworkload = 'gups'\npriority = 9223372036854775808",
        "[[program]]\nname = 'x'\nworkload = 'gups'\nstart_ms = 1e999",
    ] {
        let mix = mix(folder.path(), text);
        let output = memtide(&["simulate", "-m", "pms", "--run", &mix]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text:.80}: {error}");
        assert!(error.contains("mix.toml:") && !error.contains("panicked"), "{error}");
        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
