//! Guest-physical addresses of a layout's memory.

use memtide_core::NodeId;
use memtide_lab_protocol::clock::Range;

use super::nodes::Layout;
use crate::memory::Memory;

/// From this size on, QEMU's q35 machine puts memory beyond the first 2 GiB above 4 GiB.
const SPLIT_FROM: u64 = 0xb000_0000;
const BELOW_SPLIT: u64 = 2 << 30;
const ABOVE_SPLIT: u64 = 4 << 30;

/// Alignment of QEMU's hotplug region.
const PLUGGED_ALIGNMENT: u64 = 1 << 30;

/// Alignment and size granularity of CXL windows, which follow QEMU's CXL registers.
pub(super) const WINDOW_MIB: u64 = 256;
const WINDOW_REGISTERS: u64 = 1 << 20;

impl Layout {
    /// Start address of a node whose memory is contiguous: any kind but plain.
    pub fn start(&self, node: usize) -> u64 {
        let range = self.ranges().into_iter().find(|range| range.node.index() == node);
        range.map_or(0, |range| range.start)
    }

    /// Guest-physical ranges of each node's memory; of hotplug memory, those that it has once plugged in.
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

    /// Start of the first CXL window if other memory ends at `end`: QEMU reserves a GiB per slot.
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
