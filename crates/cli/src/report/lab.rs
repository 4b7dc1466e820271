//! The report of runs in the lab.

use memtide_core::Machine;
use memtide_lab::RunOutcome;
use plotly::common::{Marker, Orientation};
use plotly::{Bar, Layout};

use super::chart::{Chart, axis, bar_labels, bars_height, bars_margin, colour, names, plot};
use super::over_time::{OverTime, Shape, Small, group};
use super::page::{Finding, Page, grid, key, section};
use crate::output::Document;

/// A run in the report.
pub struct LabRun<'a> {
    /// The subject.
    pub name: String,
    /// Guest time in ms: the mean over all layouts.
    pub guest_ms: f64,
    /// Its run; of several layouts, the first.
    pub outcome: &'a RunOutcome,
}

/// The page of runs of a program.
pub fn page<'a>(program: &str, machine: &'a Machine, runs: &[LabRun], document: &'a Document) -> Page<'a> {
    let mut sections = Vec::new();
    if runs.len() > 1 {
        sections.push(section(&time(runs)));
    }
    let lines = |of: fn(&RunOutcome) -> Vec<OverTime>| runs.iter().map(|run| of(run.outcome)).collect();
    for (key, title, unit, lines) in [
        ("bandwidth", "Bandwidth of every node over the guest's time", "GB/s", lines(bandwidths)),
        ("memory", "Memory in use on every node over the guest's time", "MiB", lines(in_use)),
    ] {
        let charts = charts(key, unit, runs, lines);
        if !charts.is_empty() {
            sections.push(grid(title, &node_key(runs), &charts));
        }
    }
    Page {
        title: format!("{program} on {}", machine.name),
        summary: &machine.summary,
        result: Finding::default(),
        document,
        sections,
    }
}

/// Time of each subject.
fn time(runs: &[LabRun]) -> Chart {
    let subjects: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let labels: Vec<String> =
        runs.iter().map(|run| format!("{:.2} x", runs[0].guest_ms / run.guest_ms)).collect();
    let ends: Vec<f64> = runs.iter().map(|run| run.guest_ms).collect();
    let layout = Layout::new().x_axis(axis("guest time, ms")).y_axis(names(&subjects));
    let layout = layout.margin(bars_margin(10, &labels));
    let mut plot = plot(layout.annotations(bar_labels(&subjects, &ends, &labels)));
    let bars = Bar::new(ends, subjects)
        .orientation(Orientation::Horizontal)
        .marker(Marker::new().color(colour(0)))
        .hover_template("%{y}: %{x:.3f} ms<extra></extra>");
    plot.add_trace(bars);
    Chart::new(
        "chart-time",
        format!("Guest time, and speed-up over {}", runs[0].name),
        bars_height(runs.len()),
        plot,
    )
}

/// The nodes' colours.
fn node_key(runs: &[LabRun]) -> String {
    let nodes = runs.iter().map(|run| &run.outcome.nodes).max_by_key(|nodes| nodes.len());
    let nodes = nodes.into_iter().flatten().enumerate();
    key(nodes.map(|(number, node)| (node.name.as_str(), colour(number))))
}

/// One chart per run, on common axes; none without data.
fn charts(key: &str, unit: &str, runs: &[LabRun], lines: Vec<Vec<OverTime>>) -> Vec<Chart> {
    if !lines.iter().flatten().flat_map(|line| &line.values).any(|&value| value > 0.0) {
        return Vec::new();
    }
    let chart = |(index, lines): (usize, Vec<OverTime>)| Small {
        id: format!("chart-{key}-{index}"),
        title: runs[index].name.clone(),
        end_ms: runs[index].outcome.guest_ns as f64 / 1e6,
        lines,
    };
    group(lines.into_iter().enumerate().map(chart).collect(), unit, Shape::Lines)
}

/// Each node's bandwidth, in GB/s; zero outside the regions of interest.
fn bandwidths(run: &RunOutcome) -> Vec<OverTime> {
    let regions = run.timing.iter().flat_map(|timing| &timing.regions);
    let mut nodes = empty(run);
    for region in regions {
        let line = &region.timeline;
        let interval = line.interval_ns as f64;
        for (number, bytes) in line.bytes.iter().enumerate() {
            let begin = number as f64 * interval;
            let length = (region.guest_ns - begin).clamp(1.0, interval);
            for (node, &bytes) in nodes.iter_mut().zip(bytes) {
                node.times_ms.push((region.start_ns + begin + length / 2.0) / 1e6);
                node.values.push(bytes as f64 / length);
            }
        }
        // The line is broken where the region ends.
        for node in &mut nodes {
            node.times_ms.push((region.start_ns + region.guest_ns) / 1e6);
            node.values.push(f64::NAN);
        }
    }
    nodes
}

/// Memory that programs use on each node, in MiB.
fn in_use(run: &RunOutcome) -> Vec<OverTime> {
    let mut nodes = empty(run);
    for (number, node) in nodes.iter_mut().enumerate() {
        node.times_ms = run.samples.iter().map(|sample| sample.guest_ns as f64 / 1e6).collect();
        let mib = |kib: &u64| *kib as f64 / 1024.0;
        node.values =
            run.samples.iter().map(|sample| sample.nodes_kib.get(number).map_or(0.0, mib)).collect();
    }
    nodes
}

fn empty(run: &RunOutcome) -> Vec<OverTime> {
    let of_node = |(number, name): (usize, &String)| OverTime {
        name: name.clone(),
        colour: colour(number),
        times_ms: Vec::new(),
        values: Vec::new(),
    };
    run.nodes.iter().map(|node| &node.name).enumerate().map(of_node).collect()
}
