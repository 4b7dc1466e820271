//! The kernel's memory policy for a rule, with its interleave weights.

use memtide_core::NodeId;
use memtide_core::policy::Rule;

use super::lower::{KernelPolicy, NotPlain, lower};
use super::weights::{WeightError, Weights};
use crate::topology::System;

/// A kernel memory policy, with its interleave weights set until it is dropped.
#[derive(Debug)]
pub struct HeldPolicy {
    /// The policy.
    pub policy: KernelPolicy,
    _weights: Option<Weights>,
}

/// Why the kernel has no policy for a rule.
#[derive(Debug, thiserror::Error)]
pub enum NoKernelPolicy {
    /// No kernel policy is equivalent.
    #[error(transparent)]
    NotPlain(#[from] NotPlain),
    /// The kernel's weights cannot be set.
    #[error(transparent)]
    Weights(#[from] WeightError),
}

impl HeldPolicy {
    /// The kernel's policy for a rule, whose nodes are the indices of a machine's nodes: those of `host` with
    /// memory, in order.
    ///
    /// # Errors
    /// If the kernel has no such policy, or its weights cannot be set, including because another run uses
    /// others.
    pub fn new(rule: &Rule, host: &System) -> Result<HeldPolicy, NoKernelPolicy> {
        let all: Vec<NodeId> = host.with_memory().map(|node| node.id).collect();
        let policy = lower(&in_system(rule, &all), &all)?;
        let weights = match &policy {
            KernelPolicy::Weighted(weights) => Some(Weights::hold(weights)?),
            _ => None,
        };
        Ok(HeldPolicy { policy, _weights: weights })
    }
}

/// A rule with the system's node numbers instead of the machine's.
fn in_system(rule: &Rule, all: &[NodeId]) -> Rule {
    let mut rule = rule.clone();
    rule.groups.iter_mut().flat_map(|group| &mut group.nodes).for_each(|node| *node = all[node.index()]);
    rule
}
