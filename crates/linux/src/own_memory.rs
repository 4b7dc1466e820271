//! The memory of this process.

use std::io;

use memtide_core::{NodeId, PAGE_BYTES};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use rustix::process::getpid;

use crate::movers::{Mover, nodes_of};
use crate::sys;

/// Moves the heap, stacks and other anonymous memory of this process to the first of these nodes, by the
/// system's numbers, that has room. Pages on any of them stay, those that may not move, and all of them if
/// the process was started with a memory policy.
///
/// # Errors
/// If the mappings or the pages' nodes cannot be read.
pub fn move_to(nodes: &[NodeId], mover: &mut Mover) -> io::Result<()> {
    if !sys::memory_policy_is_default()? {
        return Ok(());
    }
    let mut left = pages_elsewhere(nodes)?;
    for &node in nodes {
        let wanted: Vec<(u64, NodeId)> = left.iter().map(|&page| (page, node)).collect();
        let moved = mover.move_pages(getpid(), &wanted);
        left =
            left.into_iter().zip(moved).filter(|(_, moved)| moved.is_err()).map(|(page, _)| page).collect();
    }
    Ok(())
}

fn pages_elsewhere(nodes: &[NodeId]) -> io::Result<Vec<u64>> {
    let maps = Process::myself().and_then(|own| own.maps()).map_err(io::Error::other)?;
    let pages = |map: &MemoryMap| map.address.0 / PAGE_BYTES..map.address.1 / PAGE_BYTES;
    let pages: Vec<u64> = maps.iter().filter(|map| is_anonymous(map)).flat_map(pages).collect();
    let found = nodes_of(getpid(), &pages)?;
    let is_elsewhere = |node: Option<NodeId>| node.is_some_and(|node| !nodes.contains(&node));
    Ok(pages.into_iter().zip(found).filter(|&(_, node)| is_elsewhere(node)).map(|(page, _)| page).collect())
}

fn is_anonymous(map: &MemoryMap) -> bool {
    let used = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
    let is_own = matches!(map.pathname, MMapPath::Anonymous | MMapPath::Heap | MMapPath::Stack);
    is_own && map.perms.contains(used)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::sys::Mode;

    #[test]
    fn memory_policy_of_the_thread_is_seen() {
        let seen = |mode, nodes: &[NodeId]| {
            sys::set_memory_policy(mode, nodes).expect("a memory policy");
            sys::memory_policy_is_default().expect("the memory policy")
        };
        let test = move || assert!(seen(Mode::Default, &[]) && !seen(Mode::Preferred, &[NodeId(0)]));
        thread::spawn(test).join().expect("both are seen");
    }
}
