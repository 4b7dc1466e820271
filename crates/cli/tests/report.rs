//! The report in a browser: every chart renders, without network requests.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{MEMTIDE, lab_is_here};
use memtide_testing::not_run;

const POLICIES: &str = "local,interleave,bw-random";

fn chromium() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        not_run("chromium is missing: apt-get install chromium");
    }
    found
}

/// The page after its scripts have run, in an offline browser.
fn render(browser: &str, page: &Path, profile: &Path) -> String {
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    command.args(["--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"]);
    command.args(["--virtual-time-budget=20000", "--window-size=1280,3000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.display())).arg(format!("file://{}", page.display()));
    let output = command.output().expect("the browser starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn charts_render_offline() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let stream = "stream:threads=8,footprint_mib=8,iterations=1";
    let own = compared(&["-m", "bmpm-2", "-w", stream, "-p", POLICIES, "--seed", "3"], &page);
    for part in ["bmpm-2", "seed <b>3</b>", "memtide <b>0.", " best: ", "--seed 3", "speed-up over local"] {
        assert!(own.contains(part), "the page lacks '{part}'");
    }
    assert!(!own.contains("migrated over time") && !own.contains(">migration<"), "nothing migrates");

    // No policy of these asks for a sensor.
    assert_eq!(
        own.matches("<table>").count(),
        6,
        "where time went, runs in two parts, stages, nodes and links"
    );

    let Some(browser) = chromium() else { return };
    let dom = render(browser, &page, &folder.path().join("profile"));
    let (heat, charts): (Vec<_>, Vec<_>) =
        charts(&dom).into_iter().partition(|chart| id(chart).starts_with("heat-"));
    let policies = POLICIES.split(',').count();
    let nodes = 2;
    assert!((2..=3).contains(&heat.len()), "best, worst and baseline: {}", heat.len());
    assert!(heat.iter().all(|chart| chart.contains("class=\"hm\"") && chart.contains("xtitle")));
    assert_eq!(charts.len(), 4 + policies * nodes, "time, pages, accesses, latency; bandwidth of every node");
    for chart in charts {
        let (id, marks) = (id(chart), marks(chart));
        let wanted = match id {
            // With the oracle.
            "time" => 4 * (policies + 1),
            "pages" | "accesses" => 2 * (policies + 1),
            "latency" => 2 * policies,
            // Demand and prefetch.
            _ => 2,
        };
        assert_eq!(marks, wanted, "chart {id}");
        assert!(chart.contains("xtitle"), "chart {id} has no axis title");
    }
}

#[test]
fn migration_is_charted_over_time() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let zipf = "zipf:threads=4,footprint_mib=64,operations=500000";
    let own = compared(&["-m", "memos", "-w", zipf, "-p", "local,interleave+hot-cold:epoch_ms=20"], &page);
    for part in ["Pages by node over time", "Pages migrated over time", ">demand<", ">migration<"] {
        assert!(own.contains(part), "the page lacks '{part}'");
    }

    let Some(browser) = chromium() else { return };
    let dom = render(browser, &page, &folder.path().join("profile"));
    let drawn: Vec<(&str, usize)> = charts(&dom).into_iter().map(|chart| (id(chart), marks(chart))).collect();
    let of_local = ["bandwidth-0-0", "bandwidth-0-1"].map(|id| (id, 1));
    let of_migrating =
        ["bandwidth-1-0", "bandwidth-1-1", "pages-over-time-1", "migrated-1"].map(|id| (id, 2));
    let wanted = [&of_local[..], &of_migrating].concat();
    assert_eq!(drawn[3..9], wanted, "demand, and migration where there is any; a line for each node");
    let dots = drawn.iter().find(|(id, _)| *id == "heat-1-0").map(|(_, dots)| *dots);
    assert!(dots.is_some_and(|dots| dots > 0), "cells of pages that move: {drawn:?}");
}

#[test]
fn slow_policy_does_not_flatten_others() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let machine = folder.path().join("machine.toml");
    fs::write(&machine, include_str!("../../../machines/pms.toml").replace("isolated = true\n", "")).unwrap();
    let zipf = "zipf:threads=4,operations=40000";
    let machine = machine.to_str().unwrap();
    let own = compared(&["-m", machine, "-w", zipf, "-p", "local,fast-only,interleave"], &page);
    for part in ["interleave: local (longer time axis)", "\u{25b8} "] {
        assert!(own.contains(part), "the page lacks '{part}'");
    }
    assert!(!own.contains("local: local (longer"), "axes of the others end with them");
    assert!(own.contains(r"local,\u003cbr\u003efast-only"), "equal latencies have one line");
}

/// The page of a comparison, without the chart library.
fn compared(arguments: &[&str], page: &Path) -> String {
    let output =
        Command::new(MEMTIDE).arg("compare").args(arguments).arg("--report").arg(page).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    without_library(page)
}

#[test]
fn lab_report_charts_every_subject() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    if !lab_is_here() {
        return;
    }
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "compare", "-m", "bmpm-5", "--timing", "on", "--subjects", "default,interleave"]);
    command.arg("--results").arg(folder.path().join("results")).arg("--report").arg(&page).arg("--");
    command.arg(Path::new(MEMTIDE).with_file_name("memtide-workload"));
    let run = command.arg("stream:threads=2,footprint_mib=24,iterations=2").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let own = without_library(&page);
    for part in
        ["memtide-workload stream:", "on bmpm-5", "Guest time, and speed-up over default", "outside, %"]
    {
        assert!(own.contains(part), "the page lacks '{part}'");
    }

    let Some(browser) = chromium() else { return };
    let dom = render(browser, &page, &folder.path().join("profile"));
    let drawn: Vec<(&str, usize)> = charts(&dom).into_iter().map(|chart| (id(chart), marks(chart))).collect();
    // One bar per subject; the other charts have a line for each of two nodes.
    let lines = ["bandwidth-0", "bandwidth-1", "memory-0", "memory-1"].map(|id| (id, 2));
    assert_eq!(drawn, [&[("time", 2)], &lines[..]].concat());
}

/// The page without the chart library, which has no external references.
fn without_library(page: &Path) -> String {
    let written = std::fs::read_to_string(page).unwrap();
    let own = written.split("</script>").skip(1).collect::<String>();
    for foreign in ["src=", "href=", "http:", "https:", "@import", "url("] {
        assert!(!own.contains(foreign), "the page has an external reference: {foreign}");
    }
    own
}

/// The charts of a page, each starting at its identifier.
fn charts(dom: &str) -> Vec<&str> {
    let body = &dom[dom.find("<body").expect("a body")..];
    body.split("<div id=\"chart-").skip(1).collect()
}

fn id(chart: &str) -> &str {
    chart.split('"').next().unwrap()
}

/// Bars, lines and legend entries of a chart.
fn marks(chart: &str) -> usize {
    chart.matches("class=\"point\"").count() + chart.matches("class=\"js-line\"").count()
}
