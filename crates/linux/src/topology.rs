//! Which memory nodes and CPUs there are.

use std::fs;
use std::io;
use std::path::Path;

use memtide_core::{CpuId, NodeId};

const NODES: &str = "/sys/devices/system/node";

/// Nodes that have memory, in order.
///
/// # Errors
/// If sysfs cannot be read.
pub fn nodes_with_memory() -> io::Result<Vec<NodeId>> {
    nodes("has_memory")
}

/// Nodes that have CPUs, in order, with those that are online.
///
/// # Errors
/// If sysfs cannot be read.
pub fn initiators() -> io::Result<Vec<(NodeId, Vec<CpuId>)>> {
    let cpus = |node: NodeId| {
        let list = numbers(&Path::new(NODES).join(format!("node{}/cpulist", node.0)))?;
        Ok((node, list.into_iter().map(|cpu| CpuId(cpu as u16)).collect()))
    };
    nodes("has_cpu")?.into_iter().map(cpus).collect()
}

fn nodes(which: &str) -> io::Result<Vec<NodeId>> {
    let numbers = numbers(&Path::new(NODES).join(which))?;
    Ok(numbers.into_iter().filter_map(|node| u8::try_from(node).ok().map(NodeId)).collect())
}

fn numbers(file: &Path) -> io::Result<Vec<u32>> {
    let unreadable = |why: &str| io::Error::other(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| unreadable(&error.to_string()))?;
    list(text.trim()).ok_or_else(|| unreadable("no list of numbers"))
}

/// Reads the kernel's lists, such as `0-3,7`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > u32::from(u16::MAX) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-3,7"), Some(vec![0, 1, 2, 3, 7]));
        assert_eq!(list(""), Some(vec![]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list("1-x"), None);
        assert_eq!(list("0-4294967295"), None);
    }

    #[test]
    fn this_machine_has_a_node_with_a_cpu() {
        assert!(!nodes_with_memory().unwrap().is_empty());
        assert!(initiators().unwrap().iter().any(|(_, cpus)| !cpus.is_empty()));
    }
}
