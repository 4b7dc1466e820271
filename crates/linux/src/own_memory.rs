//! The memory of this process.

use std::io;

use memtide_core::NodeId;
use rustix::process::getpid;

use crate::mappings::{self, Mapping};
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
    let own = mappings::read(getpid(), |mapping| is_anonymous(&mapping).then_some(mapping.pages()))?;
    let pages: Vec<u64> = own.into_iter().flatten().collect();
    let found = nodes_of(getpid(), &pages)?;
    let is_elsewhere = |node: Option<NodeId>| node.is_some_and(|node| !nodes.contains(&node));
    Ok(pages.into_iter().zip(found).filter(|&(_, node)| is_elsewhere(node)).map(|(page, _)| page).collect())
}

fn is_anonymous(mapping: &Mapping<'_>) -> bool {
    let is_own = matches!(mapping.name, "" | "[heap]" | "[stack]") && !mapping.has_file();
    is_own && mapping.is_writable() && !mapping.is_shared()
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
