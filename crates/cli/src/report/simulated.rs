//! The report of a simulated comparison.

use memtide_sim::{Comparison, Report};
use plotly::common::{Anchor, DashType, Line, Marker, Mode, Orientation};
use plotly::layout::{Annotation, AxisType, BarMode, Legend, Margin};
use plotly::{Bar, Layout, Plot, Scatter};

use super::chart::{
    COLOURS, Chart, OverTime, axis, bars_height, colour, greatest, legend, names, over_time, plot,
};
use super::page::{Page, grid, section};
use crate::output::{Cell, Document};
use crate::runs::Runs;

/// Maximum points of a line: about one per pixel.
const POINTS: usize = 200;

/// The page of a comparison.
pub fn page<'a>(runs: &'a Runs, comparison: &Comparison, document: &'a Document) -> Page<'a> {
    Page {
        title: format!("{} on {}", runs.program_names(), runs.machine.name),
        summary: &runs.machine.summary,
        document,
        sections: vec![
            section(&time(comparison)),
            grid("Pages and accesses by node", "wide", &[pages(comparison), accesses(comparison)]),
            grid("Bandwidth of every node over time", "", &bandwidths(comparison)),
            section(&latency(comparison)),
        ],
    }
}

/// A part of the threads' time, in ms.
type Part = fn(&Report) -> f64;

/// Run time of each policy, by cause.
fn time(comparison: &Comparison) -> Chart {
    let layout = Layout::new()
        .bar_mode(BarMode::Stack)
        .x_axis(axis("time, ms"))
        .y_axis(names(&comparison.names))
        .legend(legend());
    let layout = layout.margin(Margin::new().top(40).right(70).bottom(50));
    let annotations = comparison.reports.iter().enumerate().map(|(index, report)| {
        Annotation::new()
            .x(report.time_ms)
            .y(comparison.names[index].as_str())
            .text(format!(" {} x", Cell::Real(comparison.speedup(index), 2).display()))
            .x_anchor(Anchor::Left)
            .show_arrow(false)
    });
    let mut plot = plot(layout.annotations(annotations.collect()));
    let parts: [(&str, Part, &str); 4] = [
        ("user", |r| r.spent.user_ms, COLOURS[2]),
        ("system", |r| r.spent.system_ms, COLOURS[5]),
        ("waiting for memory", |r| r.spent.stall_ms, COLOURS[0]),
        ("idle", |r| r.spent.idle_ms, "#b0b0b0"),
    ];
    for (name, part, colour) in parts {
        let width = |report: &Report| {
            let spent = &report.spent;
            let all = spent.threads_ms();
            report.time_ms * part(report) / all.max(f64::MIN_POSITIVE)
        };
        plot.add_trace(bar(comparison, name, colour, width));
    }
    let title = match comparison.reports.iter().any(|report| report.marked) {
        true => "Time of the region of interest, split as the threads spend it",
        false => "Time, split as the threads spend it",
    };
    Chart::new("chart-time", title, bars_height(comparison.names.len()), plot)
}

/// Pages per node.
fn pages(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].page_share);
    Chart::new("chart-pages", "Where pages lie", bars_height(comparison.names.len()), plot)
}

/// Accesses per node.
fn accesses(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].access_share);
    Chart::new(
        "chart-accesses",
        "Which nodes serve lines read and written",
        bars_height(comparison.names.len()),
        plot,
    )
}

fn shares(comparison: &Comparison, share: impl Fn(&Report, usize) -> f64) -> Plot {
    let x = axis("share, %").range(vec![0.0, 100.0]);
    let layout =
        Layout::new().bar_mode(BarMode::Stack).x_axis(x).y_axis(names(&comparison.names)).legend(legend());
    let mut plot = plot(layout.margin(Margin::new().top(40).right(20).bottom(50)));
    for (node, report) in comparison.reports[0].nodes.iter().enumerate() {
        plot.add_trace(bar(comparison, &report.name, colour(node), |report| share(report, node) * 100.0));
    }
    plot
}

fn bar(
    comparison: &Comparison,
    name: &str,
    colour: &'static str,
    width: impl Fn(&Report) -> f64,
) -> Box<Bar<f64, String>> {
    let widths = comparison.reports.iter().map(width).collect();
    Bar::new(widths, comparison.names.clone())
        .orientation(Orientation::Horizontal)
        .name(name)
        .marker(Marker::new().color(colour))
        .hover_template("%{y}: %{x:.1f} (%{fullData.name})<extra></extra>")
}

/// Latency distribution of reads that miss the caches.
fn latency(comparison: &Comparison) -> Chart {
    let x = axis("latency of reads that miss the caches, ns").type_(AxisType::Log);
    let y = axis("reads at or below, %").range(vec![0.0, 101.0]);
    let layout = Layout::new()
        .x_axis(x)
        .y_axis(y)
        .legend(Legend::new())
        .margin(Margin::new().top(20).right(20).bottom(60));
    let mut plot = plot(layout);
    let dashes = [DashType::Solid, DashType::Dash];
    for (index, report) in comparison.reports.iter().enumerate() {
        let (ns, shares) = report.latency.distribution.iter().map(|&(ns, share)| (ns, share * 100.0)).unzip();
        let line =
            Line::new().color(colour(index)).width(2.0).dash(dashes[index / COLOURS.len() % 2].clone());
        let trace: Box<Scatter<f64, f64>> = Scatter::new(ns, shares)
            .mode(Mode::Lines)
            .name(&comparison.names[index])
            .line(line)
            .hover_template("%{y:.1f} % within %{x:.0f} ns");
        plot.add_trace(trace);
    }
    Chart::new("chart-latency", "Latency distribution", 440, plot)
}

/// Bandwidth of every node over time, one chart per policy, all on the same axes.
fn bandwidths(comparison: &Comparison) -> Vec<Chart> {
    let lines: Vec<Vec<OverTime>> = comparison.reports.iter().map(thinned).collect();
    let bounds = (comparison.reports[comparison.worst()].time_ms, greatest(lines.iter().flatten()));
    let chart = |(index, nodes): (usize, Vec<OverTime>)| {
        over_time(format!("chart-bandwidth-{index}"), &comparison.names[index], "GB/s", bounds, nodes)
    };
    lines.into_iter().enumerate().map(chart).collect()
}

/// Every node's bandwidth over time, with adjacent points merged.
fn thinned(report: &Report) -> Vec<OverTime> {
    let timeline = &report.timeline;
    let of_node = |(node, mbps): (usize, &Vec<f64>)| {
        let group = mbps.len().div_ceil(POINTS).max(1);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64 / 1e3;
        let middle =
            |index: usize| ((index as f64 + 0.5) * group as f64 * timeline.bucket_ms).min(report.time_ms);
        let values: Vec<f64> = mbps.chunks(group).map(mean).collect();
        let times_ms = (0..values.len()).map(middle).collect();
        OverTime { name: report.nodes[node].name.clone(), times_ms, values }
    };
    timeline.bandwidth_mbps.iter().enumerate().map(of_node).collect()
}
