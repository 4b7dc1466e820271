//! Migration policies that a daemon can run.

use memtide_core::Machine;
use memtide_core::policy::{Delivery, Migration};
use memtide_policies::{Policy, PolicyError};

/// Why a policy is not one that a daemon can run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyRefused {
    /// There is no such policy, or a parameter of it is refused.
    #[error(transparent)]
    Unknown(#[from] PolicyError),
    /// It names a placement policy, too.
    #[error("'{text}' has a placement; name the migration policy only: '{migration}'")]
    Pair {
        /// The whole.
        text: String,
        /// Its placement policy.
        placement: String,
        /// Its migration policy.
        migration: String,
    },
    /// It decides in the page fault.
    #[error(
        "policy '{text}' decides in the page fault itself, in the kernel; use 'bw-migration', 'hot-cold', or the kernel's own (kernel.numa_balancing)"
    )]
    InKernel {
        /// The policy.
        text: String,
    },
}

/// Parses a migration policy with its parameters.
///
/// # Errors
/// If there is none of this name, a parameter is refused, or the text names a placement policy, too.
pub fn parse_migration(text: &str) -> Result<Policy, PolicyRefused> {
    if let Some((placement, migration)) = text.split_once('+') {
        return Err(PolicyRefused::Pair {
            text: text.to_owned(),
            placement: placement.to_owned(),
            migration: migration.to_owned(),
        });
    }
    Ok(memtide_policies::parse(&format!("local+{text}"))?)
}

/// Makes a migration policy for a machine.
///
/// # Errors
/// As [`parse_migration`]; or if the policy cannot be had on a stock kernel.
pub fn migration(text: &str, machine: &Machine) -> Result<Box<dyn Migration>, PolicyRefused> {
    let policy = parse_migration(text)?.migration(machine);
    let sensors = policy.sensors();
    if sensors.hint_faults() && sensors.delivery == Delivery::InKernel {
        return Err(PolicyRefused::InKernel { text: text.to_owned() });
    }
    Ok(policy)
}
