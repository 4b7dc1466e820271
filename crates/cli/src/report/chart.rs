//! A chart, and helpers for all charts.

use plotly::common::{Anchor, Font, HoverInfo, Line, Mode, Orientation};
use plotly::layout::{Axis, Legend, Margin, TicksDirection, TraceOrder};
use plotly::{Configuration, Layout, Plot, Scatter};

/// Colour-blind safe colours (Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7f00", "#7f7f7f"];

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

/// A node's figure over time.
pub struct OverTime {
    /// The node.
    pub name: String,
    /// Times, in ms.
    pub times_ms: Vec<f64>,
    /// The figure at each.
    pub values: Vec<f64>,
}

/// A small chart of all nodes' figures over time, whose axes end at `longest_ms` and just above `most`.
pub fn over_time(
    id: String,
    title: &str,
    unit: &str,
    (longest_ms, most): (f64, f64),
    nodes: Vec<OverTime>,
) -> Chart {
    let x = axis("time, ms").range(vec![0.0, longest_ms]);
    let y = axis(unit).range(vec![0.0, most * 1.05]);
    let layout = Layout::new().x_axis(x).y_axis(y).legend(legend()).show_legend(true);
    let mut plot = plot(layout.margin(Margin::new().top(30).left(50).right(10).bottom(45)));
    for (node, OverTime { name, times_ms, values }) in nodes.into_iter().enumerate() {
        let trace = Scatter::new(times_ms, values)
            .mode(Mode::Lines)
            .name(name)
            .line(Line::new().color(colour(node)).width(1.5))
            .hover_info(HoverInfo::All);
        plot.add_trace(trace);
    }
    Chart::new(id, title, 230, plot)
}

/// Maximum over all nodes and times.
pub fn greatest<'a>(all: impl Iterator<Item = &'a OverTime>) -> f64 {
    all.flat_map(|node| &node.values).fold(0.0, |a: f64, b| a.max(*b))
}
