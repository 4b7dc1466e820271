//! The moves of a pass: between the channels, and to frames that do not interfere.

use std::ops::Range;

use memtide_core::policy::{Frame, FramesView, Move, Page, Plan, Reason, View};
use memtide_core::{NodeId, TaskId};

use super::Memos;
use super::pages::{Label, Seen, Use};
use crate::migration::spread::{Part, Spread, banks_of};

/// A plan within a number of moves and the nodes' free memory.
pub(super) struct Draft<'d> {
    memos: &'d Memos,
    pages: &'d [Seen],
    labels: &'d [Label],
    spread: Spread,
    frames: &'d FramesView,
    /// Free base pages by node.
    free: Vec<u64>,
    /// Tasks with pages, in order: their banks are divided among them.
    tasks: Vec<TaskId>,
    /// Pages that move.
    moves: Vec<bool>,
    left: usize,
    plan: &'d mut Plan,
}

impl<'d> Draft<'d> {
    pub fn new(
        memos: &'d Memos,
        view: &View,
        pages: &'d [Seen],
        labels: &'d [Label],
        mut spread: Spread,
        frames: &'d FramesView,
        plan: &'d mut Plan,
    ) -> Draft<'d> {
        let hot = pages.iter().zip(labels).filter(|(_, label)| label.is_hot);
        hot.for_each(|(seen, _)| spread.enter(seen.node, &seen.frame));
        let mut tasks: Vec<TaskId> = pages.iter().map(|seen| seen.page.task).collect();
        tasks.dedup();
        Draft {
            memos,
            pages,
            labels,
            spread,
            frames,
            free: view.nodes.iter().map(|node| node.free_pages).collect(),
            tasks,
            moves: vec![false; pages.len()],
            left: memos.pages,
            plan,
        }
    }

    /// Moves pages to the other channel while it has free memory; whether any moves.
    pub fn cross_all(&mut self, pages: &[usize], reason: Reason) -> bool {
        pages.iter().fold(false, |any, &at| self.cross(at, reason) | any)
    }

    /// Moves pages to DRAM, those of the write domain first, by their writes. Where it is full, pages that
    /// are not hot make room, those accessed least first; for the write domain, hot ones of the read domain,
    /// too.
    pub fn promote(&mut self, pages: &[usize]) -> bool {
        let mut wanted = pages.to_vec();
        let order = |at: usize| (self.labels[at].is_written, self.pages[at].written, self.pages[at].accessed);
        wanted.sort_by_key(|&at| std::cmp::Reverse(order(at)));
        let gives_way = |at: &usize| {
            let label = &self.labels[*at];
            !(label.is_hot && label.is_written) && self.memos.groups.is_fast(self.pages[*at].node)
        };
        let mut others: Vec<usize> = (0..self.pages.len()).filter(gives_way).collect();
        others.sort_by_key(|&at| (self.labels[at].is_hot, self.pages[at].accessed));
        let mut others = others.into_iter().peekable();
        let mut any = false;
        for at in wanted {
            if self.left == 0 {
                break;
            }
            while !self.cross(at, Reason::Hot) {
                let yields = |down: &usize| self.labels[at].is_written || !self.labels[*down].is_hot;
                // The page that makes room is a move, too.
                let Some(down) = others.next_if(yields).filter(|_| self.left > 1) else { return any };
                self.cross(down, Reason::MakeRoom);
            }
            any = true;
        }
        any
    }

    /// Moves pages that are in a wrong part of the cache, in another program's bank, or in a crowded bank.
    pub fn sort_frames(&mut self) {
        for at in 0..self.pages.len() {
            let (seen, label) = (&self.pages[at], &self.labels[at]);
            let is_used = label.is_hot || label.of == Use::Streaming;
            if self.left == 0 || self.moves[at] || !is_used || seen.frame.is_any() {
                continue;
            }
            let part = self.part(seen, label, seen.node);
            let is_crowded =
                || self.memos.uses_banks && self.spread.is_crowded(seen.node, &seen.frame, &part);
            if !part.has(&seen.frame) || is_crowded() {
                self.push(at, seen.node, Reason::Interference);
            }
        }
    }

    fn cross(&mut self, at: usize, reason: Reason) -> bool {
        let Seen { page: Page { size, .. }, node: from, .. } = self.pages[at];
        let needed = size.base_pages();
        let fits = |&node: &NodeId| {
            self.memos.groups.is_fast(node) != self.memos.groups.is_fast(from)
                && self.free.get(node.index()).is_some_and(|free| *free >= needed)
        };
        if self.left == 0 || self.moves[at] {
            return false;
        }
        let Some(to) = self.memos.groups.order().from_node(from).iter().copied().find(fits) else {
            return false;
        };
        self.free[to.index()] -= needed;
        if let Some(free) = self.free.get_mut(from.index()) {
            *free = free.saturating_add(needed);
        }
        self.push(at, to, reason);
        true
    }

    fn push(&mut self, at: usize, to: NodeId, reason: Reason) {
        let (seen, label) = (&self.pages[at], &self.labels[at]);
        let part = self.part(seen, label, to);
        if label.is_hot {
            self.spread.leave(seen.node, &seen.frame);
        }
        let wish = self.wish(to, &part);
        if label.is_hot {
            self.spread.enter(to, &wish);
        }
        let Page { task, page, size } = seen.page;
        self.plan.push_move(Move { task, page, size, from: seen.node, to, wish }, reason);
        self.moves[at] = true;
        self.left -= 1;
    }

    /// The coldest frame of a part; only what the policy manages.
    fn wish(&self, node: NodeId, part: &Part) -> Frame {
        let coldest = self.spread.coldest(node, part);
        Frame {
            colour: coldest.colour.filter(|_| self.memos.state.quotas.divides()),
            bank: coldest.bank.filter(|_| self.memos.uses_banks),
        }
    }

    /// The frames of a node for a page: colours for pages like it, and its program's banks.
    fn part(&self, seen: &Seen, label: &Label, node: NodeId) -> Part {
        let quotas = &self.memos.state.quotas;
        let colours = match label.of {
            _ if !quotas.divides() => 0..u16::MAX,
            Use::Hot => quotas.hot(self.memos.groups.is_fast(node)),
            Use::Streaming => quotas.streaming(),
            Use::Rare | Use::Idle => quotas.rare(),
        };
        Part { colours, banks: self.banks_of(seen.page.task, node) }
    }

    fn banks_of(&self, task: TaskId, node: NodeId) -> Range<u16> {
        let parts = if self.memos.divides_banks { self.tasks.len() } else { 1 };
        banks_of(self.frames, node, self.tasks.binary_search(&task).unwrap_or(0) % parts, parts)
    }
}
