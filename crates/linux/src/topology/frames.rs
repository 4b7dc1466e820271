//! Maps page frames to nodes: sysfs lists the memory blocks of each node.

use std::ops::Range;
use std::path::Path;

use memtide_core::{NodeId, PAGE_BYTES};

use super::TopologyError;
use super::node::NODES;
use super::sysfs::Sysfs;

/// The node of each page frame, by frame number (physical address / 4096).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameNodes {
    /// Sorted, none empty, no overlaps.
    ranges: Vec<(Range<u64>, NodeId)>,
}

impl FrameNodes {
    /// Reads this system's mapping.
    ///
    /// # Errors
    /// If sysfs cannot be read or parsed.
    pub fn read() -> Result<FrameNodes, TopologyError> {
        FrameNodes::of(Path::new("/sys"))
    }

    /// Reads the mapping from sysfs, or a copy of it, in a directory.
    ///
    /// # Errors
    /// As for [`FrameNodes::read`].
    pub fn of(sysfs: &Path) -> Result<FrameNodes, TopologyError> {
        let sysfs = Sysfs(sysfs);
        let block_bytes =
            sysfs.read("devices/system/memory/block_size_bytes", |hex| u64::from_str_radix(hex, 16).ok())?;
        // A kernel without memory hotplug lists no blocks.
        let Some(block_bytes) = block_bytes else { return Ok(FrameNodes::default()) };
        let block_frames = block_bytes / PAGE_BYTES;
        let mut blocks: Vec<(u64, NodeId)> = Vec::new();
        for node in sysfs.list(&format!("{NODES}/online"))?.unwrap_or_default() {
            let Ok(id) = u8::try_from(node).map(NodeId) else { continue };
            let of_node = sysfs.numbered::<u64>(&format!("{NODES}/node{node}"), "memory")?;
            blocks.extend(of_node.into_iter().map(|block| (block, id)));
        }
        blocks.sort_unstable();
        let mut ranges: Vec<(Range<u64>, NodeId)> = Vec::new();
        for listed in blocks.chunk_by(|a, b| a.0 == b.0) {
            // Frames of a block that two nodes list may be on either.
            let [(block, id)] = *listed else { continue };
            let (start, end) = (block * block_frames, (block + 1) * block_frames);
            match ranges.last_mut() {
                Some((range, last)) if range.end == start && *last == id => range.end = end,
                _ => ranges.push((start..end, id)),
            }
        }
        Ok(FrameNodes { ranges })
    }

    /// Whether the node of every frame is unknown.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The node of a frame; `None` if unknown.
    pub fn node_of(&self, frame: u64) -> Option<NodeId> {
        let at = self.ranges.partition_point(|(range, _)| range.end <= frame);
        self.ranges.get(at).filter(|(range, _)| range.start <= frame).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn frame_is_on_the_only_node_that_lists_its_block() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = folder.path().join("devices/system").join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        };
        let of = || FrameNodes::of(folder.path()).expect("what was written");
        write("node/online", "0-1\n");
        assert!(of().is_empty(), "no memory hotplug");
        write("memory/block_size_bytes", "8000000\n");
        for (node, blocks) in [(0, [0, 1, 2, 70_000]), (1, [2, 3, 8, 9])] {
            blocks.iter().for_each(|block| write(&format!("node/node{node}/memory{block}"), ""));
        }
        let block = (128 << 20) / PAGE_BYTES;
        let (near, far) = (Some(NodeId(0)), Some(NodeId(1)));
        let edges =
            [(0, near), (2, None), (3, far), (4, None), (8, far), (10, None), (70_000, near), (70_001, None)];
        let mut before = None;
        for (first, node) in edges {
            assert_eq!(of().node_of(first * block), node, "the first frame of block {first}");
            assert!(first == 0 || of().node_of(first * block - 1) == before, "the last before block {first}");
            before = node;
        }
        assert_eq!(of().ranges.len(), 4, "neighbouring blocks of a node are one range");
    }
}
