//! Policies by name, and the lists of all.

mod time_scale;

use std::fmt;

use memtide_core::Machine;
use memtide_core::params::{ParamError, Params, Values, split_name};
use memtide_core::policy::{Migration, Placement};

use crate::entry::{Info, MigrationEntry, PlacementEntry};
use crate::{migration, placement};

pub(crate) use time_scale::SHARE_OF_A_CORE;
pub use time_scale::at_time_scale;

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The name is unknown.
    #[error("unknown {kind} policy '{name}'; known: {}{hint}", .known.join(", "))]
    Unknown {
        /// `placement` or `migration`.
        kind: &'static str,
        /// The name given.
        name: String,
        /// All names.
        known: Vec<&'static str>,
        /// How to write a policy of the other kind with this name; empty if there is none.
        hint: &'static str,
    },
    /// A parameter is refused.
    #[error("policy '{policy}': {error}")]
    Parameter {
        /// The policy's name.
        policy: &'static str,
        /// What is wrong and what is allowed.
        error: ParamError,
    },
    /// Values that are individually allowed but not together.
    #[error("policy '{policy}': {message}")]
    Combination {
        /// The policy's name.
        policy: &'static str,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The machine does not support the parameters.
    #[error("policy '{policy}' on machine '{machine}': {message}")]
    Machine {
        /// The policy's name.
        policy: &'static str,
        /// The machine's name.
        machine: String,
        /// What is wrong and what to do.
        message: String,
    },
}

/// A placement policy and a migration policy with their parameters: a description, from which any number of
/// instances can be created.
#[derive(Clone)]
pub struct Policy {
    text: String,
    placement: &'static PlacementEntry,
    placement_values: Values,
    migration: &'static MigrationEntry,
    migration_values: Values,
}

impl Policy {
    /// Its name, as entered.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Description of its placement.
    pub fn placement_info(&self) -> &'static Info {
        &self.placement.info
    }

    /// The values of its placement's parameters.
    pub fn placement_values(&self) -> &Values {
        &self.placement_values
    }

    /// The values of its migration's parameters.
    pub fn migration_values(&self) -> &Values {
        &self.migration_values
    }

    /// Description of its migration.
    pub fn migration_info(&self) -> &'static Info {
        &self.migration.info
    }

    /// Creates its placement for a run on a machine.
    ///
    /// # Errors
    /// If the parameters do not fit the machine.
    pub fn placement(&self, machine: &Machine) -> Result<Box<dyn Placement>, PolicyError> {
        (self.placement.make)(machine, &self.placement_values).map_err(|message| PolicyError::Machine {
            policy: self.placement.info.name,
            machine: machine.name.clone(),
            message,
        })
    }

    /// Creates its migration for a machine whose CPUs are numbered as in its file.
    pub fn migration(&self, machine: &Machine) -> Box<dyn Migration> {
        (self.migration.make)(machine, &self.migration_values)
    }

    /// Creates its migration for a simulated run, on the machine's slice.
    pub fn simulated_migration(&self, machine: &Machine) -> Box<dyn Migration> {
        self.migration(&machine.with_cpus_of_slice())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Policy").field(&self.text).finish()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// All placement policies.
pub fn placements() -> impl Iterator<Item = &'static Info> {
    placement::ALL.iter().map(|entry| &entry.info)
}

/// All migration policies.
pub fn migrations() -> impl Iterator<Item = &'static Info> {
    migration::ALL.iter().map(|entry| &entry.info)
}

/// The default policies of a comparison: every placement without migration, Linux's default with automatic
/// NUMA balancing, with `hot-cold` and with Linux's memory tiering, bdm on its baseline, and bmpm's placement
/// with its migration; but neither placements on nodes that the user chooses nor policies that count TLB
/// misses or need several programs.
pub fn default_comparison() -> Vec<Policy> {
    let mut texts: Vec<&str> =
        placements().filter(|info| !info.chooses_nodes()).map(|info| info.name).collect();
    texts.splice(1..1, ["local+anb", "local+hot-cold", "local+linux-tiering", "local+relative-heat"]);
    texts.extend(["interleave+bdm", "bw-local+bw-migration"]);
    texts.into_iter().map(|text| parse(text).expect("every policy is known by its own name")).collect()
}

/// Parses `PLACEMENT[:KEY=VALUE,..][+MIGRATION[:KEY=VALUE,..]]`, as in `local`, `local+anb`,
/// `ratio:weights=4:1` or `bw-local+bw-migration:threshold=20,delivery=in-kernel`: two items of the grammar
/// in [`memtide_core::params`].
///
/// # Errors
/// If a policy or parameter is unknown (lists all), or a value is not allowed (lists what is).
pub fn parse(text: &str) -> Result<Policy, PolicyError> {
    let (first, second) = text.split_once('+').unwrap_or((text, "none"));
    let (name, params) = split_name(first);
    let placement = placement::ALL
        .iter()
        .find(|e| e.info.name == name)
        .ok_or_else(|| unknown("placement", name, placements(), migrations()))?;
    let placement_values = values(&placement.info, params)?;
    let (name, params) = split_name(second);
    let migration = migration_entry(name)?;
    let migration_values = values(&migration.info, params)?;
    (migration.check)(&migration_values)
        .map_err(|message| PolicyError::Combination { policy: migration.info.name, message })?;
    Ok(Policy { text: text.to_owned(), placement, placement_values, migration, migration_values })
}

fn migration_entry(name: &str) -> Result<&'static MigrationEntry, PolicyError> {
    let found = migration::ALL.iter().find(|entry| entry.info.name == name);
    found.ok_or_else(|| unknown("migration", name, migrations(), placements()))
}

fn values(info: &'static Info, params: &str) -> Result<Values, PolicyError> {
    let values = params.parse::<Params>().and_then(|params| params.values(info.parameters));
    values.map_err(|error| PolicyError::Parameter { policy: info.name, error })
}

fn unknown(
    kind: &'static str,
    name: &str,
    known: impl Iterator<Item = &'static Info>,
    mut others: impl Iterator<Item = &'static Info>,
) -> PolicyError {
    let hint = match others.any(|info| info.name == name) {
        true => "; a policy is written PLACEMENT+MIGRATION, such as local+anb",
        false => "",
    };
    PolicyError::Unknown { kind, name: name.to_owned(), known: known.map(|info| info.name).collect(), hint }
}

#[cfg(test)]
mod tests;
