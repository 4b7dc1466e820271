//! Lowers placement rules to kernel memory policies.

use std::fmt;

use memtide_core::NodeId;
use memtide_core::policy::{GroupOrder, Rule, Within};

/// A Linux memory policy (set_mempolicy(2)) equivalent to a rule. The ratio of pages is the rule's; which
/// page goes where may differ, as Linux visits nodes in numeric order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelPolicy {
    /// The node nearest to the faulting CPU, any other if it is full.
    Local,
    /// The nearest of these nodes, no other.
    Nearest(Vec<NodeId>),
    /// The nearest of these nodes, any other if they are full (Linux 5.15 and later).
    Preferred(Vec<NodeId>),
    /// Round robin over these nodes.
    Interleave(Vec<NodeId>),
    /// Weighted round robin over these nodes. The weights are system-wide, one per node: see
    /// [`Weights`](super::Weights).
    Weighted(Vec<(NodeId, u8)>),
}

impl fmt::Display for KernelPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers =
            |nodes: &[NodeId]| nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", ");
        match self {
            KernelPolicy::Local => f.write_str("MPOL_LOCAL"),
            KernelPolicy::Nearest(nodes) => write!(f, "MPOL_BIND to nodes {}", numbers(nodes)),
            KernelPolicy::Preferred(nodes) => write!(f, "MPOL_PREFERRED_MANY, nodes {}", numbers(nodes)),
            KernelPolicy::Interleave(nodes) => write!(f, "MPOL_INTERLEAVE over nodes {}", numbers(nodes)),
            KernelPolicy::Weighted(weights) => {
                let each = weights.iter().map(|(node, weight)| format!("{} {weight}", node.0));
                let each = each.collect::<Vec<_>>().join(", node ");
                write!(f, "MPOL_WEIGHTED_INTERLEAVE, pages in turn: node {each}")
            }
        }
    }
}

/// Why the kernel cannot implement a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPlain {
    /// It is random, or depends on the CPU.
    #[error("not a plain ratio: the next node is random or depends on the faulting CPU")]
    Order,
    /// It has groups of several nodes, of which the nearest to the CPU is used.
    #[error("not a plain ratio: it selects the nearest of several nodes to the faulting CPU")]
    Nearest,
    /// It prefers nodes, but not all others are its fallback.
    #[error("its full nodes spill to some nodes only, those of MPOL_PREFERRED_MANY to all")]
    Fallback,
    /// Its weights are out of range.
    #[error("its weights {0:?} are more than Linux's 1 to 255")]
    Weights(Vec<u64>),
}

/// The Linux policy equivalent to a rule; `all` are the nodes with memory.
///
/// # Errors
/// If there is none.
pub fn lower(rule: &Rule, all: &[NodeId]) -> Result<KernelPolicy, NotPlain> {
    if let [only] = &rule.groups[..]
        && (only.nodes.len() == 1 || rule.within == Within::Nearest)
    {
        let every = all.iter().all(|node| only.nodes.contains(node));
        return Ok(if every { KernelPolicy::Local } else { KernelPolicy::Nearest(only.nodes.clone()) });
    }
    if let (GroupOrder::First, Within::Nearest, [first, ..]) = (rule.order, rule.within, &rule.groups[..]) {
        let every = all.iter().all(|&node| rule.allows(node));
        return if every {
            Ok(KernelPolicy::Preferred(first.nodes.clone()))
        } else {
            Err(NotPlain::Fallback)
        };
    }
    if rule.order != GroupOrder::Cycle || rule.within == Within::Random {
        return Err(NotPlain::Order);
    }
    let several = rule.groups.iter().any(|group| group.nodes.len() > 1);
    if several && rule.within == Within::Nearest {
        return Err(NotPlain::Nearest);
    }
    let weights = node_weights(rule);
    let nodes = rule.groups.iter().flat_map(|group| group.nodes.iter().copied());
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(KernelPolicy::Interleave(nodes.collect()));
    }
    let small: Result<Vec<u8>, _> = weights.iter().map(|&weight| u8::try_from(weight)).collect();
    let small = small.map_err(|_| NotPlain::Weights(weights))?;
    Ok(KernelPolicy::Weighted(nodes.zip(small).collect()))
}

/// The smallest integer weights of the nodes, in the groups' order.
fn node_weights(rule: &Rule) -> Vec<u64> {
    let common = rule.groups.iter().fold(1, |common, group| {
        let nodes = group.nodes.len() as u64;
        common / divisor(common, nodes) * nodes
    });
    let of_group = |group: &memtide_core::policy::Group| {
        let nodes = group.nodes.len();
        vec![u64::from(group.weight) * (common / nodes as u64); nodes]
    };
    let weights: Vec<u64> = rule.groups.iter().flat_map(of_group).collect();
    let common = weights.iter().fold(0, |common, &weight| divisor(common, weight)).max(1);
    weights.into_iter().map(|weight| weight / common).collect()
}

/// Greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::{Group, Spill};

    use super::*;

    const ALL: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

    fn rule(groups: &[(&[u8], u32)], order: GroupOrder, within: Within) -> Rule {
        let group = |&(nodes, weight): &(&[u8], u32)| Group {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            weight,
        };
        Rule { groups: groups.iter().map(group).collect(), order, within, spill: Spill::Group }
    }

    fn lowered(groups: &[(&[u8], u32)], within: Within) -> Result<KernelPolicy, NotPlain> {
        lower(&rule(groups, GroupOrder::Cycle, within), &ALL)
    }

    fn weighted(weights: &[(u8, u8)]) -> Result<KernelPolicy, NotPlain> {
        Ok(KernelPolicy::Weighted(weights.iter().map(|&(node, weight)| (NodeId(node), weight)).collect()))
    }

    #[test]
    fn tier_weight_is_shared_by_its_nodes() {
        assert_eq!(
            lowered(&[(&[0, 1], 5), (&[2], 1)], Within::InSequence),
            weighted(&[(0, 5), (1, 5), (2, 2)])
        );
        assert_eq!(
            lowered(&[(&[0, 1], 4), (&[2], 2)], Within::InSequence),
            Ok(KernelPolicy::Interleave(ALL.into()))
        );
        assert_eq!(lowered(&[(&[0], 8), (&[2], 2)], Within::Nearest), weighted(&[(0, 4), (2, 1)]));
    }

    #[test]
    fn one_group_lowers_to_local_or_nearest_node() {
        assert_eq!(lowered(&[(&[0, 1, 2], 1)], Within::Nearest), Ok(KernelPolicy::Local));
        assert_eq!(lowered(&[(&[0, 1], 7)], Within::Nearest), Ok(KernelPolicy::Nearest(ALL[..2].into())));
    }

    #[test]
    fn preferred_nodes_lower_only_if_all_others_are_their_fallback() {
        let preferred =
            |groups: &[(&[u8], u32)]| lower(&rule(groups, GroupOrder::First, Within::Nearest), &ALL);
        let nodes = |nodes: &[NodeId]| Ok(KernelPolicy::Preferred(nodes.to_vec()));
        assert_eq!(preferred(&[(&[2], 1), (&[0, 1], 1)]), nodes(&ALL[2..]));
        assert_eq!(preferred(&[(&[1, 2], 1), (&[0], 1)]), nodes(&ALL[1..]));
        assert_eq!(preferred(&[(&[0, 1, 2], 1)]), Ok(KernelPolicy::Local));
        assert_eq!(preferred(&[(&[2], 1), (&[0], 1)]), Err(NotPlain::Fallback));
    }

    #[test]
    fn unsupported_rule_is_reported() {
        assert_eq!(lowered(&[(&[0, 1], 2), (&[2], 1)], Within::Nearest), Err(NotPlain::Nearest));
        assert_eq!(
            lowered(&[(&[0], 524), (&[2], 1)], Within::InSequence),
            Err(NotPlain::Weights(vec![524, 1]))
        );
        for (order, within) in
            [(GroupOrder::Random, Within::Random), (GroupOrder::CycleFromOwn, Within::Nearest)]
        {
            assert_eq!(lower(&rule(&[(&[0], 2), (&[2], 1)], order, within), &ALL), Err(NotPlain::Order));
        }
    }
}
