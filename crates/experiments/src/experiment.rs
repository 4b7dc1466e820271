//! The format of experiment files.

use memtide_core::FileError;
use serde::Deserialize;

use crate::formula;
use crate::plan::Plan;
use crate::results::Results;

/// A figure or table of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// `PAPER/FIGURE`.
    pub id: String,
    /// Its file, for messages.
    pub file: String,
    /// What it shows, in a line.
    pub title: String,
    /// Where in the paper.
    pub source: String,
    /// What to run.
    pub plan: Plan,
    /// Numbers that the paper reports.
    pub numbers: Vec<Number>,
    /// Statements on the results' shape.
    pub shapes: Vec<Shape>,
    /// What to draw.
    pub figures: Vec<Figure>,
    /// What was found out about results that do not agree, and what to conclude.
    pub finding: Option<String>,
}

/// A number that the paper reports.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// What it is.
    pub what: String,
    /// Its unit; `%` for percentages.
    #[serde(default)]
    pub unit: String,
    /// The paper's.
    pub paper: f64,
    /// Whether the model was set by it.
    pub kind: Kind,
    /// Maximum deviation: percentage points if the unit is `%`, else per cent of the paper's. Default: 5 and
    /// 15.
    pub tolerance: Option<f64>,
    /// Formula of ours.
    pub ours: String,
    /// Why it cannot come out, if that is known.
    pub impossible: Option<String>,
}

/// Whether a number was used to set a parameter of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was: agreement says nothing about the model.
    Calibrated,
    /// It was not.
    Predicted,
}

/// A statement on the results' shape.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// The statement.
    pub statement: String,
    /// Formula: true if it holds.
    pub holds: String,
}

/// Bars to draw: programs along the axis, or variants if there is one program; a colour for each policy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Title with unit.
    pub title: String,
    /// Formula of a bar, of `program`, `policy` and `variant`.
    pub of: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    plan: Plan,
    #[serde(default)]
    number: Vec<Number>,
    #[serde(default)]
    shape: Vec<Shape>,
    #[serde(default)]
    figure: Vec<Figure>,
    finding: Option<String>,
}

impl Kind {
    /// As in the file.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Calibrated => "calibrated",
            Kind::Predicted => "predicted",
        }
    }
}

impl Number {
    /// Maximum deviation, in the unit of [`Number::deviation`].
    pub fn tolerance(&self) -> f64 {
        self.tolerance.unwrap_or(if self.is_percentage() { 5.0 } else { 15.0 })
    }

    /// Deviation of a result: percentage points if the unit is `%`, else per cent of the paper's.
    pub fn deviation(&self, ours: f64) -> f64 {
        match self.is_percentage() {
            true => ours - self.paper,
            false => 100.0 * (ours - self.paper) / self.paper.abs(),
        }
    }

    fn is_percentage(&self) -> bool {
        self.unit == "%"
    }
}

impl Experiment {
    /// Parses an experiment file.
    ///
    /// # Errors
    /// If it is not TOML, a field is unknown, missing or wrong, or a formula is not one.
    pub fn parse(id: &str, file: &str, text: &str) -> Result<Experiment, FileError> {
        let parsed: File = toml::from_str(text).map_err(|error| FileError::of_toml(file, text, &error))?;
        let refused = |field: String, message: String| FileError::at(file, text, field, message);
        let File { title, source, plan, number, shape, figure, finding } = parsed;
        plan.check().map_err(|(field, message)| refused(format!("plan.{field}"), message))?;
        let formulas =
            number.iter().enumerate().map(|(at, number)| (format!("number[{at}].ours"), &number.ours));
        let formulas = formulas
            .chain(shape.iter().enumerate().map(|(at, shape)| (format!("shape[{at}].holds"), &shape.holds)))
            .chain(figure.iter().enumerate().map(|(at, figure)| (format!("figure[{at}].of"), &figure.of)));
        for (field, text) in formulas {
            formula::check(text).map_err(|message| refused(field, message))?;
        }
        for (at, number) in number.iter().enumerate() {
            let refused = |field: &str, message: &str| {
                Err(refused(format!("number[{at}].{field}"), message.to_owned()))
            };
            if !number.paper.is_finite() || (number.paper == 0.0 && !number.is_percentage()) {
                return refused("paper", "must be finite, and not 0 unless its unit is %");
            }
            if !(number.tolerance() > 0.0 && number.tolerance().is_finite()) {
                return refused("tolerance", "must be above 0");
            }
        }
        if number.is_empty() && shape.is_empty() {
            return Err(refused(String::new(), "needs a number or a shape to judge".to_owned()));
        }
        let runs = formula::Formulas::new(Results::placeholder(&plan));
        let numbers = number.iter().enumerate().map(|(at, of)| (format!("number[{at}].ours"), &of.ours));
        let shapes = shape.iter().enumerate().map(|(at, of)| (format!("shape[{at}].holds"), &of.holds));
        for (field, formula) in numbers.chain(shapes) {
            runs.check_names(formula).map_err(|message| refused(field, message))?;
        }
        Ok(Experiment {
            id: id.to_owned(),
            file: file.to_owned(),
            title,
            source,
            plan,
            numbers: number,
            shapes: shape,
            figures: figure,
            finding,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = r#"
title = "time"
source = "nowhere"
[plan]
machine = "bmpm-2"
programs = [{ name = "u", run = ["uniform"] }]
policies = [{ name = "a", policy = "local" }, { name = "b", policy = "interleave" }]
[[number]]
what = "cut"
unit = "%"
paper = 20.0
kind = "predicted"
ours = 'cut(time("u", "a"), time("u", "b"))'
[[number]]
what = "ratio"
paper = 2.0
kind = "calibrated"
ours = 'time("u", "a") / time("u", "b")'
[[shape]]
statement = "b is faster"
holds = 'time("u", "b") < time("u", "a")'
"#;

    #[test]
    fn deviation_is_in_points_for_percentages_and_relative_for_others() {
        let experiment = Experiment::parse("p/f", "f.toml", TEXT).unwrap();
        let [cut, ratio] = &experiment.numbers[..] else { panic!("two numbers") };
        assert_eq!((cut.deviation(26.0), cut.tolerance()), (6.0, 5.0));
        assert_eq!((ratio.deviation(2.5), ratio.tolerance()), (25.0, 15.0));
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        for (from, to, said) in [
            ("ours = 'cut(", "ours = 'cut((", "f.toml:13: number[0].ours: not a formula"),
            ("kind = \"predicted\"", "kind = \"hoped\"", "f.toml:12: number[0].kind"),
            ("paper = 2.0", "paper = 0.0", "f.toml:16: number[1].paper"),
            ("uniform", "unifrom", "plan.programs: there is no workload"),
            ("name = \"b\"", "name = \"a\"", "plan.policies: name 'a' is empty or used twice"),
        ] {
            let error = Experiment::parse("p/f", "f.toml", &TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
