//! Formulas over the results of runs, in Rhai (rhai.rs).
//!
//! | name | value |
//! | --- | --- |
//! | `programs`, `policies`, `variants` | names, in the plan's order |
//! | `run(PROGRAM, POLICY[, VARIANT])` | the run's report, as `memtide simulate -o json` prints it, every number a float |
//! | `time(PROGRAM, POLICY[, VARIANT])` | its `time_ms` |
//! | `cut(FROM, TO)` | by how many per cent `TO` is below `FROM` |
//! | `mean(LIST)`, `greatest(LIST)`, `least(LIST)` | of a list of numbers |
//! | `near(A, B, PERCENT)` | whether two numbers differ by at most this share of the greater |

use std::sync::Arc;

use rhai::{Array, Dynamic, Engine, EvalAltResult, Scope};

use crate::results::Results;

/// Maximum steps of a formula.
const STEPS: u64 = 1_000_000;

type Outcome<T> = Result<T, Box<EvalAltResult>>;

/// Checks a formula's syntax.
pub(crate) fn check(text: &str) -> Result<(), String> {
    engine().compile(text).map(drop).map_err(|error| format!("not a formula: {error}"))
}

/// Evaluates formulas over results.
pub(crate) struct Formulas {
    engine: Engine,
    scope: Scope<'static>,
}

impl Formulas {
    pub(crate) fn new(results: &Arc<Results>) -> Formulas {
        let mut engine = engine();
        let find = |results: &Results, program: &str, policy: &str, variant: &str| -> Outcome<Dynamic> {
            results.report(program, policy, variant).map_err(Into::into)
        };
        let of = results.clone();
        engine.register_fn("run", move |program: &str, policy: &str| find(&of, program, policy, ""));
        let of = results.clone();
        engine.register_fn("run", move |program: &str, policy: &str, variant: &str| {
            find(&of, program, policy, variant)
        });
        let of = results.clone();
        engine.register_fn("time", move |program: &str, policy: &str| {
            find(&of, program, policy, "").and_then(|report| time(&report))
        });
        let of = results.clone();
        engine.register_fn("time", move |program: &str, policy: &str, variant: &str| {
            find(&of, program, policy, variant).and_then(|report| time(&report))
        });
        let mut scope = Scope::new();
        for (name, names) in [
            ("programs", &results.programs),
            ("policies", &results.policies),
            ("variants", &results.variants),
        ] {
            let names: Array = names.iter().map(|name| name.into()).collect();
            scope.push_constant(name, names);
        }
        Formulas { engine, scope }
    }

    /// A formula's number; `names` are constants that it may use.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn number(&self, text: &str, names: &[(&str, &str)]) -> Result<f64, String> {
        let value = self.value(text, names)?;
        let number = value.as_float().or_else(|_| value.as_int().map(|whole| whole as f64));
        match number {
            Ok(number) if number.is_finite() => Ok(number),
            Ok(number) => Err(format!("is {number}")),
            Err(kind) => Err(format!("is a {kind}, not a number")),
        }
    }

    /// A formula's truth.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn truth(&self, text: &str) -> Result<bool, String> {
        self.value(text, &[])?.as_bool().map_err(|kind| format!("is a {kind}, not true or false"))
    }

    fn value(&self, text: &str, names: &[(&str, &str)]) -> Result<Dynamic, String> {
        let mut scope = self.scope.clone();
        for (name, value) in names {
            scope.push_constant(*name, (*value).to_owned());
        }
        self.engine.eval_with_scope(&mut scope, text).map_err(|error| error.to_string())
    }
}

fn engine() -> Engine {
    let mut engine = Engine::new();
    engine.set_max_operations(STEPS);
    engine.register_fn("cut", |from: f64, to: f64| 100.0 * (1.0 - to / from));
    engine.register_fn("near", |a: f64, b: f64, percent: f64| {
        (a - b).abs() <= percent / 100.0 * a.abs().max(b.abs())
    });
    engine.register_fn("mean", |list: Array| {
        let numbers = numbers(list)?;
        Ok::<f64, Box<EvalAltResult>>(numbers.iter().sum::<f64>() / numbers.len() as f64)
    });
    engine.register_fn("greatest", |list: Array| {
        Ok::<f64, Box<EvalAltResult>>(numbers(list)?.into_iter().fold(f64::NEG_INFINITY, f64::max))
    });
    engine.register_fn("least", |list: Array| {
        Ok::<f64, Box<EvalAltResult>>(numbers(list)?.into_iter().fold(f64::INFINITY, f64::min))
    });
    engine
}

fn time(report: &Dynamic) -> Outcome<f64> {
    let map = report.as_map_ref().map_err(|kind| format!("a report is a {kind}"))?;
    let time = map.get("time_ms").and_then(|time| time.as_float().ok());
    time.ok_or_else(|| "a report has no time".into())
}

fn numbers(list: Array) -> Outcome<Vec<f64>> {
    if list.is_empty() {
        return Err("the list is empty".into());
    }
    let number =
        |value: Dynamic| value.as_float().map_err(|kind| format!("a {kind} in a list of numbers").into());
    list.into_iter().map(number).collect()
}
