//! Formulas over the results of runs, in the Common Expression Language (cel.dev).
//!
//! | name | value |
//! | --- | --- |
//! | `programs`, `policies`, `variants` | names, in the plan's order |
//! | `run(PROGRAM, POLICY[, VARIANT])` | `report` of `memtide simulate -o json`, every number a float |
//! | `time(PROGRAM, POLICY[, VARIANT])` | its `time_ms` |
//! | `cut(FROM, TO)` | by how many per cent `TO` is below `FROM` |
//! | `sum(LIST)`, `mean(LIST)`, `max(LIST)`, `min(LIST)` | of a list of numbers |
//! | `deviation(LIST)` | their standard deviation |
//! | `before(SERIES, EVENTS)` | the buckets before the first one in which `EVENTS` is above 0 |
//! | `after(SERIES, EVENTS)` | the buckets after the last such one |
//! | `first(LIST)`, `last(LIST)` | its ends; an error if it is empty |
//! | `part(SERIES, I, N)` | part `I`, from 0, of `N` equal parts of a series |
//! | `near(A, B, PERCENT)` | whether two numbers differ by at most this share of the greater |
//!
//! CEL's own `map`, `all`, `exists` and `filter` do the rest. Its integers and floats do not mix: write
//! `2.0`.

use std::sync::Arc;

use cel::extractors::Arguments;
use cel::objects::Key;
use cel::{Context, ExecutionError, FunctionContext, Program, Value};

use crate::results::{NO_RUN, Results};

/// A function of a list of numbers.
type Fold = fn(&[f64]) -> f64;

/// Checks a formula's syntax.
pub(crate) fn check(text: &str) -> Result<(), String> {
    compile(text).map(drop)
}

fn compile(text: &str) -> Result<Program, String> {
    Program::compile(text).map_err(|error| format!("not a formula: {error}"))
}

/// Evaluates formulas over results.
pub(crate) struct Formulas {
    results: Arc<Results>,
}

impl Formulas {
    pub(crate) fn new(results: Results) -> Formulas {
        Formulas { results: Arc::new(results) }
    }

    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// A formula's number; `names` are further variables.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn number(&self, text: &str, names: &[(&str, &str)]) -> Result<f64, String> {
        match self.value(text, names)? {
            Value::Float(number) if number.is_finite() => Ok(number),
            Value::Float(number) => Err(format!("is {number}")),
            Value::Int(whole) => Ok(whole as f64),
            other => Err(format!("is {other:?}, not a number")),
        }
    }

    /// A formula's truth.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn truth(&self, text: &str) -> Result<bool, String> {
        match self.value(text, &[])? {
            Value::Bool(holds) => Ok(holds),
            other => Err(format!("is {other:?}, not true or false")),
        }
    }

    /// Checks the runs that a formula names, by results without figures.
    ///
    /// # Errors
    /// If one is not in the plan.
    pub(crate) fn check_names(&self, text: &str) -> Result<(), String> {
        match self.value(text, &[]) {
            Err(message) if message.contains(NO_RUN) => Err(message),
            _ => Ok(()),
        }
    }

    fn value(&self, text: &str, names: &[(&str, &str)]) -> Result<Value, String> {
        let context = self.context(names).map_err(|error| error.to_string())?;
        compile(text)?.execute(&context).map_err(|error| match error.to_string() {
            text if text.starts_with("Unsupported binary operator") => {
                format!("{text}: write whole numbers as 2.0, for they do not mix with others")
            }
            text => text,
        })
    }

    fn context(
        &self,
        names: &[(&str, &str)],
    ) -> Result<Context<'static, 'static>, Box<dyn std::error::Error>> {
        let mut context = Context::default();
        let Results { programs, policies, variants, .. } = self.results();
        for (name, list) in [("programs", programs), ("policies", policies), ("variants", variants)] {
            context.add_variable(name, list.clone())?;
        }
        for (name, value) in names {
            context.add_variable((*name).to_owned(), (*value).to_owned())?;
        }
        let results = self.results.clone();
        context.add_function("run", move |ftx: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
            run(&results, &of).map_err(|error| ftx.error(error))
        })?;
        let results = self.results.clone();
        context.add_function("time", move |ftx: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
            run(&results, &of).and_then(|report| time(&report)).map_err(|error| ftx.error(error))
        })?;
        context.add_function("cut", |from: f64, to: f64| 100.0 * (1.0 - to / from))?;
        context.add_function("near", |a: f64, b: f64, percent: f64| {
            (a - b).abs() <= percent / 100.0 * a.abs().max(b.abs())
        })?;
        let of_list: [(&str, Fold); 5] = [
            ("sum", |numbers| numbers.iter().sum()),
            ("mean", mean),
            ("deviation", standard_deviation),
            ("max", |numbers| numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            ("min", |numbers| numbers.iter().copied().fold(f64::INFINITY, f64::min)),
        ];
        for (name, fold) in of_list {
            context
                .add_function(name, move |list: Arc<Vec<Value>>| numbers(&list).map(|list| fold(&list)))?;
        }
        context.add_function("before", |series: Arc<Vec<Value>>, events: Arc<Vec<Value>>| {
            numbers(&events).map(|events| Value::from(before(&series, &events).to_vec()))
        })?;
        context.add_function("after", |series: Arc<Vec<Value>>, events: Arc<Vec<Value>>| {
            numbers(&events).map(|events| Value::from(after(&series, &events).to_vec()))
        })?;
        let end = |series: &[Value], last: bool| {
            let value = if last { series.last() } else { series.first() };
            value.cloned().ok_or_else(|| ExecutionError::function_error("first or last", "the list is empty"))
        };
        context.add_function("first", move |series: Arc<Vec<Value>>| end(&series, false))?;
        context.add_function("last", move |series: Arc<Vec<Value>>| end(&series, true))?;
        context.add_function("part", |series: Arc<Vec<Value>>, at: f64, of: f64| {
            Value::from(part(&series, at, of).to_vec())
        })?;
        Ok(context)
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn standard_deviation(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    let squares: Vec<f64> = numbers.iter().map(|number| (number - mean).powi(2)).collect();
    self::mean(&squares).sqrt()
}

/// What a series has before the first event.
fn before<'a, T>(series: &'a [T], events: &[f64]) -> &'a [T] {
    let first = events.iter().position(|event| *event > 0.0).unwrap_or(series.len());
    &series[..first.min(series.len())]
}

/// What a series has after the last event.
fn after<'a, T>(series: &'a [T], events: &[f64]) -> &'a [T] {
    let last = events.iter().rposition(|event| *event > 0.0).map_or(series.len(), |last| last + 1);
    &series[last.min(series.len())..]
}

/// Part `at` of `of` equal parts of a series.
fn part<T>(series: &[T], at: f64, of: f64) -> &[T] {
    let end = |part: f64| ((part / of * series.len() as f64).round() as usize).min(series.len());
    &series[end(at).min(end(at + 1.0))..end(at + 1.0)]
}

/// The report of `run(PROGRAM, POLICY[, VARIANT])`.
fn run(results: &Results, arguments: &[Value]) -> Result<Value, String> {
    let names: Option<Vec<&str>> = arguments
        .iter()
        .map(|value| match value {
            Value::String(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    match names.as_deref() {
        Some([program, policy]) => results.report(program, policy, ""),
        Some([program, policy, variant]) => results.report(program, policy, variant),
        _ => Err("takes the names of a program, a policy and, if there are any, a variant".to_owned()),
    }
}

fn time(report: &Value) -> Result<f64, String> {
    let Value::Map(map) = report else { return Err("not a report".to_owned()) };
    match map.get(&Key::from("time_ms")) {
        Some(Value::Float(time)) => Ok(*time),
        _ => Err("a report has no time".to_owned()),
    }
}

fn numbers(list: &[Value]) -> Result<Vec<f64>, ExecutionError> {
    let number = |value: &Value| match value {
        Value::Float(number) => Ok(*number),
        other => Err(ExecutionError::UnsupportedTargetType { target: other.clone() }),
    };
    list.iter().map(number).collect()
}
