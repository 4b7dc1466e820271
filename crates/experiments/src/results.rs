//! The results of a plan's runs, for formulas.

use std::collections::BTreeMap;

use memtide_sim::Report;
use rhai::{Dynamic, Map};
use serde_json::Value;

use crate::plan::Plan;

/// A run and its report.
#[derive(Clone, Debug)]
pub struct Row {
    /// The program's name.
    pub program: String,
    /// The variant's name; empty if the plan has none.
    pub variant: String,
    /// The policy's name.
    pub policy: String,
    /// The report.
    pub report: Report,
}

/// All runs of a plan.
#[derive(Clone, Debug)]
pub struct Results {
    pub(crate) programs: Vec<String>,
    pub(crate) policies: Vec<String>,
    pub(crate) variants: Vec<String>,
    reports: BTreeMap<[String; 3], Dynamic>,
}

impl Results {
    /// Of a plan's runs.
    pub fn new(plan: &Plan, rows: Vec<Row>) -> Results {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let reports = rows.into_iter().map(|row| {
            let value = serde_json::to_value(&row.report).expect("reports are plain data");
            ([row.program, row.policy, row.variant], dynamic(value))
        });
        Results {
            programs: owned(plan.program_names()),
            policies: owned(plan.policy_names()),
            variants: owned(plan.variant_names()),
            reports: reports.collect(),
        }
    }

    /// The report of a run, or which names there are.
    pub(crate) fn report(&self, program: &str, policy: &str, variant: &str) -> Result<Dynamic, String> {
        let key = [program, policy, variant].map(str::to_owned);
        self.reports.get(&key).cloned().ok_or_else(|| {
            format!(
                "no run of program '{program}' under policy '{policy}' in variant '{variant}'; there are \
                 programs {}; policies {}; variants {}",
                self.programs.join(", "),
                self.policies.join(", "),
                self.variants.join(", ")
            )
        })
    }
}

/// Every number is a float, so that formulas never divide integers.
fn dynamic(value: Value) -> Dynamic {
    match value {
        Value::Null => Dynamic::UNIT,
        Value::Bool(value) => value.into(),
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN).into(),
        Value::String(text) => text.into(),
        Value::Array(list) => list.into_iter().map(dynamic).collect::<rhai::Array>().into(),
        Value::Object(map) => {
            let entry = |(key, value): (String, Value)| (key.into(), dynamic(value));
            Dynamic::from_map(map.into_iter().map(entry).collect::<Map>())
        }
    }
}
