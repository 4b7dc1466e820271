//! Finds pages off their target node by page frame, at about a third of the cost of a move_pages(2) query:
//! see the costs in docs/live.md.
//!
//! /proc/PID/pagemap shows page frames to a reader with CAP_SYS_ADMIN, and sysfs lists the memory blocks of
//! each node. If either leaves a page's node unknown, the caller queries move_pages(2).

use std::fs::File;
use std::time::{Duration, Instant};

use memtide_core::NodeId;
use rustix::process::Pid;

use crate::sys::pagemap::{self, ENTRY_BYTES};
use crate::topology::FrameNodes;

/// Minimum pages per call for which a page map is opened.
const PAGES_MIN: usize = 64;

/// Minimum mean length of runs of consecutive pages for which a page map is read: one system call per run.
const RUN_MIN: usize = 8;

/// How long the memory blocks of the nodes are cached: memory hotplug changes them.
const BLOCKS_MAX_AGE: Duration = Duration::from_secs(1);

/// Checks that pages are off their target node, as far as the kernel shows page frames.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// Empty if sysfs lists none, or if the kernel hides page frames.
    nodes: FrameNodes,
    read_at: Option<Instant>,
    entries: Vec<u8>,
}

impl Frames {
    /// The page map of a process; `None` if page frames are not available, or the pages are too few.
    pub fn pagemap_for(&mut self, process: Pid, wanted: &[(u64, NodeId)]) -> Option<File> {
        if wanted.len() < PAGES_MIN {
            return None;
        }
        if self.read_at.is_none_or(|at| at.elapsed() >= BLOCKS_MAX_AGE) {
            (self.nodes, self.read_at) = (FrameNodes::read().unwrap_or_default(), Some(Instant::now()));
        }
        if self.nodes.is_empty() {
            return None;
        }
        pagemap::open(process).ok()
    }

    /// Whether every page is resident and on another node than its target. False if unknown for one.
    pub fn all_are_elsewhere(&mut self, pagemap: &File, wanted: &[(u64, NodeId)]) -> bool {
        let runs = || wanted.chunk_by(|a, b| b.0.wrapping_sub(a.0) == 1);
        runs().count() * RUN_MIN <= wanted.len() && runs().all(|run| self.run_is_elsewhere(pagemap, run))
    }

    fn run_is_elsewhere(&mut self, pagemap: &File, run: &[(u64, NodeId)]) -> bool {
        let bytes = run.len() * ENTRY_BYTES;
        if self.entries.len() < bytes {
            self.entries.resize(bytes, 0);
        }
        let Ok(frames) = pagemap::frames(pagemap, run[0].0, &mut self.entries[..bytes]) else { return false };
        for (frame, (_, to)) in frames.zip(run) {
            let Some(frame) = frame else { return false };
            if frame == 0 {
                // Hidden, as all others are: read no page map until the blocks are read again.
                self.nodes = FrameNodes::default();
                return false;
            }
            if self.nodes.node_of(frame).is_none_or(|at| at == *to) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::sys::pagemap::tests::pagemap;

    /// Frames up to 0x8000 are on node 0, others up to 0x10000 on node 1.
    fn frames(folder: &Path) -> Frames {
        let system = folder.join("devices/system");
        for folder in ["memory", "node/node0/memory0", "node/node1/memory1"] {
            fs::create_dir_all(system.join(folder)).expect("a folder");
        }
        fs::write(system.join("memory/block_size_bytes"), "8000000\n").expect("a file");
        fs::write(system.join("node/online"), "0-1\n").expect("a file");
        let nodes = FrameNodes::of(folder).expect("what was written");
        Frames { nodes, ..Frames::default() }
    }

    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;
    const SWAPPED: u64 = 1 << 62;

    #[test]
    fn pages_are_elsewhere_only_if_every_frame_is_off_target() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut frames = frames(folder.path());
        let mut elsewhere = |last: u64, to: u8| {
            let page = |frame| PRESENT | EXCLUSIVE | frame;
            let pagemap =
                pagemap(&[page(1), page(0x7fff), page(0x7000), page(2), page(3), page(4), page(5), last]);
            let wanted: Vec<(u64, NodeId)> = (16..24).map(|page| (page, NodeId(to))).collect();
            frames.all_are_elsewhere(&pagemap, &wanted)
        };
        assert!(elsewhere(PRESENT | 0x42, 1));
        assert!(!elsewhere(PRESENT | 0x42, 0), "they are there");
        assert!(!elsewhere(PRESENT | 0x8000, 1), "one is there");
        assert!(!elsewhere(PRESENT | 0x10000, 1), "of unknown memory");
        assert!(!elsewhere(SWAPPED | 0x42, 1), "not in memory");
        assert!(!elsewhere(0, 1), "not in memory");
        assert!(elsewhere(PRESENT | 0x42, 1));
        assert!(!elsewhere(PRESENT, 1), "hidden");
        assert!(frames.nodes.is_empty(), "frames are hidden");
    }

    #[test]
    fn page_map_is_read_only_if_cheaper() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut frames = frames(folder.path());
        let pagemap = pagemap(&[PRESENT | 1; 64]);
        let wanted =
            |pages: &[u64]| -> Vec<(u64, NodeId)> { pages.iter().map(|page| (*page, NodeId(1))).collect() };
        let neighbours: Vec<u64> = (16..24).chain(70..78).collect();
        assert!(frames.all_are_elsewhere(&pagemap, &wanted(&neighbours)));
        assert!(!frames.all_are_elsewhere(&pagemap, &wanted(&neighbours[1..])), "short runs");
        assert!(
            !frames.all_are_elsewhere(&pagemap, &wanted(&(78..86).collect::<Vec<_>>())),
            "beyond the end"
        );
        let few = wanted(&[16; PAGES_MIN - 1]);
        assert!(frames.pagemap_for(rustix::process::getpid(), &few).is_none());
    }
}
