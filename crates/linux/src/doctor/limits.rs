//! Limits on the nodes and memory of this process.

use std::path::Path;

use super::{Finding, Use, text};
use crate::placement::status;
use crate::processes;
use crate::topology::{System, list};

const CGROUPS: &str = "/sys/fs/cgroup";

/// Checks the cpuset and the control group.
pub fn examine() -> Vec<Finding> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let there: Vec<u16> = System::read()
        .map(|system| system.with_memory().map(|node| node.id.0.into()).collect())
        .unwrap_or_default();
    let allowed = status(me, "Mems_allowed_list");
    vec![nodes(&there, allowed.as_deref()), memory(limit())]
}

/// The lowest memory limit of this process's control group and its ancestors, in bytes, and its file.
fn limit() -> Option<(u64, String)> {
    let me = processes::one(rustix::process::getpid())?;
    let mine = Path::new(CGROUPS).join(me.cgroup.trim_start_matches('/'));
    let above = mine.ancestors().take_while(|folder| folder.starts_with(CGROUPS));
    let files = above.flat_map(|folder| ["memory.high", "memory.max"].map(|name| folder.join(name)));
    let limits = files.filter_map(|file| {
        let file = file.display().to_string();
        Some((text(&file).ok()?.parse().ok()?, file))
    });
    limits.min()
}

fn nodes(there: &[u16], allowed: Option<&str>) -> Finding {
    let subject = "allowed nodes";
    let Some(text) = allowed else {
        return Finding::note(subject, "not told", "the kernel has no cpusets, or /proc is not mounted");
    };
    // Mems_allowed_list also names nodes that may be hotplugged.
    let mut allowed = list(text).unwrap_or_default();
    allowed.retain(|node| there.contains(node));
    let forbidden: Vec<String> =
        there.iter().filter(|node| !allowed.contains(node)).map(u16::to_string).collect();
    if forbidden.is_empty() {
        return Finding::good(subject, "all", "no cpuset keeps this process from a node");
    }
    let found = format!("a cpuset forbids node {}", forbidden.join(", "));
    let remedy =
        "start it elsewhere, or write the nodes to cpuset.mems of its control group, see /proc/self/cgroup";
    if allowed.len() < 2 {
        let means = "programs started here use a single node";
        return Finding::missing(subject, found, means, &[Use::Weights, Use::Exact]).remedy(remedy);
    }
    Finding::warning(subject, found, "programs started here get no memory of it, whatever the policy")
        .remedy(remedy)
}

fn memory(limit: Option<(u64, String)>) -> Finding {
    let subject = "memory limit";
    match limit {
        None => Finding::good(subject, "none", "no control group limits this process's memory"),
        Some((bytes, file)) => Finding::note(
            subject,
            format!("{} MiB by {file}", bytes >> 20),
            "it covers all nodes together: slow memory counts as fast memory does",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn nodes_outside_cpuset_are_reported() {
        assert_eq!(nodes(&[0, 1, 3], Some("0-63")).state, State::Good);
        let found = nodes(&[0, 1, 3], Some("0,3"));
        assert_eq!((found.state, found.found.as_str()), (State::Warning, "a cpuset forbids node 1"));
        let found = nodes(&[0, 1, 3], Some("3"));
        assert_eq!(found.stops, [Use::Weights, Use::Exact]);
        assert_eq!(nodes(&[0], None).state, State::Note);
        assert_eq!(nodes(&[0], Some("0")).state, State::Good);
    }

    #[test]
    fn memory_limit_is_reported_with_its_file() {
        assert_eq!(memory(None).state, State::Good);
        let found = memory(Some((3 << 20, "/sys/fs/cgroup/a/memory.max".to_owned())));
        assert_eq!(found.found, "3 MiB by /sys/fs/cgroup/a/memory.max");
    }
}
