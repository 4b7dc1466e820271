//! The report of a sweep.

use memtide_lab::Interval;
use plotly::common::{ErrorData, ErrorType, HoverInfo, Line, Marker, Mode};
use plotly::layout::Margin;
use plotly::{Layout, Scatter};

use super::chart::{Chart, axis, colour, legend, plot};
use super::page::{Page, grid, section};
use crate::output::Document;

/// A figure over the values of another.
pub struct LineChart {
    /// Title with the unit.
    pub title: String,
    /// Lines.
    pub lines: Vec<LineOver>,
}

/// A line.
pub struct LineOver {
    /// Such as the policy.
    pub name: String,
    /// Values of the horizontal axis.
    pub x: Vec<f64>,
    /// Labels of those, if they are no numbers.
    pub labels: Option<Vec<String>>,
    /// Means and intervals.
    pub y: Vec<Interval>,
}

/// Charts under a heading.
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// Charts; their horizontal axes are the same.
    pub charts: Vec<LineChart>,
}

/// The page of a sweep: the first chart large, the others in groups.
pub fn page<'a>(
    title: String,
    summary: &'a str,
    over: &str,
    first: Option<LineChart>,
    groups: Vec<Group>,
    document: &'a Document,
) -> Page<'a> {
    let mut sections: Vec<String> =
        first.into_iter().map(|chart| section(&drawn("chart-time".to_owned(), over, chart, 420))).collect();
    for (number, Group { title, charts }) in groups.into_iter().enumerate() {
        let draw = |(index, chart)| drawn(format!("chart-{number}-{index}"), over, chart, 260);
        let charts: Vec<Chart> = charts.into_iter().enumerate().map(draw).collect();
        if !charts.is_empty() {
            sections.push(grid(title, "", &charts));
        }
    }
    Page { title, summary, document, sections }
}

fn drawn(id: String, over: &str, chart: LineChart, height: usize) -> Chart {
    let layout = Layout::new()
        .x_axis(axis(over))
        .y_axis(axis("").range_mode(plotly::layout::RangeMode::ToZero))
        .legend(legend())
        .show_legend(true)
        .margin(Margin::new().top(30).left(50).right(10).bottom(45));
    let mut plot = plot(layout);
    for (index, line) in chart.lines.into_iter().enumerate() {
        match line.labels.clone() {
            Some(labels) => plot.add_trace(trace(index, labels, line)),
            None => plot.add_trace(trace(index, line.x.clone(), line)),
        }
    }
    Chart::new(id, chart.title, height, plot)
}

fn trace<X: serde::Serialize + Clone + 'static>(
    index: usize,
    x: Vec<X>,
    LineOver { name, y, .. }: LineOver,
) -> Box<Scatter<X, f64>> {
    let above = y.iter().map(|over| over.high - over.mean).collect();
    let below = y.iter().map(|over| over.mean - over.low).collect();
    let means = y.iter().map(|over| over.mean).collect();
    let scatter = Scatter::new(x, means)
        .mode(Mode::LinesMarkers)
        .name(name)
        .line(Line::new().color(colour(index)).width(1.5))
        .marker(Marker::new().color(colour(index)).size(5))
        .hover_info(HoverInfo::All);
    match y.iter().any(|over| over.high > over.low) {
        true => {
            scatter.error_y(ErrorData::new(ErrorType::Data).array(above).array_minus(below).symmetric(false))
        }
        false => scatter,
    }
}
