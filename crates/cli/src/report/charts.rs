//! The charts of a comparison.

use memtide_sim::Report;
use plotly::common::{Anchor, DashType, Font, HoverInfo, Line, Marker, Mode, Orientation};
use plotly::layout::{Annotation, Axis, AxisType, BarMode, Legend, Margin, TraceOrder};
use plotly::{Bar, Configuration, Layout, Plot, Scatter};

use crate::comparison::Comparison;

/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7f00", "#7f7f7f"];

/// Points of a line at most: a pixel shows no more.
const POINTS: usize = 200;

/// A chart and where it stands on the page.
pub struct Chart {
    /// Identifier of its element.
    pub id: String,
    /// What it shows, with units; small charts are grouped under one heading and have the policy's name here.
    pub title: String,
    /// Height in pixels.
    pub height: usize,
    plot: Plot,
}

impl Chart {
    fn new(id: impl Into<String>, title: impl Into<String>, height: usize, plot: Plot) -> Chart {
        Chart { id: id.into(), title: title.into(), height, plot }
    }

    /// The element with the script that draws it.
    pub fn html(&self) -> String {
        self.plot.to_inline_html(Some(&self.id))
    }
}

fn plot(layout: Layout) -> Plot {
    let mut plot = Plot::new();
    plot.set_layout(
        layout
            .font(Font::new().family("system-ui, sans-serif").size(13))
            .paper_background_color("rgba(0,0,0,0)")
            .plot_background_color("rgba(0,0,0,0)"),
    );
    plot.set_configuration(
        Configuration::new()
            .responsive(true)
            .display_logo(false)
            .display_mode_bar(plotly::configuration::DisplayModeBar::False),
    );
    plot
}

fn axis(title: &str) -> Axis {
    Axis::new().title(title).grid_color("rgba(128,128,128,0.25)").zero_line(false).auto_margin(true)
}

/// Policies from top to bottom in the table's order.
fn policies(comparison: &Comparison) -> Axis {
    let bottom = comparison.names.len() as f64 - 0.5;
    Axis::new().range(vec![bottom, -0.5]).auto_margin(true).tick_suffix("  ")
}

fn legend() -> Legend {
    Legend::new()
        .orientation(Orientation::Horizontal)
        .trace_order(TraceOrder::Normal)
        .y(1.02)
        .y_anchor(Anchor::Bottom)
        .x(0.0)
}

fn bars_height(comparison: &Comparison) -> usize {
    110 + 30 * comparison.names.len()
}

/// A part of the threads' time, in ms.
type Part = fn(&Report) -> f64;

/// How long each policy takes, and on what.
pub fn time(comparison: &Comparison) -> Chart {
    let layout = Layout::new()
        .bar_mode(BarMode::Stack)
        .x_axis(axis("time, ms"))
        .y_axis(policies(comparison))
        .legend(legend());
    let layout = layout.margin(Margin::new().top(40).right(70).bottom(50));
    let annotations = comparison.reports.iter().enumerate().map(|(index, report)| {
        Annotation::new()
            .x(report.time_ms)
            .y(comparison.names[index].as_str())
            .text(format!(" {:.2} x", comparison.speedup(index)))
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
            let all = spent.user_ms + spent.system_ms + spent.stall_ms + spent.idle_ms;
            report.time_ms * part(report) / all.max(f64::MIN_POSITIVE)
        };
        plot.add_trace(bar(comparison, name, colour, width));
    }
    Chart::new("chart-time", "Time, split as the threads spend it", bars_height(comparison), plot)
}

/// On which nodes pages lie.
pub fn pages(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].page_share);
    Chart::new("chart-pages", "Where pages lie", bars_height(comparison), plot)
}

/// Which nodes serve accesses.
pub fn accesses(comparison: &Comparison) -> Chart {
    let plot = shares(comparison, |report, node| report.nodes[node].access_share);
    Chart::new("chart-accesses", "Which nodes serve lines read and written", bars_height(comparison), plot)
}

fn shares(comparison: &Comparison, share: impl Fn(&Report, usize) -> f64) -> Plot {
    let x = axis("share, %").range(vec![0.0, 100.0]);
    let layout =
        Layout::new().bar_mode(BarMode::Stack).x_axis(x).y_axis(policies(comparison)).legend(legend());
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

/// How many of the reads that miss the caches take how long.
pub fn latency(comparison: &Comparison) -> Chart {
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

/// Bandwidth of every node over time, a chart a policy, all on the same axes.
pub fn bandwidths(comparison: &Comparison) -> Vec<Chart> {
    let lines: Vec<_> = comparison.reports.iter().map(thinned).collect();
    let most = lines.iter().flatten().flat_map(|rates| &rates.gbps).fold(0.0, |a: f64, b| a.max(*b));
    let longest = comparison.reports[comparison.worst()].time_ms;
    let chart = |(index, of_nodes): (usize, Vec<Rates>)| {
        let x = axis("time, ms").range(vec![0.0, longest]);
        let y = axis("GB/s").range(vec![0.0, most * 1.05]);
        let layout = Layout::new().x_axis(x).y_axis(y).legend(legend()).show_legend(true);
        let mut plot = plot(layout.margin(Margin::new().top(30).left(50).right(10).bottom(45)));
        for (node, Rates { times_ms, gbps }) in of_nodes.into_iter().enumerate() {
            let trace = Scatter::new(times_ms, gbps)
                .mode(Mode::Lines)
                .name(&comparison.reports[index].nodes[node].name)
                .line(Line::new().color(colour(node)).width(1.5))
                .hover_info(HoverInfo::All);
            plot.add_trace(trace);
        }
        Chart::new(format!("chart-bandwidth-{index}"), comparison.names[index].as_str(), 230, plot)
    };
    lines.into_iter().enumerate().map(chart).collect()
}

/// A node's bandwidth over time.
struct Rates {
    times_ms: Vec<f64>,
    gbps: Vec<f64>,
}

/// Every node's bandwidth over time, neighbours put together.
fn thinned(report: &Report) -> Vec<Rates> {
    let timeline = &report.timeline;
    let of_node = |mbps: &Vec<f64>| {
        let group = mbps.len().div_ceil(POINTS).max(1);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64 / 1e3;
        let middle = |index: usize| (index as f64 + 0.5) * group as f64 * timeline.bucket_ms;
        let gbps: Vec<f64> = mbps.chunks(group).map(mean).collect();
        Rates { times_ms: (0..gbps.len()).map(middle).collect(), gbps }
    };
    timeline.bandwidth_mbps.iter().map(of_node).collect()
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}
