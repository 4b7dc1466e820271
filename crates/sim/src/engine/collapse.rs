//! Collapses of base pages into huge pages, by the mover's kernel thread.

use memtide_core::policy::{Frame, Move, Outcome, Page, Planned, Refusal};
use memtide_core::{NodeId, PageSize, Vpn};

use super::Engine;
use super::copy::Copy;
use crate::os::{Entry, Owner, PAGES, Stale};
use crate::thread::Cause;

const HUGE_PAGES: u64 = PageSize::Huge.base_pages();

impl Engine<'_> {
    /// The turn of a collapse in the kernel thread's queue: unmaps the base pages, and copies 2 MiB on their
    /// node; accesses wait meanwhile. Copies read the new frames, not those of the base pages.
    pub(super) fn start_collapse(&mut self, planned: Planned, page: Page) {
        let to = self.collapsible(&page).and_then(|node| self.replace(&page, node));
        let (node, to) = match to {
            Ok(to) => to,
            Err(refusal) => return self.mover.complete(self.now, planned, Outcome::Refused(refusal)),
        };
        let shootdowns = self.shoot_down(None, Cause::Migration);
        let Page { task, page, size } = page;
        let copied = Move { task, page, size, from: node, to: node, wish: Frame::ANY };
        let copy = Copy::new(planned, copied, to, to, self.tasks.cpus(task)[0], self.now, true);
        self.copy(copy, self.now + shootdowns + self.os.costs.unmap);
        self.mover.busy = true;
    }

    /// The node of the base pages that are to be collapsed.
    fn collapsible(&mut self, wanted: &Page) -> Result<NodeId, Refusal> {
        let Page { task, page, .. } = *wanted;
        let space = self.os.spaces.get_mut(task.index()).filter(|_| self.tasks.is_alive(task));
        let is_first = page.0.is_multiple_of(HUGE_PAGES) && page.0 < PAGES;
        let space = space.filter(|_| is_first).ok_or(Refusal::Gone)?;
        let (mut node, mut is_busy) = (None, false);
        for page in page.0..page.0 + HUGE_PAGES {
            let found = space.table.find(Vpn(page));
            let (entry, _) = found
                .filter(|(entry, size)| *size == PageSize::Base && entry.has(Entry::PRESENT))
                .ok_or(Refusal::Gone)?;
            let on = self.os.frames.node_of(entry.frame());
            if *node.get_or_insert(on) != on {
                return Err(Refusal::Gone);
            }
            is_busy |= entry.any(Entry::MOVING | Entry::CLAIMED | Entry::COPIED);
        }
        node.filter(|_| !is_busy).ok_or(Refusal::Busy)
    }

    /// Puts a huge page that is being copied in the place of base pages, and frees their frames; returns its
    /// node and frame.
    fn replace(&mut self, wanted: &Page, node: NodeId) -> Result<(NodeId, u32), Refusal> {
        let Page { task, page, size } = *wanted;
        let has_room = self.os.frames.has_room(node, size);
        let to = if has_room { self.os.frames.take(node, Owner { task, page, size }) } else { None };
        let to = to.ok_or(Refusal::NoRoom)?;
        let space = &mut self.os.spaces[task.index()];
        space.has_huge = true;
        let frames = space.table.collapse(page, to);
        frames.into_iter().for_each(|frame| self.os.frames.give(frame));
        self.os.stale.push(Stale { task, page: None });
        Ok((node, to))
    }
}
