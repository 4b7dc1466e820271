//! A chart, and helpers for all charts.

use plotly::common::{Anchor, Font, Orientation};
use plotly::layout::{Annotation, Axis, Legend, Margin, TicksDirection, TraceOrder};
use plotly::{Configuration, Layout, Plot};

/// Colour-blind safe colours (Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7f00", "#7f7f7f"];

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
