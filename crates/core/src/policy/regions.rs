//! Regions: runs of adjacent pages with one access count, as columns.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, TaskId};
use crate::units::{PageSize, Vpn};

/// Number of addressable base pages, more than any machine has.
const PAGES_MAX: u64 = 1 << 52;

/// A run of adjacent pages with similar access; a page is a region of length one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its task.
    pub task: TaskId,
    /// First base page.
    pub start: Vpn,
    /// Length in pages of `size`, at least 1.
    pub pages: u64,
    /// Size of its pages.
    pub size: PageSize,
    /// The node of its pages.
    pub node: NodeId,
    /// Samples of the aggregation interval that were reads.
    pub reads: u32,
    /// Samples of the aggregation interval that were writes.
    pub writes: u32,
    /// Aggregation intervals since the region last changed.
    pub age: u32,
}

impl Region {
    /// The base page after its last one; `None` if not addressable.
    fn end(&self) -> Option<u64> {
        let end = self.pages.checked_mul(self.size.base_pages())?.checked_add(self.start.0)?;
        (end <= PAGES_MAX).then_some(end)
    }
}

/// Regions as columns, sorted by task and start, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Columns")]
pub struct Regions(Columns);

/// One entry per region in each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    tasks: Vec<TaskId>,
    starts: Vec<Vpn>,
    pages: Vec<u64>,
    sizes: Vec<PageSize>,
    nodes: Vec<NodeId>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    ages: Vec<u32>,
}

impl Columns {
    fn is_even(&self) -> bool {
        let lengths = [
            self.tasks.len(),
            self.pages.len(),
            self.sizes.len(),
            self.nodes.len(),
            self.reads.len(),
            self.writes.len(),
            self.ages.len(),
        ];
        lengths.iter().all(|length| *length == self.starts.len())
    }
}

impl TryFrom<Columns> for Regions {
    type Error = String;

    fn try_from(columns: Columns) -> Result<Regions, String> {
        if !columns.is_even() {
            return Err("columns of regions differ in length".to_owned());
        }
        let regions = Regions(columns);
        let mut last: Option<Region> = None;
        for region in regions.iter() {
            if region.pages == 0
                || region.end().is_none()
                || last.is_some_and(|last| !follows(&last, &region))
            {
                return Err(format!("{region:?} is empty, too large or out of order"));
            }
            last = Some(region);
        }
        Ok(regions)
    }
}

/// Whether a region follows another one without overlap.
fn follows(last: &Region, region: &Region) -> bool {
    let end = last.start.0 + last.pages * last.size.base_pages();
    last.task < region.task || (last.task == region.task && end <= region.start.0)
}

impl Regions {
    /// Number of regions.
    pub fn len(&self) -> usize {
        self.0.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.starts.is_empty()
    }

    /// Removes all, keeping the memory.
    pub fn clear(&mut self) {
        let Columns { tasks, starts, pages, sizes, nodes, reads, writes, ages } = &mut self.0;
        tasks.clear();
        starts.clear();
        pages.clear();
        sizes.clear();
        nodes.clear();
        reads.clear();
        writes.clear();
        ages.clear();
    }

    /// Appends a region.
    ///
    /// # Panics
    /// If it does not follow the last one.
    pub fn push(&mut self, region: Region) {
        if let Some(last) = self.len().checked_sub(1).map(|at| self.get(at)) {
            assert!(follows(&last, &region), "regions out of order: {last:?}, {region:?}");
        }
        self.0.tasks.push(region.task);
        self.0.starts.push(region.start);
        self.0.pages.push(region.pages);
        self.0.sizes.push(region.size);
        self.0.nodes.push(region.node);
        self.0.reads.push(region.reads);
        self.0.writes.push(region.writes);
        self.0.ages.push(region.age);
    }

    /// The regions in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Region> + '_ {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The regions of a task, in order.
    pub fn of_task(&self, task: TaskId) -> impl Iterator<Item = Region> + '_ {
        let from = self.0.tasks.partition_point(|&other| other < task);
        let to = self.0.tasks.partition_point(|&other| other <= task);
        (from..to).map(|at| self.get(at))
    }

    /// The region of a base page of a task.
    pub fn at(&self, task: TaskId, page: Vpn) -> Option<Region> {
        self.of_task(task).find(|region| {
            (region.start.0..region.start.0 + region.pages * region.size.base_pages()).contains(&page.0)
        })
    }

    fn get(&self, at: usize) -> Region {
        Region {
            task: self.0.tasks[at],
            start: self.0.starts[at],
            pages: self.0.pages[at],
            size: self.0.sizes[at],
            node: self.0.nodes[at],
            reads: self.0.reads[at],
            writes: self.0.writes[at],
            age: self.0.ages[at],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(task: u32, start: u64) -> Region {
        Region {
            task: TaskId(task),
            start: Vpn(start),
            pages: 2,
            size: PageSize::Huge,
            node: NodeId(0),
            reads: 1,
            writes: 2,
            age: 3,
        }
    }

    fn three() -> Regions {
        let mut regions = Regions::default();
        [region(0, 0), region(0, 1024), region(2, 0)].into_iter().for_each(|region| regions.push(region));
        regions
    }

    #[test]
    fn regions_are_found_by_task_and_page() {
        let regions = three();
        assert_eq!(regions.iter().collect::<Vec<_>>(), [region(0, 0), region(0, 1024), region(2, 0)]);
        assert_eq!(regions.of_task(TaskId(0)).count(), 2);
        assert_eq!(regions.of_task(TaskId(1)).count(), 0);
        assert_eq!(regions.at(TaskId(0), Vpn(1500)), Some(region(0, 1024)));
        assert_eq!(regions.at(TaskId(2), Vpn(1024)), None);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn overlapping_regions_panic() {
        three().push(region(2, 1023));
    }

    #[test]
    fn regions_round_trip_as_text_and_invalid_text_is_refused() {
        let text = serde_json::to_string(&three()).expect("numbers");
        assert_eq!(serde_json::from_str::<Regions>(&text).expect("its own text"), three());
        for (from, to) in [
            ("\"starts\":[0,1024,0]", "\"starts\":[0,1023,0]"),
            ("\"pages\":[2,2,2]", "\"pages\":[2,0,2]"),
            ("\"pages\":[2,2,2]", "\"pages\":[2,2,9007199254740992]"),
            ("\"ages\":[3,3,3]", "\"ages\":[3,3]"),
        ] {
            assert!(text.contains(from), "{text}");
            assert!(serde_json::from_str::<Regions>(&text.replace(from, to)).is_err(), "{to}");
        }
    }
}
