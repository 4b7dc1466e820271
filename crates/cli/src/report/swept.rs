//! The report of a sweep.

use memtide_lab::Interval;
use plotly::common::{ErrorData, ErrorType, Font, HoverInfo, Marker, Mode};
use plotly::layout::Margin;
use plotly::{Layout, Scatter};

use super::chart::{ALIKE, Chart, alike, axis, colour, joined, legend, plot, sample, stroke};
use super::page::{Finding, Page, grid, key, keyed_section};
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

/// The page of a sweep: the result, the first chart large, the others in groups.
pub fn page<'a>(
    title: String,
    summary: &'a str,
    over: &str,
    result: Finding,
    first: Option<LineChart>,
    groups: Vec<Group>,
    document: &'a Document,
) -> Page<'a> {
    let mut sections = Vec::new();
    if let Some(chart) = first {
        let key = key_of(&chart);
        sections.push(keyed_section(&key, &drawn("chart-time".to_owned(), over, chart, 420)));
    }
    for (number, Group { title, charts }) in groups.into_iter().enumerate() {
        let Some(key) = charts.first().map(key_of) else { continue };
        let draw = |(index, chart)| drawn(format!("chart-{number}-{index}"), over, chart, 260);
        let charts: Vec<Chart> = charts.into_iter().enumerate().map(draw).collect();
        sections.push(grid(title, &key, &charts));
    }
    Page { title, summary, result, document, sections }
}

/// The key of charts, which all have the same lines.
fn key_of(chart: &LineChart) -> String {
    let samples: Vec<String> = (0..chart.lines.len()).map(sample).collect();
    key(chart.lines.iter().zip(&samples).map(|(line, sample)| (line.name.as_str(), sample.as_str())))
}

/// A chart. Its legend has the lines that stand for several; the page's key has the others.
fn drawn(id: String, over: &str, chart: LineChart, height: usize) -> Chart {
    let LineChart { title, lines } = chart;
    let layout = Layout::new()
        .x_axis(axis(over))
        .y_axis(axis("").range_mode(plotly::layout::RangeMode::ToZero))
        .legend(legend().font(Font::new().size(11)))
        .show_legend(true)
        .margin(Margin::new().top(30).left(50).right(10).bottom(45));
    let mut plot = plot(layout);
    let near = ALIKE * lines.iter().flat_map(|line| &line.y).map(|over| over.high).fold(0.0, f64::max);
    let groups = alike(&lines, |a, b| a.covers(b, near));
    for group in groups.into_iter().filter(|group| !lines[group[0]].y.is_empty()) {
        let line = &lines[group[0]];
        match line.labels.clone() {
            Some(labels) => plot.add_trace(trace(labels, &lines, &group)),
            None => plot.add_trace(trace(line.x.clone(), &lines, &group)),
        }
    }
    Chart::new(id, title, height, plot)
}

impl LineOver {
    /// Whether the other's line, with figures at most `near` away, is in the same place.
    fn covers(&self, other: &LineOver, near: f64) -> bool {
        let ends = |over: &Interval| [over.mean, over.low, over.high];
        let is_near =
            |(a, b): (&Interval, &Interval)| ends(a).iter().zip(ends(b)).all(|(a, b)| (a - b).abs() <= near);
        self.x == other.x
            && self.labels == other.labels
            && self.y.len() == other.y.len()
            && self.y.iter().zip(&other.y).all(is_near)
    }
}

/// The line of a group of lines in the same place: drawn as the first of them.
fn trace<X: serde::Serialize + Clone + 'static>(
    x: Vec<X>,
    lines: &[LineOver],
    group: &[usize],
) -> Box<Scatter<X, f64>> {
    let (index, y) = (group[0], &lines[group[0]].y);
    let names: Vec<&str> = group.iter().map(|&line| lines[line].name.as_str()).collect();
    let above = y.iter().map(|over| over.high - over.mean).collect();
    let below = y.iter().map(|over| over.mean - over.low).collect();
    let means = y.iter().map(|over| over.mean).collect();
    let scatter = Scatter::new(x, means)
        .mode(Mode::LinesMarkers)
        .name(joined(&names))
        .show_legend(group.len() > 1)
        .line(stroke(index, 1.5))
        .marker(Marker::new().color(colour(index)).size(5))
        .hover_info(HoverInfo::All);
    match y.iter().any(|over| over.high > over.low) {
        true => {
            scatter.error_y(ErrorData::new(ErrorType::Data).array(above).array_minus(below).symmetric(false))
        }
        false => scatter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, values: &[f64]) -> LineOver {
        let y = values.iter().map(|&mean| Interval { mean, low: mean, high: mean }).collect();
        let x = (0..values.len()).map(|index| index as f64).collect();
        LineOver { name: name.to_owned(), x, labels: None, y }
    }

    fn html(lines: Vec<LineOver>) -> String {
        drawn("chart".to_owned(), "MiB", LineChart { title: "time, ms".to_owned(), lines }, 260).html()
    }

    #[test]
    fn equal_lines_are_one_line_with_all_names() {
        let lines = vec![line("a", &[9.0, 100.0]), line("b", &[50.0, 1.0]), line("c", &[9.1, 100.4])];
        let html = html(lines);
        assert!(html.contains(r#""name":"a, c","showlegend":true"#), "{html}");
        assert!(html.contains(r#""name":"b","showlegend":false"#), "{html}");
        assert_eq!(html.matches(r#""mode":"lines"#).count(), 2);
    }

    #[test]
    fn lines_over_other_values_are_separate() {
        let html = html(vec![line("a", &[9.0, 9.0]), line("b", &[9.0]), line("c", &[])]);
        assert_eq!(html.matches(r#""mode":"lines"#).count(), 2, "and one has no figures");
    }
}
