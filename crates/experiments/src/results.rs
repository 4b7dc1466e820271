//! The results of a plan's runs, for formulas.

use std::collections::{BTreeMap, HashMap};

use cel::Value;
use memtide_sim::Report;
use serde_json::Value as Json;

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

/// How a message on a run that is not in the plan begins.
pub(crate) const NO_RUN: &str = "no run";

/// All runs of a plan.
#[derive(Clone, Debug)]
pub struct Results {
    pub(crate) programs: Vec<String>,
    pub(crate) policies: Vec<String>,
    pub(crate) variants: Vec<String>,
    reports: BTreeMap<[String; 3], Value>,
}

impl Results {
    /// Of a plan's runs.
    pub fn new(plan: &Plan, rows: Vec<Row>) -> Results {
        let reports = rows.into_iter().map(|row| {
            let report = serde_json::to_value(&row.report).expect("reports are plain data");
            ([row.program, row.policy, row.variant], report)
        });
        Results::of(plan, reports)
    }

    /// Of a plan that has not run: reports without figures.
    pub(crate) fn placeholder(plan: &Plan) -> Results {
        let mut keys = Vec::new();
        for program in plan.program_names() {
            for policy in plan.policy_names() {
                let variants = plan.variant_names();
                let variants = if variants.is_empty() { vec![""] } else { variants };
                keys.extend(
                    variants.into_iter().map(|variant| [program, policy, variant].map(str::to_owned)),
                );
            }
        }
        Results::of(plan, keys.into_iter().map(|key| (key, Json::Object(Default::default()))))
    }

    /// Of reports by program, policy and variant.
    fn of(plan: &Plan, reports: impl Iterator<Item = ([String; 3], Json)>) -> Results {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let reports = reports.map(|(key, report)| (key, value(report)));
        Results {
            programs: owned(plan.program_names()),
            policies: owned(plan.policy_names()),
            variants: owned(plan.variant_names()),
            reports: reports.collect(),
        }
    }

    /// The report of a run, or which names there are.
    pub(crate) fn report(&self, program: &str, policy: &str, variant: &str) -> Result<Value, String> {
        let key = [program, policy, variant].map(str::to_owned);
        self.reports.get(&key).cloned().ok_or_else(|| {
            let [programs, policies, variants] =
                [&self.programs, &self.policies, &self.variants].map(|names| names.join(", "));
            let (of, others) = match (variant, self.variants.is_empty()) {
                ("", true) => (String::new(), "no variants".to_owned()),
                (_, true) => (format!(" in variant '{variant}'"), "no variants".to_owned()),
                (_, false) => (format!(" in variant '{variant}'"), format!("variants {variants}")),
            };
            format!(
                "{NO_RUN} of program '{program}' under policy '{policy}'{of}; there are programs {programs}; \
                 policies {policies}; {others}"
            )
        })
    }
}

/// Every number is a float, so that formulas never divide integers.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(holds) => Value::Bool(holds),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => text.into(),
        Json::Array(list) => list.into_iter().map(value).collect::<Vec<Value>>().into(),
        Json::Object(map) => {
            map.into_iter().map(|(key, of)| (key, value(of))).collect::<HashMap<String, Value>>().into()
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use serde_json::json;

    use super::*;

    /// Results with these times of programs under policies.
    pub(crate) fn results(plan: &Plan, times: &[(&str, &str, f64)]) -> Results {
        let report = |&(program, policy, time_ms): &(&str, &str, f64)| {
            let nodes = json!([{ "bandwidth_mbps": 100 }, { "bandwidth_mbps": 50.0 }]);
            let report = json!({ "time_ms": time_ms, "nodes": nodes, "pages": { "migrated": 7 } });
            ([program, policy, ""].map(str::to_owned), report)
        };
        Results::of(plan, times.iter().map(report))
    }
}
