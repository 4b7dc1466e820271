//! What an experiment runs. Nothing in it depends on what a paper reports.

use std::path::Path;

use memtide_core::params::{Params, split_name};
use memtide_core::suggest;
use serde::{Deserialize, Serialize};

/// What to run: every program under every policy, in every variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A bundled machine's name, or the path of a machine file.
    pub machine: String,
    /// Scale of the machine; the machine file's if missing.
    pub scale: Option<u32>,
    /// Slice of the machine; the machine file's if missing.
    pub slice: Option<u32>,
    /// Figures of the machine file to set, as `FIGURE=VALUE`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The programs.
    pub programs: Vec<Program>,
    /// The policies.
    pub policies: Vec<Named>,
    /// Variants of the machine; one, unchanged, if missing.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

fn one() -> u64 {
    1
}

/// Programs that run at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name in formulas and tables.
    pub name: String,
    /// Workloads, as on the command line.
    pub run: Vec<String>,
    /// Copies of each.
    #[serde(default = "one")]
    pub copies: u64,
}

/// A policy and its name in formulas and tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The paper's name.
    pub name: String,
    /// The policy, as on the command line.
    pub policy: String,
}

/// A variant of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name in formulas and tables.
    pub name: String,
    /// Another machine.
    pub machine: Option<String>,
    /// Further figures to set.
    #[serde(default)]
    pub set: Vec<String>,
}

/// A program in a variant: its runs under all policies have the same accesses.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The program.
    pub program: &'a Program,
    /// The variant, and its place in the plan's list; `None` if the plan has none.
    pub variant: Option<&'a Variant>,
}

impl Plan {
    /// Checks names: not empty, unique; at least one program and policy.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let of = |names: Vec<&str>, field: &'static str| {
            for (at, name) in names.iter().enumerate() {
                if name.is_empty() || names[..at].contains(name) {
                    return Err((field, format!("name '{name}' is empty or used twice")));
                }
            }
            Ok(names.len())
        };
        if of(self.program_names(), "programs")? == 0 {
            return Err(("programs", "needs at least one".to_owned()));
        }
        if of(self.policy_names(), "policies")? == 0 {
            return Err(("policies", "needs at least one".to_owned()));
        }
        of(self.variant_names(), "variants")?;
        if let Some(program) = self.programs.iter().find(|program| program.run.is_empty()) {
            return Err(("programs", format!("program '{}' runs nothing", program.name)));
        }
        self.halved(1).map(drop).map_err(|message| ("programs", message))
    }

    /// Names of the programs, in order.
    pub fn program_names(&self) -> Vec<&str> {
        self.programs.iter().map(|program| program.name.as_str()).collect()
    }

    /// Names of the policies, in order.
    pub fn policy_names(&self) -> Vec<&str> {
        self.policies.iter().map(|policy| policy.name.as_str()).collect()
    }

    /// Names of the variants, in order.
    pub fn variant_names(&self) -> Vec<&str> {
        self.variants.iter().map(|variant| variant.name.as_str()).collect()
    }

    /// Makes paths of machine files, which end in `.toml`, relative to a folder, the experiment file's.
    pub fn find_machine_files(&mut self, folder: &Path) {
        let others = self.variants.iter_mut().filter_map(|variant| variant.machine.as_mut());
        for machine in [&mut self.machine].into_iter().chain(others) {
            if Path::new(machine).extension().is_some_and(|end| end == "toml") {
                *machine = folder.join(&*machine).to_string_lossy().into_owned();
            }
        }
    }

    /// Every program in every variant.
    pub fn cases(&self) -> Vec<Case<'_>> {
        let variants: Vec<Option<&Variant>> = match self.variants.is_empty() {
            true => vec![None],
            false => self.variants.iter().map(Some).collect(),
        };
        let of = |program| variants.iter().map(move |&variant| Case { program, variant });
        self.programs.iter().flat_map(of).collect()
    }

    /// The same at half the scale, of a machine at this scale if the plan has none of its own: half as much
    /// memory, half the footprints and half as many operations, so that time constants stand in the same
    /// relation to the run.
    ///
    /// # Errors
    /// If a workload's size cannot be halved.
    pub fn halved(&self, scale: u32) -> Result<Plan, String> {
        let mut half = self.clone();
        half.scale = Some(self.scale.unwrap_or(scale).saturating_mul(2));
        for program in &mut half.programs {
            for workload in &mut program.run {
                *workload = halved(workload)?;
            }
        }
        Ok(half)
    }
}

/// Parameters of a workload that are halved with the scale; 1 stays 1.
const SIZES: [&str; 3] = ["footprint_mib", "operations", "nodes"];

/// Odd sizes from here on are halved and rounded up; smaller ones are refused, as that would change too
/// much.
const ROUNDED: u64 = 8;

/// A workload of half the size.
fn halved(text: &str) -> Result<String, String> {
    let (name, given) = split_name(text);
    let workloads = memtide_workloads::list();
    let Some(info) = workloads.iter().find(|info| info.name == name) else {
        let known: Vec<&str> = workloads.iter().map(|info| info.name).collect();
        return Err(suggest::unknown("workload", name, &known));
    };
    let mut given: Params = given.parse().map_err(|error| format!("workload '{name}': {error}"))?;
    let messages = given.split_off(&memtide_workloads::MESSAGE_PARAMETERS);
    let messages = messages.into_iter().map(|(key, value)| Ok(format!("{key}={value}")));
    let values = given.values(info.parameters).map_err(|error| format!("workload '{name}': {error}"))?;
    let value = |parameter: &str| match SIZES.contains(&parameter) {
        true => match values.u64(parameter) {
            1 => Ok("1".to_owned()),
            size if size % 2 == 0 || size >= ROUNDED => Ok(size.div_ceil(2).to_string()),
            size => Err(format!("workload '{text}': {parameter} {size} must be even, to run at half scale")),
        },
        false => Ok(values.get(parameter).to_string()),
    };
    let parts = info.parameters.iter().map(|parameter| {
        let name = parameter.name;
        Ok(format!("{name}={}", value(name)?))
    });
    let parts = parts.chain(messages).collect::<Result<Vec<_>, String>>()?;
    Ok(format!("{name}:{}", parts.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_machine_files_are_relative_to_the_experiments_folder() {
        let found = |machine: &str| {
            let variant =
                Variant { name: "v".to_owned(), machine: Some(machine.to_owned()), set: Vec::new() };
            let mut plan = Plan {
                machine: machine.to_owned(),
                scale: None,
                slice: None,
                set: Vec::new(),
                programs: Vec::new(),
                policies: Vec::new(),
                variants: vec![variant],
            };
            plan.find_machine_files(Path::new("figures"));
            assert_eq!(plan.variants[0].machine.as_ref(), Some(&plan.machine));
            plan.machine
        };
        assert_eq!(found("bmpm-5"), "bmpm-5");
        assert_eq!(found("mine.toml"), "figures/mine.toml");
        assert_eq!(found("/etc/mine.toml"), "/etc/mine.toml");
    }

    #[test]
    fn half_scale_halves_footprint_and_operations_only() {
        let half = halved("uniform:threads=3,footprint_mib=96,operations=1000").unwrap();
        assert!(half.contains("threads=3"), "{half}");
        assert!(half.contains("footprint_mib=48") && half.contains("operations=500"), "{half}");
        let defaults = halved("uniform").unwrap();
        assert!(defaults.contains("footprint_mib="), "defaults are halved, too: {defaults}");
        assert!(halved("uniform:footprint_mib=3").unwrap_err().contains("even"));
        assert!(halved("unifrom").unwrap_err().contains("uniform"));
    }
}
