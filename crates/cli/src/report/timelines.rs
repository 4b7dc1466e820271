//! Traffic, pages and migration over time, of each policy.

use memtide_core::LINE_BYTES;
use memtide_sim::{Comparison, Report};

use super::chart::{COLOURS, Chart, colour};
use super::over_time::{OverTime, Shape, Small, group, groups, rounded};
use super::page::{grid, key, narrow_grid};

/// Maximum points of a line: about one per pixel.
const POINTS: usize = 200;

/// Who requests lines.
struct Requester {
    name: &'static str,
    colour: &'static str,
    /// Lines by node, then by bucket.
    lines: fn(&Report) -> &Vec<Vec<u64>>,
}

const REQUESTERS: [Requester; 3] = [
    Requester { name: "demand", colour: COLOURS[0], lines: |report| &report.timeline.demand_lines },
    Requester { name: "prefetch", colour: COLOURS[1], lines: |report| &report.timeline.prefetch_lines },
    Requester { name: "migration", colour: COLOURS[3], lines: |report| &report.timeline.copy_lines },
];

impl Requester {
    fn requests(&self, report: &Report) -> bool {
        (self.lines)(report).iter().flatten().any(|&lines| lines > 0)
    }
}

/// The sections of a comparison.
pub fn sections(comparison: &Comparison) -> Vec<String> {
    let mut sections = vec![traffic(comparison)];
    if comparison.reports.iter().any(migrates) {
        let pages = ("pages-over-time", "Pages by node over time", pages as fn(&Report) -> Vec<OverTime>);
        let moved =
            ("migrated", "Pages migrated over time, summed, by destination", migrated as fn(&Report) -> _);
        sections.extend([pages, moved].map(|(id, title, of)| over_nodes(comparison, id, title, of)));
    }
    sections
}

fn migrates(report: &Report) -> bool {
    report.pages.migrated > 0
}

/// A chart for each policy and node: what was requested from the node, by whom.
fn traffic(comparison: &Comparison) -> String {
    let used = |of: &&Requester| comparison.reports.iter().any(|report| of.requests(report));
    let key = key(REQUESTERS.iter().filter(used).map(|of| (of.name, of.colour)));
    let nodes = comparison.reports[0].nodes.len();
    let of_nodes = (0..nodes).map(|node| traffic_of(comparison, node)).collect();
    let charts = by_policy(groups(of_nodes, "GB/s", Shape::Stacked));
    let title = "Bandwidth of every node over time, by requester";
    // Rows of three or four charts keep a policy's nodes together.
    if nodes == 3 { grid(title, &key, &charts) } else { narrow_grid(title, &key, &charts) }
}

/// A node's charts, one for each policy. Requesters without lines are left out, except demand.
fn traffic_of(comparison: &Comparison, node: usize) -> Vec<Small> {
    let small = |(index, report): (usize, &Report)| {
        let shown = REQUESTERS.iter().enumerate().map(|(number, of)| (number, of, &(of.lines)(report)[node]));
        let shown = shown.filter(|(number, _, lines)| *number == 0 || lines.iter().any(|&lines| lines > 0));
        Small {
            id: format!("chart-bandwidth-{index}-{node}"),
            title: format!("{}: {}", comparison.names[index], report.nodes[node].name),
            end_ms: report.time_ms,
            lines: shown.map(|(_, of, lines)| rate(report, of, lines)).collect(),
        }
    };
    comparison.reports.iter().enumerate().map(small).collect()
}

/// Charts of each node, one for each policy, in the order of policies.
fn by_policy(nodes: Vec<Vec<Chart>>) -> Vec<Chart> {
    let mut nodes: Vec<_> = nodes.into_iter().map(Vec::into_iter).collect();
    let mut charts = Vec::new();
    while let Some(of_policy) = nodes.iter_mut().map(Iterator::next).collect::<Option<Vec<Chart>>>() {
        charts.extend(of_policy);
    }
    charts
}

/// A chart for each policy that migrates pages: a figure of all nodes.
fn over_nodes(comparison: &Comparison, id: &str, title: &str, of: fn(&Report) -> Vec<OverTime>) -> String {
    let small = |(index, report): (usize, &Report)| Small {
        id: format!("chart-{id}-{index}"),
        title: comparison.names[index].clone(),
        end_ms: report.time_ms,
        lines: of(report),
    };
    let migrating = comparison.reports.iter().enumerate().filter(|(_, report)| migrates(report));
    let nodes = comparison.reports[0].nodes.iter().enumerate();
    let key = key(nodes.map(|(number, node)| (node.name.as_str(), colour(number))));
    grid(title, &key, &group(migrating.map(small).collect(), "pages", Shape::Lines))
}

/// A requester's bandwidth, in GB/s; buckets are merged if there are too many to draw.
fn rate(report: &Report, of: &Requester, lines: &[u64]) -> OverTime {
    let size = lines.len().div_ceil(POINTS).max(1);
    let bucket_ms = report.timeline.bucket_ms;
    let spans = lines.chunks(size).enumerate().map(|(index, part)| {
        let begin = (index * size) as f64 * bucket_ms;
        let end = (begin + part.len() as f64 * bucket_ms).min(report.time_ms);
        let bytes = (part.iter().sum::<u64>() * LINE_BYTES) as f64;
        (rounded((begin + end) / 2.0), bytes / (end - begin) / 1e6)
    });
    let (times_ms, values) = spans.unzip();
    OverTime { name: of.name.to_owned(), colour: of.colour, times_ms, values }
}

/// Pages of each node at the end of each bucket.
fn pages(report: &Report) -> Vec<OverTime> {
    let of_node = |(node, pages): (usize, &Vec<u64>)| at_ends(report, node, pages.iter().copied());
    report.timeline.pages.iter().enumerate().map(of_node).collect()
}

/// Pages migrated to each node since the start.
fn migrated(report: &Report) -> Vec<OverTime> {
    let of_node = |(node, pages): (usize, &Vec<u64>)| {
        let sums = pages.iter().scan(0, |sum, pages| {
            *sum += pages;
            Some(*sum)
        });
        at_ends(report, node, sums)
    };
    report.timeline.migrated_pages.iter().enumerate().map(of_node).collect()
}

/// A node's figures at the ends of buckets, of some buckets if there are too many to draw.
fn at_ends(report: &Report, node: usize, figures: impl Iterator<Item = u64>) -> OverTime {
    let figures: Vec<u64> = figures.collect();
    let size = figures.len().div_ceil(POINTS).max(1);
    let end = |index: usize| ((index + 1) as f64 * report.timeline.bucket_ms).min(report.time_ms);
    let last = |index: usize| ((index + 1) * size).min(figures.len()) - 1;
    let shown = (0..figures.len().div_ceil(size)).map(last);
    let (times_ms, values) = shown.map(|index| (rounded(end(index)), figures[index] as f64)).unzip();
    OverTime { name: report.nodes[node].name.clone(), colour: colour(node), times_ms, values }
}
