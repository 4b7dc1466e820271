//! The report of a comparison on several machines.

use memtide_core::Machine;
use memtide_sim::{Comparison, Report};
use plotly::common::{Marker, Orientation};
use plotly::layout::{BarMode, Margin};
use plotly::{Bar, Layout};

use super::chart::{Chart, axis, colour, legend, names, plot};
use super::page::{Finding, Page, section};
use crate::output::Document;

/// A figure of a run.
type Figure = fn(&Report) -> f64;

/// The page: a chart per figure, with a bar for each policy and machine.
pub fn page<'a>(programs: String, all: &[(&Machine, &Comparison)], document: &'a Document) -> Page<'a> {
    let figures: [(&str, &str, Figure); 3] = [
        ("chart-time", "Time, ms", |report| report.time_ms),
        ("chart-bandwidth", "Bandwidth of all nodes, GB/s", |report| {
            report.nodes.iter().map(|node| node.bandwidth_mbps).sum::<f64>() / 1e3
        }),
        ("chart-latency", "Mean latency of reads that miss the caches, ns", |report| {
            report.latency.mean_ns.unwrap_or_default()
        }),
    ];
    let sections = figures.map(|(id, title, figure)| section(&chart(id, title, figure, all)));
    let machines: Vec<&str> = all.iter().map(|(machine, _)| machine.name.as_str()).collect();
    Page {
        title: format!("{programs} on {}", machines.join(", ")),
        summary: "One program on several machines, under each policy",
        result: Finding::default(),
        document,
        sections: sections.into(),
    }
}

fn chart(id: &str, title: &str, figure: Figure, all: &[(&Machine, &Comparison)]) -> Chart {
    let policies = &all[0].1.names;
    let layout = Layout::new()
        .bar_mode(BarMode::Group)
        .x_axis(axis(title))
        .y_axis(names(policies))
        .legend(legend())
        .margin(Margin::new().top(40).right(20).bottom(50));
    let mut plot = plot(layout);
    for (index, (machine, comparison)) in all.iter().enumerate() {
        let figures = comparison.reports.iter().map(figure).collect();
        let bars = Bar::new(figures, policies.clone())
            .orientation(Orientation::Horizontal)
            .name(&machine.name)
            .marker(Marker::new().color(colour(index)))
            .hover_template("%{y}: %{x:.3f} (%{fullData.name})<extra></extra>");
        plot.add_trace(bars);
    }
    Chart::new(id, title, 110 + policies.len() * (12 + 12 * all.len()), plot)
}
