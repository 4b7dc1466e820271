//! Verdicts: results beside a paper's claims.

use std::fmt;

use crate::JudgeError;
use crate::experiment::{Experiment, Figure, Number, Shape};
use crate::formula::Formulas;
use crate::results::Results;

/// Maximum change of a result from full to half scale, in per cent (percentage points for percentages).
const STEADY: f64 = 5.0;

/// How a result compares with a claim, or an experiment's results with all its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Within the tolerance, or true; of an experiment: every claim.
    Holds,
    /// Of an experiment: every statement is true, but a number is outside its tolerance.
    HoldsInShape,
    /// Changes with the scale of the machine, so that it says nothing about the whole one.
    ScaleDependent,
    /// Outside the tolerance, or false.
    DoesNot,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInShape => "holds in shape",
            Verdict::ScaleDependent => "scale-dependent",
            Verdict::DoesNot => "does not",
        })
    }
}

/// An experiment's results beside its claims.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its numbers, in order.
    pub numbers: Vec<JudgedNumber>,
    /// Its statements, in order.
    pub shapes: Vec<JudgedShape>,
    /// Of each figure the values: by program, policy and variant, as in [`Judged::bars`].
    pub figures: Vec<Vec<f64>>,
    /// Names of programs, policies and variants.
    pub names: [Vec<String>; 3],
}

/// A number's result.
#[derive(Clone, Copy, Debug)]
pub struct JudgedNumber {
    /// At the experiment's scale.
    pub ours: f64,
    /// At half of it, if that was run.
    pub half: Option<f64>,
    /// Deviation of ours, as [`Number::deviation`].
    pub deviation: f64,
    /// Whether that is within the tolerance.
    pub is_within: bool,
    /// The verdict.
    pub verdict: Verdict,
}

/// A statement's result.
#[derive(Clone, Copy, Debug)]
pub struct JudgedShape {
    /// Whether it is true at the experiment's scale.
    pub holds: bool,
    /// And at half of it, if that was run.
    pub half: Option<bool>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Experiment {
    /// Compares results with the claims; `half` are those at half the scale, if they were run.
    ///
    /// # Errors
    /// If a formula fails, or a number of ours is not finite.
    pub fn judge(&self, results: Results, half: Option<Results>) -> Result<Judged, JudgeError> {
        let names = [&results.programs, &results.policies, &results.variants].map(Clone::clone);
        let formulas = Formulas::new(results);
        let half = half.map(Formulas::new);
        let failed = |of: &str| {
            let (experiment, of) = (self.id.clone(), of.to_owned());
            move |message| JudgeError { experiment, of, message }
        };
        let number = |number: &Number| {
            let of = |formulas: &Formulas| formulas.number(&number.ours, &[]).map_err(failed(&number.what));
            Ok(JudgedNumber::new(number, of(&formulas)?, half.as_ref().map(of).transpose()?))
        };
        let shape = |shape: &Shape| {
            let of = |formulas: &Formulas| formulas.truth(&shape.holds).map_err(failed(&shape.statement));
            Ok(JudgedShape::new(of(&formulas)?, half.as_ref().map(of).transpose()?))
        };
        let figure = |figure: &Figure| bars(&formulas, figure, &names).map_err(failed(&figure.title));
        Ok(Judged {
            numbers: self.numbers.iter().map(number).collect::<Result<_, _>>()?,
            shapes: self.shapes.iter().map(shape).collect::<Result<_, _>>()?,
            figures: self.figures.iter().map(figure).collect::<Result<_, _>>()?,
            names,
        })
    }
}

/// Values of a figure, in the order of [`places`].
fn bars(formulas: &Formulas, figure: &Figure, names: &[Vec<String>; 3]) -> Result<Vec<f64>, String> {
    let value = |[program, policy, variant]: [&str; 3]| {
        let names = [("program", program), ("policy", policy), ("variant", variant)];
        formulas.number(&figure.of, &names)
    };
    places(names).into_iter().map(value).collect()
}

/// Program, policy and variant of each bar: programs first, then variants, then policies.
fn places(names: &[Vec<String>; 3]) -> Vec<[&str; 3]> {
    let [programs, policies, variants] = names;
    let variants: Vec<&str> = match variants.is_empty() {
        true => vec![""],
        false => variants.iter().map(String::as_str).collect(),
    };
    let mut places = Vec::new();
    for program in programs {
        for variant in &variants {
            places.extend(policies.iter().map(|policy| [program.as_str(), policy.as_str(), *variant]));
        }
    }
    places
}

impl Judged {
    /// Program, policy and variant of each value in [`Judged::figures`].
    pub fn bars(&self) -> Vec<[&str; 3]> {
        places(&self.names)
    }

    /// What was found out about the experiment, unless everything holds.
    pub fn finding<'e>(&self, experiment: &'e Experiment) -> Option<&'e str> {
        experiment.finding.as_deref().filter(|_| self.verdict() != Verdict::Holds)
    }

    /// The verdict on the whole experiment.
    pub fn verdict(&self) -> Verdict {
        let all = || {
            let numbers = self.numbers.iter().map(|number| number.verdict);
            numbers.chain(self.shapes.iter().map(|shape| shape.verdict))
        };
        if all().all(|verdict| verdict == Verdict::Holds) {
            Verdict::Holds
        } else if all().any(|verdict| verdict == Verdict::ScaleDependent) {
            Verdict::ScaleDependent
        } else if !self.shapes.is_empty() && self.shapes.iter().all(|shape| shape.holds) {
            Verdict::HoldsInShape
        } else {
            Verdict::DoesNot
        }
    }
}

impl JudgedNumber {
    fn new(number: &Number, ours: f64, half: Option<f64>) -> JudgedNumber {
        let deviation = number.deviation(ours);
        let is_within = deviation.abs() <= number.tolerance();
        let moved = half.map_or(0.0, |half| match number.unit == "%" {
            true => (half - ours).abs(),
            false => 100.0 * (half - ours).abs() / ours.abs().max(half.abs()).max(f64::MIN_POSITIVE),
        });
        let verdict = match (moved > STEADY, is_within) {
            (true, _) => Verdict::ScaleDependent,
            (false, true) => Verdict::Holds,
            (false, false) => Verdict::DoesNot,
        };
        JudgedNumber { ours, half, deviation, is_within, verdict }
    }
}

impl JudgedShape {
    fn new(holds: bool, half: Option<bool>) -> JudgedShape {
        let verdict = match (holds, half) {
            (_, Some(half)) if half != holds => Verdict::ScaleDependent,
            (true, _) => Verdict::Holds,
            (false, _) => Verdict::DoesNot,
        };
        JudgedShape { holds, half, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::TEXT;
    use crate::results::testing::results;

    /// With these times of the policies `a` and `b`.
    fn judged(text: &str, full: [f64; 2], half: Option<[f64; 2]>) -> Result<Judged, JudgeError> {
        let experiment = Experiment::parse("p/f", "f.toml", text).unwrap();
        let results = |[a, b]: [f64; 2]| results(&experiment.plan, &[("u", "a", a), ("u", "b", b)]);
        experiment.judge(results(full), half.map(results))
    }

    fn verdicts(full: [f64; 2], half: Option<[f64; 2]>) -> (Vec<Verdict>, Vec<Verdict>, Verdict) {
        let judged = judged(TEXT, full, half).unwrap();
        let numbers = judged.numbers.iter().map(|number| number.verdict).collect();
        (numbers, judged.shapes.iter().map(|shape| shape.verdict).collect(), judged.verdict())
    }

    #[test]
    fn verdicts_follow_from_tolerance_and_statements() {
        use Verdict::{DoesNot, Holds, HoldsInShape};
        // A cut of 20 % where 20 are claimed, a ratio of 1.25 where 2 are.
        assert_eq!(verdicts([10.0, 8.0], None), (vec![Holds, DoesNot], vec![Holds], HoldsInShape));
        // Cuts at the edge of 5 points, and beyond.
        assert_eq!(verdicts([100.0, 75.01], None).0[0], Holds);
        assert_eq!(verdicts([100.0, 74.99], None).0[0], DoesNot);
        assert_eq!(verdicts([8.0, 10.0], None), (vec![DoesNot, DoesNot], vec![DoesNot], DoesNot));
    }

    #[test]
    fn result_that_changes_with_the_scale_is_scale_dependent() {
        use Verdict::{DoesNot, Holds, ScaleDependent};
        // From 20 to 26 %, from 1.25 to 1.35 (7.4 %).
        let (numbers, shapes, all) = verdicts([10.0, 8.0], Some([10.0, 7.4]));
        assert_eq!((numbers, shapes, all), (vec![ScaleDependent; 2], vec![Holds], ScaleDependent));
        let (_, shapes, _) = verdicts([10.0, 9.99], Some([9.99, 10.0]));
        assert_eq!(shapes, [ScaleDependent]);
        let (numbers, ..) = verdicts([10.0, 8.0], Some([10.0, 7.9]));
        assert_eq!(numbers, [Holds, DoesNot]);
    }

    #[test]
    fn failing_formula_says_which_and_why() {
        for (from, to, said) in [
            ("time(\"u\", \"b\"))'", "time(\"u\", \"c\"))'", "policies a, b"),
            ("cut(", "cat(", "cat"),
            ("'time(\"u\", \"a\") / time(\"u\", \"b\")'", "'1.0 / 0.0'", "is inf"),
            ("'time(\"u\", \"a\") / time(\"u\", \"b\")'", "'\"u\"'", "not a number"),
        ] {
            let error = judged(&TEXT.replace(from, to), [2.0, 1.0], None).unwrap_err().to_string();
            assert!(error.starts_with("p/f: ") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn formulas_reach_every_figure_of_a_report() {
        for (formula, value) in [
            ("run(\"u\", \"b\").nodes[0].bandwidth_mbps", 100.0),
            ("sum(run(\"u\", \"b\").nodes.map(n, n.bandwidth_mbps))", 150.0),
            ("mean(policies.map(q, time(\"u\", q)))", 6.0),
            ("max(policies.map(q, time(\"u\", q)))", 8.0),
            ("run(\"u\", \"a\").pages.migrated / 2.0", 3.5),
            ("deviation([1.0, 3.0])", 1.0),
            ("sum(before([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 0.0]))", 1.0),
            ("sum(after([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 0.0]))", 4.0),
            ("sum(part([1.0, 2.0, 3.0, 4.0], 1.0, 2.0))", 7.0),
            ("last([1.0, 2.0]) - first([1.0, 2.0])", 1.0),
            ("[1, 2].exists(x, x == 2) ? 1.0 : 0.0", 1.0),
        ] {
            let experiment = Experiment::parse("p/f", "f.toml", TEXT).unwrap();
            let formulas = Formulas::new(results(&experiment.plan, &[("u", "a", 4.0), ("u", "b", 8.0)]));
            assert_eq!(formulas.number(formula, &[]), Ok(value), "{formula}");
        }
    }
}
