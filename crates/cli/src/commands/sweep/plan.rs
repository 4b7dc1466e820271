//! The runs of a sweep.

use std::cmp::Ordering;
use std::collections::HashSet;

use memtide_core::Machine;
use memtide_core::machine::{Figure, Setting};
use memtide_policies::Policy;

use crate::failure::Failure;
use crate::output::Cell;

/// Maximum number of runs: a day of runs of a second.
const RUNS_MAX: usize = 100_000;

/// Values of a range, unless given.
const RANGE_POINTS: u16 = 10;

/// Every combination of values, under every policy, with every seed.
pub struct Plan {
    pub axes: Vec<Axis>,
    pub points: Vec<Point>,
    pub policies: Vec<Policy>,
    pub seeds: Vec<u64>,
}

/// A figure with several values.
pub struct Axis {
    pub figure: Figure,
}

/// A combination of values.
pub struct Point {
    /// A value of each axis.
    pub set: Vec<Setting>,
    /// The values in their figures' units.
    numbers: Vec<Option<f64>>,
}

impl Point {
    /// The same for points that are the same in other units.
    fn values(&self) -> Vec<String> {
        let values = self.numbers.iter().zip(&self.set);
        values.map(|(number, set)| number.map_or(set.value().to_owned(), |n| n.to_string())).collect()
    }
}

/// One run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Number of the point.
    pub point: usize,
    pub policy: &'a Policy,
    pub seed: u64,
}

/// The settings of a sweep: those with one value, and for each other the settings of its values.
pub struct Settings {
    pub fixed: Vec<Setting>,
    pub swept: Vec<Vec<Setting>>,
}

impl Settings {
    /// Of settings, of which some have several values; a range has `range_points`, 10 if not given.
    pub fn new(set: &[Setting], range_points: Option<u16>) -> Result<Settings, Failure> {
        if let Some(points) = range_points
            && !set.iter().any(Setting::is_range)
        {
            return Err(Failure::Usage(format!("--points {points}: no figure has a range of values A..B")));
        }
        let points = usize::from(range_points.unwrap_or(RANGE_POINTS));
        let values = set.iter().map(|setting| setting.values(points));
        let values = values.collect::<Result<Vec<_>, _>>();
        let values = values.map_err(|error| Failure::Usage(format!("--set {error}")))?;
        let (swept, fixed): (Vec<_>, Vec<_>) = values.into_iter().partition(|values| values.len() > 1);
        if swept.is_empty() {
            let message =
                "--set: a sweep needs a list or a range of values, such as node.dram.capacity=10%..100%";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Settings { fixed: fixed.concat(), swept })
    }

    /// Every combination of a value of each figure; those of the last figure change fastest.
    fn combinations(&self) -> Vec<Vec<Setting>> {
        self.swept.iter().fold(vec![Vec::new()], |combinations, values| {
            let longer = |before: Vec<Setting>| {
                values.iter().map(move |value| [&before[..], std::slice::from_ref(value)].concat())
            };
            combinations.into_iter().flat_map(longer).collect()
        })
    }
}

impl Plan {
    /// Of settings; `machine` gives the machine with the settings of a point.
    pub fn new(
        settings: &Settings,
        policies: Vec<Policy>,
        seeds: Vec<u64>,
        machine: impl Fn(&[Setting]) -> Result<Machine, Failure>,
    ) -> Result<Plan, Failure> {
        let each = policies.len().saturating_mul(seeds.len());
        let runs = settings.swept.iter().map(Vec::len).fold(each, usize::saturating_mul);
        if runs > RUNS_MAX {
            return Err(Failure::Usage(format!("a sweep of {runs} runs; at most {RUNS_MAX} are allowed")));
        }
        let figures = |machine: &Machine, set: &[Setting]| -> Result<Vec<Figure>, Failure> {
            let figure = |setting: &Setting| machine.figure(setting.path());
            let figures = set.iter().map(figure).collect::<Result<_, _>>();
            figures.map_err(|error| Failure::Usage(format!("--set {error}")))
        };
        let point = |set: Vec<Setting>| -> Result<Point, Failure> {
            let figures = figures(&machine(&set)?, &set)?;
            Ok(Point { set, numbers: figures.into_iter().map(|figure| figure.number).collect() })
        };
        let mut points: Vec<Point> =
            settings.combinations().into_iter().map(point).collect::<Result<_, _>>()?;
        let mut seen = HashSet::new();
        points.retain(|point| seen.insert(point.values()));
        if points.len() < 2 {
            let figures: Vec<&str> = settings.swept.iter().map(|values| values[0].path()).collect();
            let figures = figures.join(", ");
            return Err(Failure::Usage(format!(
                "--set: all values of {figures} are the same; nothing to sweep"
            )));
        }
        let first = &points[0].set;
        let axes = figures(&machine(first)?, first)?.into_iter().map(|figure| Axis { figure }).collect();
        Ok(Plan { axes, points, policies, seeds })
    }

    /// Whether a figure, by its whole path, has several values.
    pub fn sweeps(&self, path: &str) -> bool {
        self.axes.iter().any(|axis| axis.figure.path == path)
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.points.len() * self.policies.len() * self.seeds.len()
    }

    /// A run by its number: seeds change fastest, then policies.
    pub fn run(&self, number: usize) -> Run<'_> {
        let (rest, seed) = (number / self.seeds.len(), number % self.seeds.len());
        let (point, policy) = (rest / self.policies.len(), rest % self.policies.len());
        Run { point, policy: &self.policies[policy], seed: self.seeds[seed] }
    }

    /// What a run is, in words.
    pub fn describe(&self, number: usize) -> String {
        let run = self.run(number);
        let set: Vec<String> = self.points[run.point].set.iter().map(Setting::to_string).collect();
        format!("{} under {}, seed {}", set.join(" "), run.policy.name(), run.seed)
    }

    /// The value of an axis at a point, in the figure's unit.
    pub fn number(&self, point: usize, axis: usize) -> Cell {
        self.points[point].numbers[axis].map_or(Cell::Absent, |number| {
            let is_whole = number >= 0.0 && number.fract() == 0.0;
            if is_whole { Cell::Whole(number as u64) } else { Cell::Real(number, 3) }
        })
    }

    /// Order of two points by the first axis, whatever order they were given in; texts are all alike.
    pub fn by_value(&self, one: usize, other: usize) -> Ordering {
        let [one, other] = [one, other].map(|point| self.points[point].numbers[0].unwrap_or_default());
        one.total_cmp(&other)
    }

    /// Key and title of the columns that say which point and policy a row is of.
    pub fn key_columns(&self) -> Vec<(String, String)> {
        let policy = ("policy".to_owned(), "policy".to_owned());
        self.axes.iter().flat_map(Axis::columns).chain([policy]).collect()
    }

    /// The values of [`Plan::key_columns`] of a run.
    pub fn keys(&self, run: Run) -> Vec<Cell> {
        let set = &self.points[run.point].set;
        let values = self.axes.iter().zip(set).enumerate().flat_map(|(index, (axis, setting))| {
            let given = axis.has_given().then(|| Cell::text(setting.value()));
            let number = axis.has_number().then(|| self.number(run.point, index));
            given.into_iter().chain(number)
        });
        values.chain([Cell::text(run.policy.name())]).collect()
    }
}

impl Axis {
    /// Whether values are numbers.
    pub fn has_number(&self) -> bool {
        self.figure.number.is_some()
    }

    /// Whether there is a column of the values as given.
    pub fn has_given(&self) -> bool {
        self.figure.unit.is_some() || !self.has_number()
    }

    /// The figure and its unit.
    pub fn title(&self) -> String {
        let stem = &self.figure.stem;
        self.figure.unit.map_or_else(|| stem.clone(), |unit| format!("{stem}, {unit}"))
    }

    fn columns(&self) -> impl Iterator<Item = (String, String)> {
        let given = self.has_given().then(|| (self.figure.stem.clone(), self.figure.stem.clone()));
        let number = self.has_number().then(|| {
            let title = self.figure.unit.map_or_else(|| self.figure.stem.clone(), str::to_owned);
            (self.figure.path.clone(), title)
        });
        given.into_iter().chain(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_change_seed_fastest_then_policy_then_last_figure() {
        let set = ["core.reorder_buffer=8,16", "core.store_queue=7", "node.cxl.capacity=50%..100%"];
        let settings = Settings::new(&set.map(|text| text.parse().unwrap()), Some(2)).unwrap();
        assert_eq!(settings.fixed.len(), 1);
        let policies = ["local", "interleave"].map(|text| memtide_policies::parse(text).unwrap());
        let machine = memtide_linux::machines::load("ddr5-cxl").unwrap();
        let with = |set: &[Setting]| Ok(machine.with(set).unwrap());
        let plan = Plan::new(&settings, policies.into(), vec![1, 2], with).unwrap();
        let all: Vec<_> = (0..plan.runs()).map(|number| plan.describe(number)).collect();
        assert_eq!(all.len(), 16);
        assert_eq!(all[1], "core.reorder_buffer=8 node.cxl.capacity=50% under local, seed 2");
        assert_eq!(all[2], "core.reorder_buffer=8 node.cxl.capacity=50% under interleave, seed 1");
        assert_eq!(all[4], "core.reorder_buffer=8 node.cxl.capacity=100% under local, seed 1");
        assert_eq!(all[15], "core.reorder_buffer=16 node.cxl.capacity=100% under interleave, seed 2");
        let keys: Vec<String> = plan.keys(plan.run(0)).iter().map(Cell::exact).collect();
        let half = machine.figure("node.cxl.capacity").unwrap().number.unwrap() / 2.0;
        assert_eq!(keys, ["8", "50%", half.to_string().as_str(), "local"]);
    }
}
