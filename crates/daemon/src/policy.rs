//! Migration policies available to a daemon.

use memtide_core::Machine;
use memtide_core::policy::{Delivery, Migration};
use memtide_policies::{Policy, PolicyError};

/// Why a policy cannot be used by a daemon.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyRefused {
    /// There is no such policy, or a parameter is refused.
    #[error(transparent)]
    Unknown(#[from] PolicyError),
    /// It also names a placement policy.
    #[error("'{text}' has a placement; name the migration policy only: '{migration}'")]
    Pair {
        /// The full text.
        text: String,
        /// Its placement policy.
        placement: String,
        /// Its migration policy.
        migration: String,
    },
    /// It decides in the page fault.
    #[error(
        "policy '{text}' decides in the page fault itself, in the kernel; use 'relative-heat', \
         'hot-cold', 'bw-migration', or the kernel's own (kernel.numa_balancing)"
    )]
    InKernel {
        /// The policy.
        text: String,
    },
}

/// Parses a migration policy with its parameters.
///
/// # Errors
/// If there is no such policy, a parameter is refused, or the text also names a placement policy.
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

/// Creates a migration policy for a machine.
///
/// # Errors
/// As [`parse_migration`]; or if the policy needs more than a stock kernel.
pub fn migration(text: &str, machine: &Machine) -> Result<Box<dyn Migration>, PolicyRefused> {
    let policy = parse_migration(text)?.migration(machine);
    let sensors = policy.sensors();
    if sensors.hint_faults() && sensors.delivery == Delivery::InKernel {
        return Err(PolicyRefused::InKernel { text: text.to_owned() });
    }
    Ok(policy)
}
