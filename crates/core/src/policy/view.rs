//! The view: a policy's input in an epoch, filled in the same way by every host.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::plan::Frame;
use super::regions::Regions;
use super::rule::Rule;
use super::sensor::Answers;
use crate::ids::{CacheId, CpuId, NodeId, TaskId, ThreadId};
use crate::units::{PageSize, Time, Vpn};

/// A policy's input in an epoch.
///
/// Nodes and tasks are always present. The rest is present if a sensor was requested and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The time of the observation.
    pub time: Time,
    /// Processor time that the policy's last epoch took, its events and its decision; `None` before the first
    /// one, and on a host that does not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_time: Option<Time>,
    /// Processor time that its actions took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_time: Option<Time>,
    /// Share of the CPUs' time since the last epoch that others than this program took, in 1/100 %; `None` if
    /// the host does not measure it, or the time was too short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_bp: Option<u16>,
    /// The host's answer for each sensor.
    pub answers: Answers,
    /// All nodes of the machine, by id; empty before the first epoch.
    pub nodes: Vec<NodeView>,
    /// The tasks that the policy manages, by id.
    pub tasks: Vec<TaskView>,
    /// Their threads, by task and id ([`Sensor::Threads`](super::Sensor::Threads)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadView>,
    /// Counts of the shared cache levels ([`Sensor::LlcMisses`](super::Sensor::LlcMisses)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc: Option<LlcCounts>,
    /// Their memory by region ([`Sensor::Regions`](super::Sensor::Regions)), or by runs of pages with equal
    /// counts of TLB misses since the last epoch, as reads ([`Sensor::TlbMisses`](super::Sensor::TlbMisses)),
    /// or of pages without counts ([`Sensor::LruPages`](super::Sensor::LruPages)), or single pages with their
    /// samples since the last epoch ([`Sensor::PageSamples`](super::Sensor::PageSamples)).
    #[serde(default, skip_serializing_if = "Regions::is_empty")]
    pub regions: Regions,
    /// Samples of each region since the last epoch, if the host chose their interval
    /// ([`RegionSampling::budget_bp`](super::RegionSampling::budget_bp)); 0 if the regions are those of the
    /// last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_samples: Option<u32>,
    /// Pages that reclaim would take next, oldest first on each node
    /// ([`Sensor::InactivePages`](super::Sensor::InactivePages)): at most as many as each node lacks to its
    /// watermark for promotions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inactive: Vec<InactivePage>,
    /// Frames of the pages in `regions` ([`Sensor::Frames`](super::Sensor::Frames)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<FramesView>,
    /// Utility of the last-level cache to each task, by task
    /// ([`Sensor::CacheUtility`](super::Sensor::CacheUtility)); empty on a machine whose last level is not
    /// shared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_utility: Vec<CacheUtility>,
}

/// Cache colours and banks of page frames (memos section II-C).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesView {
    /// Number of page colours of the last-level cache, each an equal part of it; 1 if it has none.
    pub colours: u16,
    /// Number of banks of each node, by id, through its channels and ranks; 1 if a frame is not in one bank.
    pub banks: Vec<u16>,
    /// Number of equal groups of consecutive banks of each node, by id, whose choice leaves a page all sets
    /// of the last-level cache; 1 if there are none.
    pub bank_groups: Vec<u16>,
    /// The frame of the first page of each region, in the order of the regions.
    pub pages: Vec<Frame>,
}

/// Utility of the last-level cache to a task: the hits that it would have with the cache to itself.
///
/// Counted on sampled sets, and halved after each view, so that an access of the last epoch weighs as much as
/// two of the epoch before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUtility {
    /// The task.
    pub task: TaskId,
    /// The caches that its threads have used, in order.
    pub caches: Vec<CacheId>,
    /// Its quota in each of them ([`Action::CacheQuota`](super::Action::CacheQuota)), if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_ways: Option<NonZeroU16>,
    /// Hits by recency position, the most recently used line's first: as many as the cache has ways. With N
    /// ways it would have the first N.
    pub hits: Vec<u64>,
    /// Accesses that miss however many ways it has.
    pub misses: u64,
}

/// A page of a node's inactive list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InactivePage {
    /// Its task.
    pub task: TaskId,
    /// The page; the first base page of a huge one.
    pub page: Vpn,
    /// Its size.
    pub size: PageSize,
    /// Its node.
    pub node: NodeId,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeView {
    /// The node.
    pub node: NodeId,
    /// Its base pages; 0 if offline.
    pub pages: u64,
    /// Free ones among them, that programs' pages can have without reclaim.
    pub free_pages: u64,
    /// Free ones beside those, on the kernel's per-CPU lists: only a CPU's own allocations take them. 0 where
    /// there are none (Linux, mm/page_alloc.c, `struct per_cpu_pages`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub per_cpu_pages: u64,
    /// Watermarks of its free memory ([`Sensor::Watermarks`](super::Sensor::Watermarks)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermarks: Option<Watermarks>,
    /// Bytes read and written ([`Sensor::NodeTraffic`](super::Sensor::NodeTraffic)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// Mean latency of reads since the last epoch; `None` without reads
    /// ([`Sensor::LoadedLatency`](super::Sensor::LoadedLatency)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_latency: Option<Time>,
}

impl NodeView {
    /// A node of which only size and free memory are known, in base pages.
    pub fn new(node: NodeId, pages: u64, free_pages: u64) -> NodeView {
        NodeView {
            node,
            pages,
            free_pages,
            per_cpu_pages: 0,
            watermarks: None,
            traffic: None,
            loaded_latency: None,
        }
    }
}

fn is_zero(pages: &u64) -> bool {
    *pages == 0
}

/// A node's watermarks, in base pages (Linux, Documentation/mm/physical_memory.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermarks {
    /// Below this, the kernel reclaims in the background.
    pub low_pages: u64,
    /// Above this, it stops.
    pub high_pages: u64,
}

impl Watermarks {
    /// Above this, it stops if pages are to be promoted to the node: as far above `high_pages` as those are
    /// above `low_pages` (Linux's `WMARK_PROMO`, mm/page_alloc.c, `__setup_per_zone_wmarks`).
    pub fn promotion_pages(&self) -> u64 {
        self.high_pages.saturating_add(self.high_pages.saturating_sub(self.low_pages))
    }
}

/// Bytes moved since some time before the first epoch; the difference of two views is the traffic between
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Bytes read, including prefetches.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Accesses to the shared cache levels since some time before the first epoch, as for [`Traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcCounts {
    /// Accesses that missed the private caches.
    pub accesses: u64,
    /// Those among them that missed all shared levels, too.
    pub misses: u64,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// Its program's name.
    pub name: String,
    /// Its user id; `None` if the host has no users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Service level, 1 to 5, 5 the highest; `None` if unset (pms section 4.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Resident base pages.
    pub resident_pages: u64,
    /// Page faults since it started ([`Sensor::PageFaults`](super::Sensor::PageFaults)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    /// Base pages on each node, by id; empty if not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub footprint: Vec<u64>,
    /// Its placement rule; `None` if memtide does not place its pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadView {
    /// Its id.
    pub thread: ThreadId,
    /// Its task.
    pub task: TaskId,
    /// The CPU that it last ran on; `None` if that is not one of the machine's.
    pub cpu: Option<CpuId>,
    /// Bytes read and written ([`Sensor::ThreadTraffic`](super::Sensor::ThreadTraffic)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl View {
    /// A node by id; `None` before the first epoch.
    pub fn node(&self, node: NodeId) -> Option<&NodeView> {
        self.nodes.get(node.index())
    }

    /// A task by id.
    pub fn task(&self, task: TaskId) -> Option<&TaskView> {
        let at = self.tasks.binary_search_by_key(&task, |known| known.task).ok()?;
        self.tasks.get(at)
    }

    /// Checks that it is possible on a machine with this many nodes: ids in range and order, consistent
    /// figures.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, nodes: usize) -> Result<(), String> {
        let all = |at: usize, view: &NodeView| view.node.index() == at && view.free_pages <= view.pages;
        if self.nodes.len() != nodes || !self.nodes.iter().enumerate().all(|(at, view)| all(at, view)) {
            return Err(format!("nodes: {:?} on a machine with {nodes} nodes", self.nodes));
        }
        let sized = |task: &TaskView| task.footprint.is_empty() || task.footprint.len() == nodes;
        if !self.tasks.is_sorted_by(|a, b| a.task < b.task) || !self.tasks.iter().all(sized) {
            return Err(format!("tasks: not in order, or not on {nodes} nodes"));
        }
        if !self.threads.is_sorted_by(|a, b| (a.task, a.thread) < (b.task, b.thread)) {
            return Err("threads: not in order".to_owned());
        }
        if let Some(region) = self.regions.iter().find(|region| region.node.index() >= nodes) {
            return Err(format!("regions: {region:?} on a machine with {nodes} nodes"));
        }
        if let Some(frames) = &self.frames
            && (frames.banks.len() != nodes
                || frames.bank_groups.len() != nodes
                || frames.pages.len() != self.regions.len())
        {
            return Err(format!("frames: not of {nodes} nodes, or not one a region"));
        }
        if !self.cache_utility.is_sorted_by(|a, b| a.task < b.task) {
            return Err("cache utility: not in order".to_owned());
        }
        match self.inactive.iter().find(|page| page.node.index() >= nodes) {
            Some(page) => Err(format!("inactive: {page:?} on a machine with {nodes} nodes")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u8, free_pages: u64) -> NodeView {
        NodeView::new(NodeId(node), 10, free_pages)
    }

    fn task(task: u32, footprint: &[u64]) -> TaskView {
        TaskView {
            task: TaskId(task),
            name: "sort".to_owned(),
            owner: None,
            priority: None,
            resident_pages: 3,
            page_faults: None,
            footprint: footprint.to_vec(),
            rule: None,
        }
    }

    #[test]
    fn watermark_for_promotions_is_as_far_above_high_as_high_is_above_low() {
        let of = |low_pages, high_pages| Watermarks { low_pages, high_pages }.promotion_pages();
        assert_eq!((of(10, 25), of(0, 0), of(7, 7)), (40, 0, 7));
    }

    #[test]
    fn view_of_another_machine_is_refused() {
        let nodes = vec![node(0, 10), node(1, 0)];
        let view = View { nodes, tasks: vec![task(1, &[1, 2]), task(4, &[])], ..View::default() };
        assert_eq!(view.check(2), Ok(()));
        assert_eq!(view.task(TaskId(4)).map(|task| task.resident_pages), Some(3));
        assert!(view.check(3).is_err());
        for wrong in [
            View { nodes: vec![node(1, 0), node(0, 0)], ..view.clone() },
            View { nodes: vec![node(0, 11), node(1, 0)], ..view.clone() },
            View {
                inactive: vec![InactivePage {
                    task: TaskId(1),
                    page: Vpn(1),
                    size: PageSize::Base,
                    node: NodeId(2),
                }],
                ..view.clone()
            },
            View { tasks: vec![task(4, &[]), task(1, &[])], ..view.clone() },
            View { tasks: vec![task(1, &[1, 2, 3])], ..view.clone() },
        ] {
            assert!(wrong.check(2).is_err(), "{wrong:?}");
        }
    }
}
