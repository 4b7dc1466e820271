//! Charts of a sweep's figures.

use memtide_core::machine::Setting;
use memtide_lab::Interval;

use super::journal::Known;
use super::knees::{KNEES, note};
use super::plan::Plan;
use super::results::{Group, groups};
use crate::output::{Cell, Document};
use crate::report::{self, Finding, LineChart, LineOver, Page};
use crate::runs::Runs;

/// A chart per figure over the values of the first swept figure, with a line per policy and value of the
/// others.
pub fn page<'a>(base: &'a Runs, plan: &Plan, known: &Known, document: &'a Document) -> Page<'a> {
    let groups = groups(plan, known);
    let lines = lines(plan, &groups);
    let columns = known.columns.clone();
    let (titles, of_run) = columns.map_or((Vec::new(), 0), |columns| (columns.titles, columns.of_run));
    let chart = |column: usize| -> Option<LineChart> {
        let lines: Vec<LineOver> = lines.iter().map(|(name, line)| over(plan, name, line, column)).collect();
        let shows = lines.iter().flat_map(|line| &line.y).any(|over| over.mean != 0.0);
        shows.then(|| LineChart { title: titles[column].1.clone(), lines })
    };
    let time = known.time();
    let of = |columns: std::ops::Range<usize>| {
        columns.filter(|column| Some(*column) != time).filter_map(chart).collect()
    };
    let parts = vec![
        report::Group { title: "The run", charts: of(0..of_run) },
        report::Group { title: "Nodes and links", charts: of(of_run..titles.len()) },
    ];
    let title = format!("{} on {}", base.program_names(), base.machine.name);
    let over = plan.axes[0].title();
    let result = result(plan, known, &groups, document);
    report::of_sweep(title, &base.machine.summary, &over, result, time.and_then(chart), parts, document)
}

/// The shortest time, and between which values each policy's is about its shortest, if the document has that.
fn result(plan: &Plan, known: &Known, groups: &[Group], document: &Document) -> Finding {
    let mut sentences: Vec<String> = shortest(plan, known, groups).into_iter().collect();
    let table = document.tables.iter().find(|table| table.name == KNEES).cloned();
    sentences.extend(table.is_some().then(|| note(plan)));
    Finding { sentences, table }
}

/// The group with the shortest time, in a sentence.
fn shortest(plan: &Plan, known: &Known, groups: &[Group]) -> Option<String> {
    let time = known.time()?;
    let times = groups.iter().filter_map(|group| Some((group.run, group.interval(time)?.mean)));
    let (run, ms) = times.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let set: Vec<String> = plan.points[run.point].set.iter().map(Setting::to_string).collect();
    let ms = Cell::Real(ms, 3).display();
    Some(format!("Shortest time: {ms} ms, with {} under {}.", set.join(" "), run.policy.name()))
}

/// The groups of each line, with the line's name: its policy and the values of further figures.
fn lines<'a, 'g>(plan: &Plan, groups: &'a [Group<'g>]) -> Vec<(String, Vec<&'a Group<'g>>)> {
    let mut lines: Vec<(String, Vec<&Group>)> = Vec::new();
    for group in groups {
        let others = plan.points[group.run.point].set[1..].iter().map(Setting::to_string);
        let words: Vec<String> = [group.run.policy.name().to_owned()].into_iter().chain(others).collect();
        let name = words.join(" ");
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, line)) => line.push(group),
            None => lines.push((name, vec![group])),
        }
    }
    lines
}

/// A line of a figure.
fn over(plan: &Plan, name: &str, groups: &[&Group], column: usize) -> LineOver {
    let known = groups.iter().filter_map(|group| Some((group.run.point, group.interval(column)?)));
    let mut known: Vec<(usize, Interval)> = known.collect();
    known.sort_by(|(a, _), (b, _)| plan.by_value(*a, *b));
    let (points, y): (Vec<usize>, Vec<Interval>) = known.into_iter().unzip();
    let scale = if groups.iter().any(|group| group.is_share(column)) { 100.0 } else { 1.0 };
    let scaled =
        |Interval { mean, low, high }| Interval { mean: mean * scale, low: low * scale, high: high * scale };
    let y = y.into_iter().map(scaled).collect();
    let number = |point: &usize| plan.number(*point, 0).number();
    let x: Option<Vec<f64>> = points.iter().map(number).collect();
    let given = |point: &usize| plan.points[*point].set[0].value().to_owned();
    let labels = x.is_none().then(|| points.iter().map(given).collect());
    LineOver { name: name.to_owned(), x: x.unwrap_or_default(), labels, y }
}
