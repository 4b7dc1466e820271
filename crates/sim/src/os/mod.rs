//! The simulated operating system's memory management: address spaces, frames, faults, reclaim, the NUMA hint
//! scanner.

mod classes;
mod fault;
mod frames;
mod lru;
mod mark;
mod page_table;
mod reclaim;
mod scan;
mod space;

use memtide_core::machine::{Kernel, Machine};
use memtide_core::policy::{NodeOrder, Page};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};
use memtide_memory::PageKey;

pub(crate) use self::fault::{Faulted, Hinted, Touch};
pub(crate) use self::frames::{Frames, Owner, TASKS};
pub(crate) use self::page_table::{Entry, PAGES, PageTable};
pub(crate) use self::space::Space;
use crate::oracle::PagePlan;

/// Memory management of a machine.
pub(crate) struct Os {
    pub spaces: Vec<Space>,
    pub frames: Frames,
    pub order: NodeOrder,
    pub costs: Costs,
    pub counts: OsCounts,
    /// Translations that cores must drop before they continue.
    pub stale: Vec<Stale>,
    /// Steps of the NUMA hint scanner so far, modulo [`Entry::STEPS`].
    pub scan_step: u64,
    /// Time of the last one.
    pub scan_time: Time,
    /// Nodes whose pages it marks; `None` for all.
    scanned: Option<Vec<bool>>,
    /// Pages that are marked to count their TLB misses; `None` for all.
    counted: Option<Vec<Page>>,
    /// Nodes of pages, instead of the placement's, and their moves.
    pub plan: Option<PagePlan>,
}

/// Stale translations of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub task: TaskId,
    /// One page, or `None` for all.
    pub page: Option<PageKey>,
}

/// Costs of the kernel's work, as times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub fault: Time,
    pub huge_fault: Time,
    pub hint_fault: Time,
    pub marked_miss: Time,
    pub unmap: Time,
    pub shootdown: Time,
    pub remap: Time,
    pub swap: Time,
    pub sample: Time,
    pub access_sample: Time,
    pub walk_entry: Time,
}

impl Costs {
    fn of(kernel: &Kernel) -> Costs {
        Costs {
            fault: Time::from_ns(kernel.fault_ns),
            huge_fault: Time::from_ns(kernel.huge_fault_ns),
            hint_fault: Time::from_ns(kernel.hint_fault_ns),
            marked_miss: Time::from_ns(kernel.marked_miss_ns),
            unmap: Time::from_ns(kernel.unmap_ns),
            shootdown: Time::from_ns(kernel.shootdown_ns),
            remap: Time::from_ns(kernel.remap_ns),
            swap: Time::from_ns(kernel.swap_ns),
            sample: Time::from_ns(kernel.sample_ns),
            access_sample: Time::from_ns(kernel.access_sample_ns),
            walk_entry: Time::from_ns(kernel.walk_entry_ns),
        }
    }
}

/// Counters of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OsCounts {
    pub faults: u64,
    pub huge_faults: u64,
    pub hint_faults: u64,
    /// Faults on marked page table entries, which count TLB misses.
    pub marked_misses: u64,
    /// Base pages written to swap, and read back.
    pub swapped_out_pages: u64,
    pub swapped_in_pages: u64,
    /// Faults that waited for reclaim.
    pub reclaims: u64,
}

impl OsCounts {
    /// Base pages written to swap and read back.
    pub fn swapped_pages(&self) -> u64 {
        self.swapped_out_pages + self.swapped_in_pages
    }
}

impl Os {
    pub fn new(machine: &Machine, plan: Option<PagePlan>) -> Os {
        Os {
            spaces: Vec::new(),
            frames: Frames::new(machine),
            order: NodeOrder::of(machine),
            costs: Costs::of(&machine.kernel),
            counts: OsCounts::default(),
            stale: Vec::new(),
            scan_step: 0,
            scan_time: Time::ZERO,
            scanned: None,
            counted: None,
            plan,
        }
    }

    /// The node of a frame.
    pub fn node_of(&self, frame: u32) -> NodeId {
        self.frames.node_of(frame)
    }

    /// Frees all pages of a task from `start` to `end` (exclusive), including those being moved.
    pub fn free_pages(&mut self, task: TaskId, start: Vpn, end: Vpn) {
        let frames = &mut self.frames;
        let mut freed = false;
        self.spaces[task.index()].table.walk(start, end, |page, size, entry| {
            let whole = page >= start && page.0 + size.base_pages() <= end.0;
            if whole && entry.has(Entry::PRESENT) {
                frames.give(entry.frame());
                freed = true;
            }
            if whole {
                *entry = Entry::default();
            }
            true
        });
        if freed {
            self.stale.push(Stale { task, page: None });
        }
    }
}

/// A page's key in the TLB.
pub(crate) fn key_of(task: TaskId, page: Vpn, size: PageSize) -> PageKey {
    PageKey::new(task.0, page.0 / size.base_pages(), size == PageSize::Huge)
}
