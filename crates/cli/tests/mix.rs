//! Programs that run together: starts and slow-downs, in every format.

use std::fs;

use crate::support::call::{json, refused, stdout_of};
use serde_json::Value;

const CHASE: &str = "chase:footprint_mib=16,operations=30000";
const COPY: &str = "stream:kernel=copy,footprint_mib=24,iterations=1,threads=4";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Slow-downs of a comparison's programs under its first policy.
fn slowdowns(args: &[&str]) -> Vec<f64> {
    let whole = json(&[&["compare", "-m", "bmpm-2"], args].concat());
    let rows = whole["programs"].as_array().expect("a table");
    let policy = &rows[0]["policy"];
    let slowdowns: Vec<f64> =
        rows.iter().filter(|row| &row["policy"] == policy).map(|row| number(&row["slowdown"])).collect();
    let run = &whole["policies"][0];
    let weighted: f64 = slowdowns.iter().map(|slowdown| 1.0 / slowdown).sum();
    assert!((number(&run["weighted_speedup"]) - weighted).abs() < 1e-9, "{run}");
    let [least, most] = [f64::min as fn(f64, f64) -> f64, f64::max]
        .map(|of| slowdowns.iter().copied().reduce(of).expect("a program"));
    assert_eq!(number(&run["max_slowdown"]), most);
    assert!((number(&run["fairness"]) - least / most).abs() < 1e-9, "{run}");
    slowdowns
}

#[track_caller]
fn assert_all(slowdowns: &[f64], expected: f64, tolerance: f64) {
    assert_eq!(slowdowns.len(), 2);
    for slowdown in slowdowns {
        assert!((slowdown / expected - 1.0).abs() < tolerance, "{slowdowns:?} instead of {expected}");
    }
}

#[test]
fn programs_on_nodes_of_their_own_do_not_slow_down() {
    // Their threads are on different sockets.
    assert_all(&slowdowns(&["-w", CHASE, "-w", CHASE, "-p", "local,fast-only"]), 1.0, 0.005);
    assert_all(&slowdowns(&["-w", CHASE, "--copies", "2", "-p", "local"]), 1.0, 0.005);
}

#[test]
fn programs_that_share_a_saturated_node_take_twice_as_long() {
    assert_all(&slowdowns(&["-w", COPY, "-w", COPY, "-p", "bind:node=nvm"]), 2.0, 0.06);
}

#[test]
fn program_that_starts_after_the_others_end_does_not_slow_down() {
    let args = ["-w", COPY, "-w", COPY, "-p", "bind:node=nvm,interleave", "--start-ms", "0,50"];
    assert_all(&slowdowns(&args), 1.0, 0.01);
    let whole = json(&[&["compare", "-m", "bmpm-2"], &args[..]].concat());
    let rows = whole["programs"].as_array().expect("a table");
    let starts: Vec<f64> = rows.iter().map(|row| number(&row["start_ms"])).collect();
    assert_eq!(starts, [0.0, 50.0, 0.0, 50.0]);
    assert!(whole["program"].as_str().expect("a name").ends_with(" from 50 ms"), "{}", whole["program"]);
}

#[test]
fn slowdowns_are_in_every_format_and_a_single_program_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html").display().to_string();
    let args = ["-m", "bmpm-2", "-w", CHASE, "-w", COPY, "-p", "local,interleave"];
    let table = stdout_of(&[&["compare"], &args[..], &["--report", &page]].concat());
    let page = fs::read_to_string(&page).unwrap();
    for title in ["weighted speed-up", "max. slow-down", "fairness", "alone, ms"] {
        assert!(table.contains(title) && page.contains(title), "{title} is missing:\n{table}");
    }
    assert!(page.contains("Slow-down of each program") && page.contains("their time alone"));
    let csv = stdout_of(&[&["compare"], &args[..], &["-o", "csv"]].concat());
    for key in ["weighted_speedup", "fairness", "program_1_slowdown", "program_2_slowdown"] {
        assert!(csv.lines().next().unwrap().contains(key), "{csv}");
    }
    let explained = stdout_of(&[&["explain"], &args[..]].concat());
    assert!(explained.contains("times their time alone: a weighted speed-up of "), "{explained}");
    let single = json(&["compare", "-m", "bmpm-2", "-w", CHASE, "-p", "local"]);
    assert!(single["policies"][0].get("fairness").is_none(), "{single}");
    assert_eq!(single["programs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn copies_are_one_row_for_people() {
    let args = ["compare", "-m", "bmpm-2", "-w", COPY, "--copies", "3", "-p", "bind:node=nvm"];
    let table = stdout_of(&args);
    let row = table.lines().find(|line| line.contains(" stream ")).expect("a row of the program");
    let whole = json(&args);
    let rows = whole["programs"].as_array().expect("a table");
    assert_eq!(rows.len(), 3);
    let most = rows.iter().map(|row| number(&row["slowdown"])).fold(0.0, f64::max);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[2], cells[7]), ("3", &format!("{most:.2}")[..]), "{table}");
}

#[test]
fn unfit_starts_are_refused() {
    let run = ["simulate", "-m", "bmpm-2", "-w", CHASE, "--start-ms"];
    refused(2, &[&run[..], &["0,1"]].concat(), &["--start-ms has 2 times for 1 program"]);
    for bad in ["-1", "x", "nan", "1e30", "0,"] {
        refused(2, &[&run[..], &[bad]].concat(), &["--start-ms", "number of ms from 0 to"]);
    }
}
