//! Tasks, which every view contains.

use memtide_core::policy::{TaskView, View};
use memtide_core::{TaskId, Vpn};

use crate::engine::Engine;
use crate::os::{Entry, PAGES};

/// Fills in the tasks that have started and not ended.
pub(super) fn fill(engine: &mut Engine<'_>, view: &mut View) {
    for at in 0..engine.os.spaces.len() {
        let task = TaskId::from(at);
        if engine.tasks.is_alive(task) {
            let footprint = footprint(engine, task);
            view.tasks.push(TaskView {
                task,
                name: engine.tasks.name(task).to_owned(),
                owner: None,
                priority: None,
                page_faults: None,
                resident_pages: footprint.iter().sum(),
                footprint,
                rule: Some(engine.os.spaces[at].rule.clone()),
            });
        }
    }
}

/// Base pages of a task on each node.
fn footprint(engine: &mut Engine<'_>, task: TaskId) -> Vec<u64> {
    let mut pages = vec![0; engine.setup.machine.nodes.len()];
    let frames = &engine.os.frames;
    engine.os.spaces[task.index()].table.walk(Vpn(0), Vpn(PAGES), |_, size, entry| {
        if entry.has(Entry::PRESENT) {
            pages[frames.node_of(entry.frame()).index()] += size.base_pages();
        }
        true
    });
    pages
}
