//! The report in a browser: every chart renders, without network requests.

mod support;

use std::path::Path;
use std::process::Command;

use memtide_testing::not_run;
use support::{MEMTIDE, lab_is_here};

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
    let mut command = Command::new(MEMTIDE);
    command.args(["compare", "-m", "bmpm-2", "-w", "stream:threads=8,footprint_mib=8,iterations=1"]);
    let status =
        command.args(["-p", POLICIES, "--seed", "3", "--report"]).arg(&page).output().unwrap().status;
    assert!(status.success());
    let own = without_library(&page);
    for part in ["bmpm-2", "seed <b>3</b>", "memtide <b>0.", " best: ", "--seed 3", "speed-up over local"] {
        assert!(own.contains(part), "the page lacks '{part}'");
    }

    // No policy of these asks for a sensor.
    assert_eq!(own.matches("<table>").count(), 5, "runs in two parts, stages, nodes and links");

    let Some(browser) = chromium() else { return };
    let dom = render(browser, &page, &folder.path().join("profile"));
    let charts = charts(&dom);
    let policies = POLICIES.split(',').count();
    assert_eq!(charts.len(), 4 + policies, "time, pages, accesses, latency, and bandwidth of every policy");
    for chart in charts {
        let (id, marks) = (id(chart), marks(chart));
        let wanted = match id {
            "time" => 4 * policies,
            "pages" | "accesses" => 2 * policies,
            "latency" => 2 * policies,
            _ => 2 * 2,
        };
        assert_eq!(marks, wanted, "chart {id}");
        assert!(chart.contains("xtitle"), "chart {id} has no axis title");
    }
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
    // One bar per subject; the other charts have two nodes each, with legend entries.
    let lines = ["bandwidth-0", "bandwidth-1", "memory-0", "memory-1"].map(|id| (id, 4));
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
