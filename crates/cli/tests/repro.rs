//! Experiments: runs, verdicts, the cache, and the files that are written.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::MEMTIDE;
use crate::support::call::{file, json, refused, stdout_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A program that is bound by bandwidth: placing its pages at the bandwidth ratio 5 at most saves
/// 1 - 2 / (5 + 1) = 66.7 % of the time that interleaving takes.
const EXPERIMENT: &str = r#"
title = "Interleaving and the bandwidth ratio"
source = "bmpm equation 2.4"
finding = "This text is for results that do not hold."
[plan]
machine = "bmpm-5"
programs = [{ name = "stream", run = ["stream:threads=16,footprint_mib=32,iterations=2"] }]
policies = [{ name = "IL", policy = "interleave" }, { name = "BW-I", policy = "bw-interleave" }]
[[number]]
what = "cut"
unit = "%"
paper = 55.0
kind = "predicted"
tolerance = 12.0
ours = 'cut(time("stream", "IL"), time("stream", "BW-I"))'
[[number]]
what = "share of pages on DRAM"
unit = "%"
paper = 83.3
kind = "predicted"
ours = '100.0 * run("stream", "BW-I").nodes[0].page_share'
[[shape]]
statement = "BW-I is slower than IL"
holds = 'time("stream", "BW-I") > time("stream", "IL")'
[[figure]]
title = "Time over IL"
of = 'time(program, policy) / time(program, "IL")'
"#;

fn repro(folder: &Path, names: &[&str], more: &[&str]) -> Value {
    let cache = folder.join("cache");
    json(&[&["repro"], names, &["--cache", cache.to_str().unwrap()], more].concat())
}

#[test]
fn results_are_beside_the_papers_and_the_same_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = file(folder.path(), "mine.toml", EXPERIMENT.as_bytes());
    let [report, markdown] = ["r.html", "r.md"].map(|name| folder.path().join(name));
    let files = ["--report", report.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()];
    let first = repro(folder.path(), &[&experiment], &files);
    let numbers = first["numbers"].as_array().unwrap();
    assert_eq!(numbers.iter().map(|row| row["verdict"].as_str().unwrap()).collect::<Vec<_>>(), ["holds"; 2]);
    let cut = numbers[0]["ours"].as_f64().unwrap();
    assert!(
        (cut - numbers[0]["paper"].as_f64().unwrap() - numbers[0]["deviation"].as_f64().unwrap()).abs()
            < 1e-9
    );
    assert!((numbers[1]["ours"].as_f64().unwrap() - 83.3).abs() < 0.5, "pages follow equation 2.4");
    assert_eq!(first["shapes"][0]["verdict"], "does not");
    assert_eq!(first["shapes"][0]["holds"], false);
    assert_eq!(first["experiments"][0]["verdict"], "does not");
    assert_eq!(first["experiments"][0]["finding"], "This text is for results that do not hold.");

    let page = fs::read_to_string(report).unwrap();
    for part in ["figure-0-0", "numbers-0-0", "ours at half scale"] {
        assert!(page.contains(part), "{part}");
    }
    let finding = "This text is for results that do not hold.";
    let (above, charts) = page.split_once("<section>").expect("a section of charts");
    assert!(!above.contains(finding) && charts.contains(&format!("<p>{finding}</p>")), "beside its charts");
    let text = fs::read_to_string(markdown).unwrap();
    assert!(text.contains("| cut | 55.0 % |") && text.contains("This text is for results"), "{text}");

    let entries = || fs::read_dir(folder.path().join("cache")).unwrap().count();
    assert_eq!(entries(), 1, "a folder for this model");
    let runs = fs::read_dir(folder.path().join("cache")).unwrap().next().unwrap().unwrap().path();
    let ages = || -> Vec<_> {
        let files =
            fs::read_dir(&runs).unwrap().map(Result::unwrap).filter(|file| file.file_name() != "used");
        let mut ages: Vec<_> =
            files.map(|f| (f.file_name(), f.metadata().unwrap().modified().unwrap())).collect();
        ages.sort();
        ages
    };
    let before = ages();
    assert_eq!(before.len(), 4, "two policies at two scales");
    assert_eq!(repro(folder.path(), &[&experiment], &[]), first);
    assert_eq!(ages(), before, "nothing ran again");

    // A claim changes the verdict, and no run.
    let claims = EXPERIMENT.replace("paper = 55.0", "paper = 20.0");
    let other = repro(folder.path(), &[&file(folder.path(), "other.toml", claims.as_bytes())], &[]);
    assert_eq!(other["numbers"][0]["verdict"], "does not");
    assert_eq!(other["numbers"][0]["ours"], first["numbers"][0]["ours"]);
    assert_eq!(ages(), before);
    // A damaged entry is made again, with the same result.
    fs::write(runs.join(&before[0].0), "{").unwrap();
    assert_eq!(repro(folder.path(), &[&experiment], &[]), first);
    // At one scale, no result depends on it.
    let full = repro(folder.path(), &[&experiment], &["--full-scale-only"]);
    assert!(full["numbers"][0]["half_scale"].is_null());
}

#[test]
fn machine_file_is_found_beside_the_experiment_that_is_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let machine = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/bmpm-5.toml")).unwrap();
    file(folder.path(), "near.toml", &machine);
    let text = EXPERIMENT.replace("\"bmpm-5\"", "\"near.toml\"");
    let experiment = file(folder.path(), "mine.toml", text.as_bytes());
    let again = folder.path().join("./mine.toml");
    let both = repro(folder.path(), &[&experiment, again.to_str().unwrap()], &["--full-scale-only"]);
    assert_eq!(both["experiments"].as_array().unwrap().len(), 1);
}

#[test]
fn interrupted_reproduction_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let long = EXPERIMENT.replace("iterations=2", "iterations=200");
    let text = long.replace(
        "programs = [",
        "programs = [{ name = \"short\", run = [\"cached:threads=1,operations=1000\"] }, ",
    );
    let experiment = file(folder.path(), "mine.toml", text.as_bytes());
    let cache = folder.path().join("cache");
    let mut run = Command::new(MEMTIDE)
        .args(["repro", &experiment, "--full-scale-only", "--cache", cache.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until the short program's runs are there.
    let finished = || -> usize {
        let folders = fs::read_dir(&cache).into_iter().flatten().flatten();
        folders
            .map(|folder| fs::read_dir(folder.path()).into_iter().flatten().count().saturating_sub(1))
            .sum()
    };
    while finished() < 2 {
        assert!(run.try_wait().unwrap().is_none(), "ended before it was interrupted");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("after 2 of 4 runs; the same command does the rest"), "{said}");
    assert_eq!(finished(), 2);
}

#[test]
fn list_has_every_experiment_and_mistakes_are_refused() {
    let list = stdout_of(&["repro", "list"]);
    for id in ["bmpm/table-4.3", "bmpm/fig-5.9", "hinuma/fig-4", "bdm/table-1"] {
        assert!(list.contains(id), "{id}: {list}");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |text: &str| file(folder.path(), "wrong.toml", text.as_bytes());
    refused(2, &["repro", "bmpm/fig-5.99"], &["bmpm/fig-5.9"]);
    refused(3, &["repro", "missing.toml"], &["missing.toml"]);
    refused(3, &["repro", &at(&EXPERIMENT.replace("machine =", "machin ="))], &["wrong.toml:6", "machin"]);
    let cache = folder.path().join("cache");
    let with = |text: &str, said: &[&str]| {
        refused(3, &["repro", &at(text), "--cache", cache.to_str().unwrap(), "--full-scale-only"], said);
    };
    let misnamed = EXPERIMENT.replace("run(\"stream\"", "run(\"steam\"");
    with(&misnamed, &["wrong.toml:", "no run of program 'steam'", "programs stream", "no variants"]);
    assert!(!cache.exists(), "nothing ran");
    with(&EXPERIMENT.replace("bmpm-5", "bmpm-6"), &["wrong.toml", "bmpm-5"]);
    with(&EXPERIMENT.replace("\"bw-interleave\"", "\"bw-interleaf\""), &["wrong.toml", "bw-interleave"]);
    let failing = EXPERIMENT.replace("page_share", "page_shares");
    // The others are judged all the same.
    let failing = file(folder.path(), "failing.toml", failing.as_bytes());
    let holding = at(EXPERIMENT);
    let output = Command::new(MEMTIDE)
        .args(["repro", &failing, &holding, "--full-scale-only", "-o", "json"])
        .args(["--cache", cache.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("failing: share of pages on DRAM"), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["experiments"].as_array().unwrap().len(), 1);
    refused(2, &["repro", "--cache"], &["--cache"]);
    refused(2, &["repro", "fig-4"], &["bdm/fig-4 or hinuma/fig-4"]);
    let text = file(folder.path(), "mine.txt", EXPERIMENT.as_bytes());
    refused(2, &["repro", &text], &["end in .toml"]);
    // Files of others are left as they are.
    refused(1, &["repro", &holding, "--markdown", &holding], &["was not written by", "name another file"]);
    assert_eq!(fs::read_to_string(&holding).unwrap(), EXPERIMENT);
    let folder = folder.path().to_str().unwrap();
    refused(1, &["repro", &holding, "--markdown", folder], &["is not a regular file"]);
}
