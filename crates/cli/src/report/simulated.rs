//! The report of a simulated comparison.

use memtide_sim::{Comparison, Report};
use plotly::common::{Marker, Mode, Orientation};
use plotly::layout::{AxisType, BarMode, Legend, Margin};
use plotly::{Bar, Layout, Plot, Scatter};

use super::axes::common;
use super::chart::{
    ALIKE, COLOURS, Chart, alike, axis, bar_labels, bars_height, bars_margin, colour, legend, names, plot,
    stroke,
};
use super::page::{Finding, Page, section, wide_grid};
use super::timelines;
use super::{explained, heat};
use crate::output::{Cell, Document};
use crate::runs::Runs;
use crate::tables::mix;

/// The page of a comparison.
pub fn page<'a>(runs: &'a Runs, comparison: &Comparison, document: &'a Document) -> Page<'a> {
    let by_node = wide_grid("Pages and accesses by node", None, &[pages(comparison), accesses(comparison)]);
    let mut sections = vec![section(&time(comparison)), explained::section(comparison), by_node];
    if !comparison.alone_ms.is_empty() {
        sections.push(section(&slowdowns(comparison)));
    }
    sections.extend(timelines::sections(comparison));
    sections.push(section(&latency(comparison)));
    sections.extend(heat::section(comparison));
    Page {
        title: format!("{} on {}", runs.program_names(), runs.machine.name),
        summary: &runs.machine.summary,
        result: Finding::default(),
        document,
        sections,
    }
}

/// A part of the threads' time, in ms.
type Part = fn(&Report) -> f64;

/// Run time of each policy, and of the oracle, by cause.
fn time(comparison: &Comparison) -> Chart {
    let times = || comparison.runs().map(|(_, report)| report.time_ms);
    let run_names = run_names(comparison);
    let end = common(times());
    let label = |(index, time): (usize, f64)| {
        let speedup = Cell::Real(comparison.speedup(index), 2).display();
        if time > end {
            return format!("\u{25b8} {} ms, {speedup} x", Cell::Real(time, 3).display());
        }
        format!("{speedup} x")
    };
    let labels: Vec<String> = times().enumerate().map(label).collect();
    let ends: Vec<f64> = times().map(|time| time.min(end)).collect();
    let layout = Layout::new()
        .bar_mode(BarMode::Stack)
        .x_axis(axis("time, ms").range(vec![0.0, end]))
        .y_axis(names(&run_names))
        .legend(legend())
        .margin(bars_margin(40, &labels))
        .annotations(bar_labels(&run_names, &ends, &labels));
    let mut plot = plot(layout);
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
    let bound = comparison.bound.map(|bound| Cell::Real(bound.time_ms(), 3).display());
    let title = format!("{title}{}", bound.map_or(String::new(), |ms| format!(" (bound: {ms} ms)")));
    Chart::new("chart-time", title, bars_height(run_names.len()), plot)
}

/// Slow-down of each program, with a bar for each policy; of copies that start together, the mean.
fn slowdowns(comparison: &Comparison) -> Chart {
    let groups = mix::together(&comparison.reports[0]);
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .x_axis(axis("time over time alone; of copies, their mean"))
        .y_axis(names(&comparison.names))
        .legend(legend())
        .margin(Margin::new().top(40).right(20).bottom(50));
    let mut plot = plot(layout);
    for (place, group) in groups.iter().enumerate() {
        let mean = |all: Vec<f64>| group.iter().map(|&number| all[number]).sum::<f64>() / group.len() as f64;
        let of = |run: usize| comparison.slowdowns(run).map_or(f64::NAN, mean);
        let name = &comparison.reports[0].programs[group[0]];
        let name = match group.len() {
            1 => format!("{} {name}", group[0] + 1),
            copies => format!("{copies} x {name}"),
        };
        let bars = Bar::new((0..comparison.names.len()).map(of).collect(), comparison.names.clone())
            .orientation(Orientation::Horizontal)
            .name(name)
            .show_legend(true)
            .marker(Marker::new().color(colour(place)))
            .hover_template("%{y}: %{x:.2f} (%{fullData.name})<extra></extra>");
        plot.add_trace(bars);
    }
    let height = 110 + comparison.names.len() * (12 + 12 * groups.len());
    Chart::new("chart-slowdowns", "Slow-down of each program in the mix", height, plot)
}

/// Pages per node.
fn pages(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].page_share);
    Chart::new("chart-pages", "Where pages lie", bars_height(comparison.runs().count()), plot)
}

/// Accesses per node.
fn accesses(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].access_share);
    Chart::new(
        "chart-accesses",
        "Which nodes serve lines read and written",
        bars_height(comparison.runs().count()),
        plot,
    )
}

fn shares(comparison: &Comparison, share: impl Fn(&Report, usize) -> f64) -> Plot {
    let x = axis("share, %").range(vec![0.0, 100.0]);
    let layout = Layout::new()
        .bar_mode(BarMode::Stack)
        .x_axis(x)
        .y_axis(names(&run_names(comparison)))
        .legend(legend());
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
    let widths = comparison.runs().map(|(_, report)| width(report)).collect();
    Bar::new(widths, run_names(comparison))
        .orientation(Orientation::Horizontal)
        .name(name)
        .marker(Marker::new().color(colour))
        .hover_template("%{y}: %{x:.1f} (%{fullData.name})<extra></extra>")
}

/// Names of the policies, and of the oracle if it ran.
fn run_names(comparison: &Comparison) -> Vec<String> {
    comparison.runs().map(|(name, _)| name.to_owned()).collect()
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
    for (index, policies) in alike(&comparison.reports, same_latencies).into_iter().enumerate() {
        let distribution = &comparison.reports[policies[0]].latency.distribution;
        let (ns, shares) = distribution.iter().map(|&(ns, share)| (ns, share * 100.0)).unzip();
        let names: Vec<&str> = policies.iter().map(|&policy| comparison.names[policy].as_str()).collect();
        let trace: Box<Scatter<f64, f64>> = Scatter::new(ns, shares)
            .mode(Mode::Lines)
            .name(names.join(",<br>"))
            .line(stroke(index, 2.0))
            .hover_template("%{y:.1f} % within %{x:.0f} ns");
        plot.add_trace(trace);
    }
    Chart::new("chart-latency", "Latency distribution", 440, plot)
}

/// Whether the latencies of two reports are about the same, so that their lines would cover each other.
fn same_latencies(a: &Report, b: &Report) -> bool {
    let (a, b) = (&a.latency.distribution, &b.latency.distribution);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.0 - b.0).abs() <= ALIKE * a.0)
}
