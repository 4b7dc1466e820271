//! A configuration applied to this system.

use std::io;

use memtide_core::Machine;
use memtide_core::policy::Migration;
use memtide_linux::machines::{self, MachineError};
use memtide_linux::topology::{Numbers, System};

use crate::config::Config;
use crate::error::DaemonError;
use crate::journal::{Head, Journal};
use crate::policy::{migration, parse_migration};

/// The policy, its machine and its nodes.
pub struct Setup {
    /// This system's nodes and CPUs in the machine's numbers.
    pub numbers: Numbers,
    /// The machine that the policy uses.
    pub machine: Machine,
    /// The policy.
    pub policy: Box<dyn Migration>,
}

impl Setup {
    /// Applies a configuration to a system.
    ///
    /// # Errors
    /// If the configuration does not fit the system.
    pub fn of(config: &Config, system: &System) -> Result<Setup, DaemonError> {
        let info =
            parse_migration(&config.policy).map_err(|why| config.fault("policy", why))?.migration_info();
        let machine = machines::of_host(system, config.machine.as_deref(), info.figures).map_err(
            |error| match error {
                MachineError::Unknown { .. } | MachineError::OtherNodes { .. } => {
                    config.fault("machine", error)
                }
                MachineError::NoMachine(error) => DaemonError::NoMachine { policy: info.name, error },
                error => DaemonError::MachineFile(error),
            },
        )?;
        let numbers =
            Numbers::of(&machine, system).map_err(|error| config.fault("machine", error.to_string()))?;
        let policy = migration(&config.policy, &machine).map_err(|why| config.fault("policy", why))?;
        Ok(Setup { numbers, machine, policy })
    }
}

/// The reason if pages have no node to move to: policies move pages between tiers.
pub fn no_destination(machine: &Machine) -> Option<&'static str> {
    let [first, others @ ..] = machine.nodes.as_slice() else { return None };
    if others.iter().any(|node| node.tier != first.tier) {
        return None;
    }
    Some(match others {
        [] => "this system has a single memory node: pages cannot migrate",
        _ => {
            "all memory nodes are in one tier, and policies move pages between tiers: set `machine` to a \
             machine file with several tiers"
        }
    })
}

/// The configured journal, with a new part.
///
/// # Errors
/// If its file cannot be written or is not a journal.
pub fn journal(config: &Config, head: Head) -> Result<Option<Journal>, DaemonError> {
    let Some(file) = &config.journal else { return Ok(None) };
    let failed = |error: io::Error| config.fault("journal", format!("{}: {error}", file.display()));
    Journal::open(file, config.journal_mib << 20, head).map(Some).map_err(failed)
}
