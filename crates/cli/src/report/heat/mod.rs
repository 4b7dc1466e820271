//! Heat maps of programs: accesses by address and time, in the colours of nodes, with pages moved.

mod image;
mod png;

use memtide_sim::{Comparison, HeatMapReport, HeatRow, Report};
use plotly::common::{ColorScale, ColorScaleElement, Marker, Mode};
use plotly::layout::Margin;
use plotly::{HeatMap, Layout, Scatter};

pub use self::png::HeatMapFile;
use super::chart::{Chart, axis, colour, plot};
use super::page::{grid, key};
use crate::tables::explanation::{Explained, explained};

/// Programs that are drawn: the first ones.
const PROGRAMS: usize = 4;

/// Runs that are drawn.
const RUNS: usize = 6;

/// Labels of addresses on an axis, about.
const LABELS: usize = 6;

/// The node with the most accesses of a cell, and the accesses of all nodes, if there are any.
fn hottest(row: &HeatRow, column: usize) -> Option<(usize, u64)> {
    most(&row.accesses, column)
}

/// The node that most of a cell's moved pages went to, and the pages moved, if there are any.
fn moved(row: &HeatRow, column: usize) -> Option<(usize, u64)> {
    most(&row.moved_pages, column)
}

/// The node with the most in a column, and the sum of all.
fn most(by_node: &[Vec<u32>], column: usize) -> Option<(usize, u64)> {
    let all: u64 = by_node.iter().map(|of_node| u64::from(of_node[column])).sum();
    let node = (0..by_node.len()).rev().max_by_key(|&node| by_node[node][column])?;
    (all > 0).then_some((node, all))
}

/// What a number of accesses is drawn as: 0 for none, and proportional to its logarithm.
fn heat(accesses: u64) -> f64 {
    ((accesses + 1) as f64).log10()
}

/// The heat of the hottest cell.
fn hottest_heat<'a>(maps: impl Iterator<Item = &'a HeatMapReport>) -> f64 {
    let cells = maps.flat_map(|map| {
        map.rows.iter().flat_map(|row| (0..map.columns).filter_map(|column| hottest(row, column)))
    });
    cells.map(|(_, accesses)| heat(accesses)).fold(heat(1), f64::max)
}

/// The runs that are drawn: the best, the worst, the baseline, then others that move pages.
fn drawn(comparison: &Comparison) -> Vec<usize> {
    let mut runs: Vec<usize> = explained(comparison).iter().map(Explained::run).collect();
    let moves = |run: &usize| comparison.reports[*run].pages.migrated > 0;
    let others: Vec<usize> = (0..comparison.reports.len()).filter(moves).collect();
    runs.extend(others.into_iter().filter(|run| !runs.contains(run)).collect::<Vec<_>>());
    runs.truncate(RUNS);
    runs
}

/// The section of a comparison; none if nothing misses private caches.
pub fn section(comparison: &Comparison) -> Option<String> {
    let runs: Vec<(usize, &Report)> =
        drawn(comparison).into_iter().map(|run| (run, &comparison.reports[run])).collect();
    let maps = || runs.iter().flat_map(|(_, report)| report.heat_maps.iter().take(PROGRAMS));
    if maps().all(|map| map.rows.is_empty()) {
        return None;
    }
    let most = hottest_heat(maps());
    let several = comparison.reports[0].programs.len() > 1;
    let charts = runs.iter().flat_map(|(run, report)| {
        report.heat_maps.iter().take(PROGRAMS).enumerate().map(move |(program, map)| {
            let name = &comparison.names[*run];
            let title = match several {
                true => format!("{name}: {} {}", program + 1, report.programs[program]),
                false => name.clone(),
            };
            chart(format!("chart-heat-{run}-{program}"), title, report, map, most)
        })
    });
    let charts: Vec<Chart> = charts.collect();
    let names = comparison.reports[0].nodes.iter().enumerate();
    let key = key(names.map(|(index, node)| (node.name.as_str(), colour(index))));
    let of = match comparison.reports[0].programs.len() {
        0..=PROGRAMS => "",
        _ => " of the first four programs",
    };
    let title = format!(
        "Accesses{of} by page and time that miss private caches, by node with the most; dots: pages moved"
    );
    Some(grid(&title, &key, &charts))
}

fn chart(id: String, title: String, report: &Report, map: &HeatMapReport, most: f64) -> Chart {
    let rows = map.rows.len();
    let step = rows.div_ceil(LABELS).max(1);
    let labelled = || (0..rows).step_by(step);
    let y = axis("address, hexadecimal")
        .range(vec![-0.5, rows as f64 - 0.5])
        .tick_values(labelled().map(|row| row as f64).collect())
        .tick_text(labelled().map(|row| format!("{:x}", map.rows[row].address)).collect());
    let x = axis("time, ms").range(vec![0.0, report.time_ms]);
    let margin = Margin::new().top(10).left(50).right(10).bottom(45);
    let mut plot = plot(Layout::new().x_axis(x).y_axis(y).show_legend(false).margin(margin));
    let time = |column: usize| (column as f64 + 0.5) * map.column_ms;
    for (node, of) in report.nodes.iter().enumerate() {
        let cell = |row: &HeatRow, column: usize| match hottest(row, column) {
            Some((hottest, accesses)) if hottest == node => Some((heat(accesses) * 100.0).round() / 100.0),
            _ => None,
        };
        let z: Vec<Vec<Option<f64>>> =
            map.rows.iter().map(|row| (0..map.columns).map(|column| cell(row, column)).collect()).collect();
        if z.iter().flatten().all(Option::is_none) {
            continue;
        }
        let scale = vec![
            ColorScaleElement(0.0, "#ffffff".to_owned()),
            ColorScaleElement(1.0, colour(node).to_owned()),
        ];
        let times: Vec<f64> = (0..map.columns).map(time).collect();
        let trace = HeatMap::new(times, (0..rows).collect::<Vec<usize>>(), z)
            .name(&of.name)
            .color_scale(ColorScale::Vector(scale))
            .zmin(0.0)
            .zmax(most)
            .show_scale(false)
            .hover_on_gaps(false)
            .hover_template("%{x:.3f} ms: 10^%{z:.1f} accesses (%{fullData.name})<extra></extra>");
        plot.add_trace(trace);
    }
    for (node, of) in report.nodes.iter().enumerate() {
        let cells = (0..rows).flat_map(|row| (0..map.columns).map(move |column| (row, column)));
        let of_node =
            cells.filter(|&(row, column)| moved(&map.rows[row], column).is_some_and(|m| m.0 == node));
        let (times, rows): (Vec<f64>, Vec<usize>) = of_node.map(|(row, column)| (time(column), row)).unzip();
        if !times.is_empty() {
            let marker = Marker::new().size(3).opacity(0.5).color("#000000");
            let trace = Scatter::new(times, rows).mode(Mode::Markers).name(format!("to {}", of.name));
            plot.add_trace(trace.marker(marker).hover_template("%{x:.3f} ms: pages move %{fullData.name}"));
        }
    }
    Chart::new(id, title, 320, plot)
}

/// A small map for tests: a row on node 0, then on node 1, to which a page moves.
#[cfg(test)]
fn small() -> HeatMapReport {
    let row = HeatRow {
        address: 0x4000,
        accesses: vec![vec![3, 0, 0], vec![1, 9, 0]],
        moved_pages: vec![vec![0; 3], vec![0, 1, 0]],
    };
    HeatMapReport { column_ms: 0.5, columns: 3, pages_per_row: 1, rows: vec![row] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_has_the_colour_of_the_node_with_most_accesses() {
        let row = &small().rows[0];
        assert_eq!([0, 1, 2].map(|column| hottest(row, column)), [Some((0, 4)), Some((1, 9)), None]);
        assert_eq!([0, 1, 2].map(|column| moved(row, column)), [None, Some((1, 1)), None]);
        assert_eq!(hottest_heat([&small()].into_iter()), 1.0);
    }
}
