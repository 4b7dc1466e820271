//! The report of a validation.

use memtide_core::Machine;
use plotly::common::{Marker, Orientation};
use plotly::layout::{BarMode, Shape, ShapeLine, ShapeType};
use plotly::{Bar, Layout};

use super::chart::{Chart, axis, bar_labels, bars_height, bars_margin, colour, names, plot};
use super::page::{Finding, Page, section};
use crate::output::Document;

/// A workload in the report.
pub struct ValidatedRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// Simulated over native time.
    pub ratio: f64,
    /// The modelled part that a deviation points to.
    pub part: Option<&'a str>,
}

/// The page of a validation.
pub fn page<'a>(machine: &'a Machine, runs: &[ValidatedRun], document: &'a Document) -> Page<'a> {
    let sections = vec![section(&times(runs))];
    Page {
        title: "Simulated and native".to_owned(),
        summary: &machine.summary,
        result: Finding::default(),
        document,
        sections,
    }
}

/// Simulated over native time of each workload.
fn times(runs: &[ValidatedRun]) -> Chart {
    let workloads: Vec<String> = runs.iter().map(|run| run.name.to_owned()).collect();
    let ratios: Vec<f64> = runs.iter().map(|run| run.ratio).collect();
    let label = |run: &ValidatedRun| {
        let part = run.part.map_or(String::new(), |part| format!(": {part}"));
        format!("{:.2}{part}", run.ratio)
    };
    let labels: Vec<String> = runs.iter().map(label).collect();
    // Labels are to the right of the line at 1.
    let ends: Vec<f64> = ratios.iter().map(|ratio| ratio.max(1.0)).collect();
    let native = Shape::new()
        .shape_type(ShapeType::Line)
        .x0(1.0)
        .x1(1.0)
        .y0(-0.5)
        .y1(workloads.len() as f64 - 0.5)
        .line(ShapeLine::new().color(colour(5)).width(2.0));
    let most = ratios.iter().copied().filter(|ratio| ratio.is_finite()).fold(1.0, f64::max);
    let layout = Layout::new()
        .x_axis(axis("simulated time / native time").range(vec![0.0, 1.02 * most]))
        .y_axis(names(&workloads))
        .bar_mode(BarMode::Group)
        .shapes(vec![native])
        .margin(bars_margin(10, &labels));
    let mut plot = plot(layout.annotations(bar_labels(&workloads, &ends, &labels)));
    let bars = Bar::new(ratios, workloads)
        .orientation(Orientation::Horizontal)
        .marker(Marker::new().color(colour(0)))
        .hover_template("%{y}: %{x:.2f}<extra></extra>");
    plot.add_trace(bars);
    let title = "Simulated over native time, and what a deviation points to";
    Chart::new("chart-validated", title, bars_height(runs.len()), plot)
}
