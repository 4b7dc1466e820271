//! Tasks, which every view contains.

use memtide_core::policy::{TaskView, View};

use super::{Watched, task};

/// Fills in the watched processes. Their pages by node are those of their regions, if regions are observed.
pub(super) fn fill(watched: &Watched, view: &mut View) {
    let nodes = view.nodes.len();
    let regions = &view.regions;
    let tasks = watched.processes.iter().map(|process| {
        let id = task(process.pid);
        let mut footprint = Vec::new();
        for region in regions.of_task(id) {
            footprint.resize(nodes, 0);
            footprint[region.node.index()] += region.pages * region.size.base_pages();
        }
        TaskView {
            task: id,
            name: process.name.clone(),
            owner: Some(process.uid),
            priority: None,
            page_faults: None,
            resident_pages: process.resident_pages,
            footprint,
            rule: None,
        }
    });
    view.tasks = tasks.collect();
}
