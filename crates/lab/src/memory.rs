//! Where the memory of a guest's nodes is, and how it comes there.

use std::path::{Path, PathBuf};

use memtide_core::NodeId;
use memtide_lab_protocol::clock::Range;

use crate::{LabError, Layout};

/// With this much memory, QEMU's q35 machine puts what is above the first 2 GiB above 4 GiB.
const SPLIT_FROM: u64 = 0xb000_0000;
const BELOW_SPLIT: u64 = 2 << 30;
const ABOVE_SPLIT: u64 = 4 << 30;

/// QEMU puts memory that is plugged in from the next multiple of this on.
const PLUGGED_ALIGNMENT: u64 = 1 << 30;

/// Windows of CXL memory begin at a multiple of this, after QEMU's registers for them, and are as long.
const WINDOW_MIB: u64 = 256;
const WINDOW_REGISTERS: u64 = 1 << 20;

/// How a node's memory comes into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It is there from the start.
    Plain,
    /// The node is there and its memory not, until it is plugged in.
    Absent,
    /// It is a file of the host, which other guests may have, too. Programs map it; the kernel leaves it alone.
    Shared(PathBuf),
    /// It is that of a CXL memory expander, which the guest's own drivers make a node.
    Cxl,
}

impl Memory {
    /// Whether it comes as a device of ACPI.
    fn is_device(&self) -> bool {
        matches!(self, Memory::Absent | Memory::Shared(_))
    }
}

impl Layout {
    /// Gives nodes the memory that is named for them.
    pub(crate) fn set_memory(&mut self, named: &[(String, Memory)]) -> Result<(), LabError> {
        for (name, memory) in named {
            let known: Vec<&str> = self.machine.nodes.iter().map(|node| node.name.as_str()).collect();
            let refused = |what: String| LabError::Node { node: name.clone(), what };
            let Some(number) = known.iter().position(|other| other == name) else {
                return Err(refused(format!("no such node; the machine has {}", known.join(", "))));
            };
            let node = &mut self.nodes[number];
            if number == 0 || !node.vcpus.is_empty() {
                let what =
                    "the kernel or virtual CPUs are in it, so that its memory has to be there from the start";
                return Err(refused(what.to_owned()));
            }
            if node.memory != Memory::Plain {
                return Err(refused("it is named more than once".to_owned()));
            }
            node.memory = memory.clone();
            if *memory == Memory::Cxl && !node.mib.is_multiple_of(WINDOW_MIB) {
                let has = node.mib;
                node.mib = has.next_multiple_of(WINDOW_MIB);
                let note =
                    format!("node '{name}' has {} MiB instead of {has}, a multiple of CXL's", node.mib);
                self.notes.push(note);
            }
        }
        match (self.cxl().next(), self.shared().next()) {
            (Some(cxl), Some((shared, _))) => Err(LabError::Node {
                node: self.nodes[cxl].name.clone(),
                what: format!(
                    "CXL memory cannot be in a guest with shared memory ('{}'): Linux then finds no room for the expander's \
                     registers",
                    self.nodes[shared].name
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Memory that is there from the start, in MiB.
    pub fn mib(&self) -> u64 {
        self.mib_of(|memory| *memory == Memory::Plain)
    }

    /// Memory that comes as a device of ACPI, in MiB.
    pub fn device_mib(&self) -> u64 {
        self.mib_of(Memory::is_device)
    }

    fn mib_of(&self, is_meant: impl Fn(&Memory) -> bool) -> u64 {
        self.nodes.iter().filter(|node| is_meant(&node.memory)).map(|node| node.mib).sum()
    }

    /// Devices of ACPI that memory comes as.
    pub fn slots(&self) -> u64 {
        self.nodes.iter().filter(|node| node.memory.is_device()).count() as u64
    }

    /// Nodes whose memory can be plugged in.
    pub fn absent(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Absent).collect()
    }

    /// Nodes whose memory is shared, and its file.
    pub fn shared(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.nodes.iter().enumerate().filter_map(|(number, node)| match &node.memory {
            Memory::Shared(file) => Some((number, file.as_path())),
            Memory::Plain | Memory::Absent | Memory::Cxl => None,
        })
    }

    /// Nodes whose memory is that of CXL expanders, in the order of their windows.
    pub fn cxl(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].memory == Memory::Cxl)
    }

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
