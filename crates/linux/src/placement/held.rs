//! The kernel's policy for a rule, with the weights that it needs.

use memtide_core::NodeId;
use memtide_core::policy::Rule;

use super::lower::{KernelPolicy, NotPlain, lower};
use super::weights::{WeightError, Weights};
use crate::topology::System;

/// A policy of the kernel, with its interleave weights set for as long as this lives.
#[derive(Debug)]
pub struct HeldPolicy {
    /// The policy.
    pub policy: KernelPolicy,
    _weights: Option<Weights>,
}

/// Why the kernel has no policy for a rule.
#[derive(Debug, thiserror::Error)]
pub enum NoKernelPolicy {
    /// No policy of the kernel is the same.
    #[error(transparent)]
    NotPlain(#[from] NotPlain),
    /// The kernel's weights cannot be set.
    #[error(transparent)]
    Weights(#[from] WeightError),
}

impl HeldPolicy {
    /// The kernel's policy for a rule, whose nodes are the indices of a machine's nodes: those of `host` that have memory, in
    /// order.
    ///
    /// # Errors
    /// If the kernel has no such policy, or its weights cannot be set: because of another run that holds others, too.
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

/// A rule in the system's numbers of nodes instead of the machine's.
fn in_system(rule: &Rule, all: &[NodeId]) -> Rule {
    let mut rule = rule.clone();
    rule.groups.iter_mut().flat_map(|group| &mut group.nodes).for_each(|node| *node = all[node.index()]);
    rule
}
