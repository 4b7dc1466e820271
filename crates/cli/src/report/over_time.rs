//! Groups of small charts of figures over time, on common axes.

use plotly::common::{Anchor, HoverInfo, Line, Mode};
use plotly::layout::{Annotation, Margin};
use plotly::{Layout, Scatter};

use super::axes::{common, shared, without_spikes};
use super::chart::{Chart, axis, plot};

/// A figure over time.
pub struct OverTime {
    /// Its name, such as a node's.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// Times, in ms.
    pub times_ms: Vec<f64>,
    /// The figure at each; not a number where the line is broken.
    pub values: Vec<f64>,
}

/// A small chart of a group.
pub struct Small {
    /// Identifier of its element.
    pub id: String,
    /// Title, such as the policy.
    pub title: String,
    /// End of its time, in ms.
    pub end_ms: f64,
    /// Its figures.
    pub lines: Vec<OverTime>,
}

/// How the figures of a chart are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each from zero.
    Lines,
    /// Areas on top of each other, all with the same times.
    Stacked,
}

/// Draws the charts of a group, whose axes are the same but for outliers.
pub fn group(charts: Vec<Small>, unit: &str, shape: Shape) -> Vec<Chart> {
    groups(vec![charts], unit, shape).remove(0)
}

/// Draws groups of charts of the same figure: their axes are the same but for outliers, and for groups that
/// the axes of the others would flatten.
pub fn groups(groups: Vec<Vec<Small>>, unit: &str, shape: Shape) -> Vec<Vec<Chart>> {
    let time = common(groups.iter().flatten().map(|chart| chart.end_ms));
    let ends: Vec<f64> =
        groups.iter().map(|charts| common(charts.iter().map(|chart| chart.peak(shape)))).collect();
    let ends = shared(&ends);
    let usual = ends.iter().copied().fold(0.0, f64::max);
    let draw = |chart: Small, end: f64| {
        let bounds = (chart.end_ms.max(time), chart.peak(shape).max(end));
        let title = titled(&chart.title, (time, usual), bounds);
        chart.draw(title, unit, shape, bounds)
    };
    let draw_group =
        |(charts, end): (Vec<Small>, f64)| charts.into_iter().map(|chart| draw(chart, end)).collect();
    groups.into_iter().zip(ends).map(draw_group).collect()
}

/// The title of a chart, with how its axes differ from the usual ones. Axes are ends of time and figure.
fn titled(title: &str, usual: (f64, f64), axes: (f64, f64)) -> String {
    let differences = [
        (axes.0 > usual.0, "longer time axis"),
        (axes.1 > usual.1, "higher scale"),
        (axes.1 < usual.1, "lower scale"),
    ];
    let words: Vec<&str> =
        differences.iter().filter(|(differs, _)| *differs).map(|(_, words)| *words).collect();
    if words.is_empty() { title.to_owned() } else { format!("{title} ({})", words.join(", ")) }
}

impl Small {
    /// Its greatest height, spikes left out.
    fn peak(&self, shape: Shape) -> f64 {
        without_spikes(self.heights(shape))
    }

    /// The height of what is drawn at each time.
    fn heights(&self, shape: Shape) -> Vec<f64> {
        match shape {
            Shape::Lines => self.lines.iter().flat_map(|line| line.values.iter().copied()).collect(),
            Shape::Stacked => {
                let times = self.lines.first().map_or(0, |line| line.values.len());
                (0..times).map(|at| self.lines.iter().map(|line| line.values[at]).sum()).collect()
            }
        }
    }

    /// The spike beyond the axis, as its time and height.
    fn spike(&self, shape: Shape, most: f64) -> Option<(f64, f64)> {
        let heights = self.heights(shape);
        let times = self.lines.iter().flat_map(|line| line.times_ms.iter().copied());
        let highest = times.zip(heights).filter(|(_, height)| height.is_finite());
        highest.reduce(|a, b| if b.1 > a.1 { b } else { a }).filter(|(_, height)| *height > most)
    }

    fn draw(self, title: String, unit: &str, shape: Shape, (end_ms, most): (f64, f64)) -> Chart {
        let x = axis("time, ms").range(vec![0.0, end_ms]);
        let top = if most > 0.0 { most * 1.05 } else { 1.0 };
        let y = axis(unit).range(vec![0.0, top]);
        let spike = self.spike(shape, top).map(|spike| clipped(spike, end_ms));
        let layout = Layout::new().x_axis(x).y_axis(y).show_legend(false);
        let layout = layout.margin(Margin::new().top(20).left(50).right(10).bottom(45));
        let mut plot = plot(layout.annotations(spike.into_iter().collect()));
        for OverTime { name, colour, times_ms, values } in self.lines {
            let trace = Scatter::new(times_ms, values.into_iter().map(rounded).collect())
                .mode(Mode::Lines)
                .name(name)
                .line(Line::new().color(colour).width(1.5))
                .hover_info(HoverInfo::All);
            plot.add_trace(match shape {
                Shape::Lines => trace,
                Shape::Stacked => {
                    trace.line(Line::new().color(colour).width(0.5)).fill_color(colour).stack_group("all")
                }
            });
        }
        Chart::new(self.id, title, 200, plot)
    }
}

/// Names a spike that the axis clips.
fn clipped((at_ms, height): (f64, f64), end_ms: f64) -> Annotation {
    let anchor = if at_ms > end_ms / 2.0 { Anchor::Right } else { Anchor::Left };
    let text = format!("\u{25b2} {}", rounded(height));
    Annotation::new()
        .x(at_ms)
        .y(1.0)
        .y_ref("paper")
        .text(text)
        .x_anchor(anchor)
        .y_anchor(Anchor::Bottom)
        .show_arrow(false)
}

/// A value with four significant digits, which is more than a small chart shows: files stay small.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(end_ms: f64, values: &[f64]) -> Small {
        let times_ms = (0..values.len()).map(|index| index as f64).collect();
        let line = OverTime { name: "node".to_owned(), colour: "#000000", times_ms, values: values.to_vec() };
        Small { id: "chart".to_owned(), title: "policy".to_owned(), end_ms, lines: vec![line] }
    }

    fn titles(charts: Vec<Small>, shape: Shape) -> Vec<String> {
        group(charts, "GB/s", shape).into_iter().map(|chart| chart.title).collect()
    }

    #[test]
    fn outliers_have_axes_of_their_own_and_say_so() {
        let all = vec![small(10.0, &[1.0, 2.0]), small(12.0, &[3.0, 1.0]), small(90.0, &[1.0, 50.0])];
        assert_eq!(
            titles(all, Shape::Lines),
            ["policy", "policy", "policy (longer time axis, higher scale)"]
        );
        assert_eq!(titles(vec![small(5.0, &[0.0, 0.0])], Shape::Stacked), ["policy"]);
    }

    #[test]
    fn groups_of_a_figure_share_an_axis_unless_flattened() {
        let of = |most: f64| vec![small(10.0, &[1.0, most])];
        let drawn = groups(vec![of(50.0), of(20.0), of(4.0)], "GB/s", Shape::Lines);
        let titles: Vec<&str> = drawn.iter().flatten().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["policy", "policy", "policy (lower scale)"]);
        let ends = drawn.iter().flatten().zip(["52.5", "52.5", "4.2"]);
        ends.for_each(|(chart, end)| assert!(chart.html().contains(&format!("[0.0,{end}]")), "{end}"));
    }

    #[test]
    fn spike_is_clipped_and_named() {
        let values: Vec<f64> = (0..200).map(|index| if index == 7 { 48.25 } else { 2.0 }).collect();
        for (shape, lines) in [(Shape::Lines, 1), (Shape::Stacked, 2)] {
            let mut chart = small(200.0, &values);
            chart.lines.extend((1..lines).map(|_| small(200.0, &values).lines.remove(0)));
            let html = group(vec![chart], "GB/s", shape).remove(0).html();
            let (name, end) = if lines == 1 { ("48.25", "2.1") } else { ("96.5", "4.2") };
            assert!(
                html.contains(&format!("\u{25b2} {name}")) && html.contains(&format!("[0.0,{end}]")),
                "{html}"
            );
        }
    }

    #[test]
    fn values_have_four_significant_digits() {
        assert_eq!(rounded(12.345678), 12.35);
        assert_eq!(rounded(0.0), 0.0);
        assert!(rounded(f64::NAN).is_nan());
    }
}
