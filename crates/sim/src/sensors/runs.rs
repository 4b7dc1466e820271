//! Single pages in a view: as runs of adjacent ones that are alike.

use memtide_core::policy::{Region, View};
use memtide_core::{TaskId, Vpn};

use crate::engine::Engine;
use crate::os::{Entry, Os, PAGES};

/// Appends all tasks' pages: runs of one size on one node with equal reads. `reads` is `None` for a page that
/// is left out.
pub(super) fn list_pages(
    engine: &mut Engine<'_>,
    view: &mut View,
    reads: impl Fn(&mut Entry) -> Option<u32>,
) {
    for task in (0..engine.os.spaces.len()).map(TaskId::from) {
        if engine.tasks.is_alive(task) {
            list_pages_of(&mut engine.os, task, view, &reads);
        }
    }
}

fn list_pages_of(os: &mut Os, task: TaskId, view: &mut View, reads: impl Fn(&mut Entry) -> Option<u32>) {
    let frames = &os.frames;
    let mut run: Option<Region> = None;
    os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |start, size, entry| {
        let Some(reads) = reads(entry) else { return true };
        let node = frames.node_of(entry.frame());
        let page = Region { task, start, pages: 1, size, node, reads, writes: 0, age: 0 };
        match &mut run {
            Some(run) if continues(run, &page) => run.pages += 1,
            _ => run.replace(page).into_iter().for_each(|done| view.regions.push(done)),
        }
        true
    });
    run.into_iter().for_each(|last| view.regions.push(last));
}

fn continues(run: &Region, page: &Region) -> bool {
    let end = run.start.0 + run.pages * run.size.base_pages();
    (end, run.size, run.node, run.reads) == (page.start.0, page.size, page.node, page.reads)
}
