//! A chart, and helpers for all charts.

use plotly::common::{Anchor, DashType, Font, Line, Orientation};
use plotly::layout::{Annotation, Axis, Legend, Margin, TicksDirection, TraceOrder};
use plotly::{Configuration, Layout, Plot};

/// Colour-blind safe colours (Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7f00", "#7f7f7f"];

/// Figures within this share of each other are drawn as one.
pub const ALIKE: f64 = 0.005;

/// Maximum letters in a line of a legend.
const LEGEND_LINE: usize = 48;

/// Width of a letter of a label, in pixels.
const LETTER: usize = 8;

/// A chart and the id of its element on the page.
pub struct Chart {
    /// Identifier of its element.
    pub id: String,
    /// Title with units; a policy's name for small charts, which are grouped under one heading.
    pub title: String,
    /// Height in pixels.
    pub height: usize,
    plot: Plot,
}

impl Chart {
    /// Of a plot.
    pub fn new(id: impl Into<String>, title: impl Into<String>, height: usize, plot: Plot) -> Chart {
        Chart { id: id.into(), title: title.into(), height, plot }
    }

    /// The element with the script that draws it.
    pub fn html(&self) -> String {
        self.plot.to_inline_html(Some(&self.id))
    }
}

/// A plot in the colours of the page.
pub fn plot(layout: Layout) -> Plot {
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

/// An axis with its title. Its ticks keep labels off the other axis, so that those at the origin do not
/// overlap.
pub fn axis(title: &str) -> Axis {
    let grid = "rgba(128,128,128,0.25)";
    let axis = Axis::new().title(title).grid_color(grid).zero_line(false).auto_margin(true);
    axis.ticks(TicksDirection::Outside).tick_length(6).tick_color(grid)
}

/// Axis of bar labels, from top to bottom in the table's order.
pub fn names(names: &[String]) -> Axis {
    let bottom = names.len() as f64 - 0.5;
    Axis::new().range(vec![bottom, -0.5]).auto_margin(true).tick_suffix("  ")
}

/// Height of a chart with `bars` bars.
pub fn bars_height(bars: usize) -> usize {
    110 + 30 * bars
}

/// A legend above the plot.
pub fn legend() -> Legend {
    Legend::new()
        .orientation(Orientation::Horizontal)
        .trace_order(TraceOrder::Normal)
        .y(1.02)
        .y_anchor(Anchor::Bottom)
        .x(0.0)
}

/// The colour of a node or a line.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// The line of a policy: its colour, and dashes once the colours are used up.
pub fn stroke(index: usize, width: f64) -> Line {
    let dash = if is_dashed(index) { DashType::Dash } else { DashType::Solid };
    Line::new().color(colour(index)).width(width).dash(dash)
}

/// The sample of [`stroke`] in a key, as a CSS background.
pub fn sample(index: usize) -> String {
    let colour = colour(index);
    match is_dashed(index) {
        true => format!("linear-gradient(90deg,{colour} 40%,transparent 40% 60%,{colour} 60%)"),
        false => colour.to_owned(),
    }
}

fn is_dashed(index: usize) -> bool {
    index / COLOURS.len() % 2 == 1
}

/// Indices of items in groups: each is the same as the first of its group, so that their lines would cover
/// each other.
pub fn alike<T>(items: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match groups.iter_mut().find(|group| same(&items[group[0]], item)) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// A text for labels and legends, whose tags Plotly would interpret.
pub fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Names of a line that stands for several, as many in a line of the legend as fit.
pub fn joined(names: &[&str]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some(line) if line.chars().count() + name.chars().count() < LEGEND_LINE => {
                *line += &format!(", {name}");
            }
            _ => lines.push((*name).to_owned()),
        }
    }
    lines.join(",<br>")
}

/// Labels at the ends of bars.
pub fn bar_labels(names: &[String], ends: &[f64], labels: &[String]) -> Vec<Annotation> {
    let label = |((name, &end), label): ((&String, &f64), &String)| {
        let at = Annotation::new().x(end).y(name.as_str()).x_anchor(Anchor::Left);
        at.text(format!(" {label}")).show_arrow(false)
    };
    names.iter().zip(ends).zip(labels).map(label).collect()
}

/// Margins of a chart of bars: on the right, a label at the end of the longest bar fits.
pub fn bars_margin(top: usize, labels: &[String]) -> Margin {
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    Margin::new().top(top).right(20 + LETTER * longest).bottom(50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_items_are_in_one_group() {
        assert_eq!(alike(&[1, 2, 1, 3, 2], |a, b| a == b), [vec![0, 2], vec![1, 4], vec![3]]);
        assert!(alike(&[] as &[u8], |a, b| a == b).is_empty());
    }

    #[test]
    fn tags_of_names_are_not_interpreted() {
        assert_eq!(plain("<b>R&D</b>"), "&lt;b&gt;R&amp;D&lt;/b&gt;");
    }

    #[test]
    fn joined_names_break_between_names() {
        assert_eq!(joined(&["local", "ratio"]), "local, ratio");
        let long = "x".repeat(LEGEND_LINE);
        assert_eq!(joined(&["local", &long, "ratio"]), format!("local,<br>{long},<br>ratio"));
    }
}
