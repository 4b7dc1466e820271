//! Where the memory of a layout's nodes lies in the guest's physical address space.

use memtide_core::NodeId;
use memtide_lab_protocol::clock::Range;

use super::nodes::Layout;
use crate::memory::Memory;

/// With this much memory, QEMU's q35 machine puts what is above the first 2 GiB above 4 GiB.
const SPLIT_FROM: u64 = 0xb000_0000;
const BELOW_SPLIT: u64 = 2 << 30;
const ABOVE_SPLIT: u64 = 4 << 30;

/// QEMU puts memory that is plugged in from the next multiple of this on.
const PLUGGED_ALIGNMENT: u64 = 1 << 30;

/// Windows of CXL memory begin at a multiple of this, after QEMU's registers for them, and are as long.
pub(super) const WINDOW_MIB: u64 = 256;
const WINDOW_REGISTERS: u64 = 1 << 20;

impl Layout {
    /// Where the memory of a node begins that is all in one piece, as all but plain memory is.
    pub fn start(&self, node: usize) -> u64 {
        let range = self.ranges().into_iter().find(|range| range.node.index() == node);
        range.map_or(0, |range| range.start)
    }

    /// Where each node's memory lies in the guest's physical address space, or will lie once it is plugged in.
    pub fn ranges(&self) -> Vec<Range> {
        let low = if self.mib() << 20 >= SPLIT_FROM { BELOW_SPLIT } else { SPLIT_FROM };
        let end = (self.mib() << 20).saturating_sub(low) + ABOVE_SPLIT;
        let (mut offset, mut plugged) = (0, end.next_multiple_of(PLUGGED_ALIGNMENT));
        let mut window = self.first_window(end);
        let mut ranges = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let (node_id, bytes) = (NodeId::from(number), node.mib << 20);
            match node.memory {
                Memory::Plain => {
                    let below = bytes.min(low.saturating_sub(offset));
                    let above = (offset + below).saturating_sub(low) + ABOVE_SPLIT;
                    ranges.push(Range { node: node_id, start: offset, bytes: below });
                    ranges.push(Range { node: node_id, start: above, bytes: bytes - below });
                    offset += bytes;
                }
                Memory::Absent | Memory::Shared(_) => {
                    ranges.push(Range { node: node_id, start: plugged, bytes });
                    plugged += bytes;
                }
                Memory::Cxl => {
                    ranges.push(Range { node: node_id, start: window, bytes });
                    window += bytes;
                }
            }
        }
        ranges.retain(|range| range.bytes > 0);
        ranges
    }

    /// Where the first window of CXL memory begins, other memory being up to `end`: QEMU leaves a GiB for each slot.
    fn first_window(&self, end: u64) -> u64 {
        let slots = match self.slots() {
            0 => end,
            slots => {
                end.next_multiple_of(PLUGGED_ALIGNMENT)
                    + (self.device_mib() << 20)
                    + slots * PLUGGED_ALIGNMENT
            }
        };
        (slots + WINDOW_REGISTERS).next_multiple_of(WINDOW_MIB << 20)
    }
}
