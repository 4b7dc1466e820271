//! A node's free base frames by class: the pairs of a cache colour and a bank.

use std::collections::BTreeSet;
use std::ops::Range;

use memtide_core::policy::Frame;

use super::frames::NONE;

/// Lists of free frames, one a class, and fresh frames that were taken out of turn.
#[derive(Debug)]
pub(super) struct Classes {
    banks: u16,
    /// Heads of the lists: by colour, then bank.
    lists: Vec<u32>,
    /// For each class, fresh frames below this are not of it, or taken.
    searched: Vec<u32>,
    /// Taken frames among those that the node counts as fresh.
    taken: BTreeSet<u32>,
    /// The class that is asked first for a page without a wish, or with a part of one.
    turn: usize,
}

impl Classes {
    /// No free frames but fresh ones, from `fresh` on.
    pub fn new(colours: u16, banks: u16, fresh: u32) -> Classes {
        let classes = usize::from(colours) * usize::from(banks);
        let (lists, searched) = (vec![NONE; classes], vec![fresh; classes]);
        Classes { banks, lists, searched, taken: BTreeSet::new(), turn: 0 }
    }

    fn class(&self, frame: &Frame) -> usize {
        let [colour, bank] = [frame.colour, frame.bank].map(|part| usize::from(part.unwrap_or(0)));
        colour * usize::from(self.banks) + bank
    }

    /// Whether frames of a class satisfy a wish; a part that the machine does not have satisfies none.
    fn satisfies(&self, class: usize, wish: &Frame) -> bool {
        let (colour, bank) = (class / usize::from(self.banks), class % usize::from(self.banks));
        wish.colour.is_none_or(|wished| usize::from(wished) == colour)
            && wish.bank.is_none_or(|wished| usize::from(wished) == bank)
    }

    /// The head of the list of a frame's class.
    pub fn list(&mut self, frame: &Frame) -> &mut u32 {
        let class = self.class(frame);
        &mut self.lists[class]
    }

    /// Takes a listed frame, of each class in turn.
    pub fn pop_any(&mut self, next: &[u32]) -> Option<u32> {
        let classes = self.lists.len();
        let class =
            (0..classes).map(|n| (self.turn + n) % classes).find(|&class| self.lists[class] != NONE)?;
        self.turn = (class + 1) % classes;
        self.pop(class, next)
    }

    fn pop(&mut self, class: usize, next: &[u32]) -> Option<u32> {
        let frame = Some(self.lists[class]).filter(|&frame| frame != NONE)?;
        self.lists[class] = next[frame as usize];
        Some(frame)
    }

    /// Takes a listed or fresh frame that satisfies a wish, of each such class in turn.
    pub fn take(
        &mut self,
        wish: &Frame,
        next: &[u32],
        fresh: Range<u32>,
        place: impl Fn(u32) -> Frame,
    ) -> Option<u32> {
        let (classes, turn) = (self.lists.len(), self.turn);
        for class in (0..classes).map(|n| (turn + n) % classes) {
            if !self.satisfies(class, wish) {
                continue;
            }
            let frame = self.pop(class, next).or_else(|| self.take_fresh(class, fresh.clone(), &place));
            if frame.is_some() {
                self.turn = (class + 1) % classes;
                return frame;
            }
        }
        None
    }

    fn take_fresh(&mut self, class: usize, fresh: Range<u32>, place: impl Fn(u32) -> Frame) -> Option<u32> {
        let from = self.searched[class].max(fresh.start);
        let is_free = |frame: &u32| self.class(&place(*frame)) == class && !self.taken.contains(frame);
        let found = (from..fresh.end).find(is_free);
        self.searched[class] = found.map_or(fresh.end, |frame| frame + 1).max(from);
        self.taken.extend(found);
        found
    }

    /// Whether a frame that is no longer fresh was taken before.
    pub fn was_taken(&mut self, frame: u32) -> bool {
        self.taken.remove(&frame)
    }

    /// Whether any of these fresh frames was taken.
    pub fn has_taken(&self, frames: Range<u32>) -> bool {
        self.taken.range(frames).next().is_some()
    }
}

#[cfg(test)]
impl Classes {
    pub fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        self.lists.iter().copied()
    }

    /// Number of taken frames that the node counts as fresh.
    pub fn taken(&self) -> u32 {
        self.taken.len() as u32
    }
}
