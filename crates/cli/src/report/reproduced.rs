//! The report of a reproduction.

use memtide_experiments::{Experiment, Figure, Judged, Number};
use plotly::common::Marker;
use plotly::layout::{BarMode, Margin};
use plotly::{Bar, Layout};

use super::chart::{Chart, alike, axis, colour, legend, plain, plot};
use super::page::{Finding, Page, wide_grid};
use crate::output::{Document, paragraph};

/// Height of a chart in pixels.
const HEIGHT: usize = 380;

/// The page: `counts` say how many claims hold.
pub fn page<'a>(done: &[(Experiment, Judged)], counts: Vec<String>, document: &'a Document) -> Page<'a> {
    let sections = done.iter().enumerate().map(|(at, (experiment, judged))| {
        let heading = format!("{}: {} ({})", experiment.id, experiment.title, judged.verdict());
        wide_grid(&heading, judged.finding(experiment), &charts(at, experiment, judged))
    });
    let ids: Vec<&str> = done.iter().map(|(experiment, _)| experiment.id.as_str()).collect();
    let title = match &ids[..] {
        [id] => format!("Reproduction of {id}"),
        ids => format!("Reproduction of {} figures and tables", ids.len()),
    };
    Page {
        title,
        summary: "Results of the model beside those that the papers report",
        result: Finding { sentences: counts, table: None },
        document,
        sections: sections.collect(),
    }
}

fn charts(at: usize, experiment: &Experiment, judged: &Judged) -> Vec<Chart> {
    let figures = experiment.figures.iter().zip(&judged.figures).enumerate();
    let mut charts: Vec<Chart> = figures
        .map(|(index, (figure, values))| drawn(format!("figure-{at}-{index}"), figure, values, judged))
        .collect();
    for (index, chosen) in by_unit(&experiment.numbers).iter().enumerate() {
        charts.push(beside(format!("numbers-{at}-{index}"), experiment, judged, chosen));
    }
    charts
}

/// Indices of the numbers of each unit.
fn by_unit(numbers: &[Number]) -> Vec<Vec<usize>> {
    alike(numbers, |a, b| a.unit == b.unit)
}

/// Bars of a figure: a colour for each policy.
fn drawn(id: String, figure: &Figure, values: &[f64], judged: &Judged) -> Chart {
    let policies = &judged.names[1];
    let places = judged.bars();
    let several = judged.names[0].len() > 1;
    let label = |[program, _, variant]: &[&str; 3]| match (several, variant.is_empty()) {
        (_, true) => plain(program),
        (false, false) => plain(variant),
        (true, false) => plain(&format!("{program}, {variant}")),
    };
    let mut plot = plot(grouped());
    for (index, policy) in policies.iter().enumerate() {
        let of: Vec<(&[&str; 3], f64)> =
            places.iter().zip(values.iter().copied()).filter(|(place, _)| place[1] == policy).collect();
        let (labels, values) = of.into_iter().map(|(place, value)| (label(place), value)).unzip();
        plot.add_trace(bar(labels, values, &plain(policy), index));
    }
    Chart::new(id, &figure.title, HEIGHT, plot)
}

/// Numbers of the paper and ours.
fn beside(id: String, experiment: &Experiment, judged: &Judged, chosen: &[usize]) -> Chart {
    let mut plot = plot(grouped());
    let whats: Vec<String> = chosen.iter().map(|&at| broken(&experiment.numbers[at].what)).collect();
    let paper = chosen.iter().map(|&at| experiment.numbers[at].paper).collect();
    plot.add_trace(bar(whats.clone(), paper, "paper", 7));
    let ours = chosen.iter().map(|&at| judged.numbers[at].ours).collect();
    plot.add_trace(bar(whats.clone(), ours, "ours", 0));
    let half: Option<Vec<f64>> = chosen.iter().map(|&at| judged.numbers[at].half).collect();
    if let Some(half) = half {
        plot.add_trace(bar(whats, half, "ours at half scale", 4));
    }
    let unit = &experiment.numbers[chosen[0]].unit;
    let title = match unit.is_empty() {
        true => "Paper and ours".to_owned(),
        false => format!("Paper and ours, {unit}"),
    };
    Chart::new(id, title, HEIGHT, plot)
}

fn grouped() -> Layout {
    let margin = Margin::new().top(60).left(50).right(10).bottom(60);
    Layout::new()
        .bar_mode(BarMode::Group)
        .x_axis(axis("").auto_margin(true))
        .y_axis(axis(""))
        .legend(legend())
        .margin(margin)
}

fn bar(labels: Vec<String>, values: Vec<f64>, name: &str, index: usize) -> Box<Bar<String, f64>> {
    Bar::new(labels, values)
        .name(name)
        .marker(Marker::new().color(colour(index)))
        .hover_template("%{x}: %{y:.3f} (%{fullData.name})<extra></extra>")
}

/// Columns of a label below a bar.
const LABEL: usize = 24;

/// A label in several lines.
fn broken(text: &str) -> String {
    plain(paragraph(text, Some(LABEL)).trim_end()).replace('\n', "<br>")
}
