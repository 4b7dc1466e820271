//! Page frames: free lists, watermarks and LRU lists of every node.

use memtide_core::machine::Machine;
use memtide_core::policy::{Frame, FreeMemory, Move, Watermarks};
use memtide_core::{NodeId, PageSize, TaskId, Vpn};
use memtide_memory::FrameMap;

use super::classes::Classes;

pub(super) const NONE: u32 = u32::MAX;
const HUGE: u32 = PageSize::Huge.base_pages() as u32;

/// Maximum number of tasks that own frames.
pub(crate) const TASKS: usize = 1 << 18;

/// All frames of a machine, numbered through its nodes: 15 bytes each.
#[derive(Debug)]
pub(crate) struct Frames {
    nodes: Vec<NodeFrames>,
    /// Neighbours in the list of a frame: free, active or inactive.
    next: Vec<u32>,
    previous: Vec<u32>,
    owner: Vec<[u8; 7]>,
    map: FrameMap,
}

#[derive(Debug)]
struct NodeFrames {
    first: u32,
    /// Frames from here up to `huge_bottom` were never used.
    fresh: u32,
    huge_bottom: u32,
    end: u32,
    free_base: u32,
    free_huge: u32,
    /// Free frames, in base pages.
    free: u64,
    low: u64,
    high: u64,
    offline: bool,
    isolated: bool,
    active: List,
    inactive: List,
    /// Free frames by class, from the first wish for a frame on.
    classes: Option<Box<Classes>>,
}

/// A list whose head is the most recent page.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u64,
}

const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

/// Owner and state of a frame: `task << 38 | page << 2 | active << 1 | huge`, in 7 bytes, little-endian.
/// Zeros use no host memory until they are written.
fn packed(word: u64) -> [u8; 7] {
    let [bytes @ .., _] = word.to_le_bytes();
    bytes
}

fn word([a, b, c, d, e, f, g]: [u8; 7]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, g, 0])
}

const ACTIVE: u64 = 2;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub task: TaskId,
    pub page: Vpn,
    pub size: PageSize,
}

impl Frames {
    pub fn new(machine: &Machine) -> Frames {
        let mut first = 0;
        let mut nodes = Vec::new();
        for node in &machine.nodes {
            let end = first + node.pages() as u32;
            let share = |bp: u32| node.pages() * u64::from(bp) / 10_000;
            nodes.push(NodeFrames {
                first,
                fresh: first,
                huge_bottom: end,
                end,
                free_base: NONE,
                free_huge: NONE,
                free: node.pages(),
                low: share(machine.kernel.watermark_low_bp),
                high: share(machine.kernel.watermark_high_bp),
                offline: false,
                isolated: node.isolated,
                active: EMPTY,
                inactive: EMPTY,
                classes: None,
            });
            first = end;
        }
        let all = first as usize;
        let map = FrameMap::new(machine);
        Frames { nodes, next: vec![0; all], previous: vec![0; all], owner: vec![[0; 7]; all], map }
    }

    /// Colours and banks of the frames.
    pub fn map(&self) -> &FrameMap {
        &self.map
    }

    /// Whether a page in this frame is where a move would bring it.
    pub fn is_there(&self, frame: u32, wanted: &Move) -> bool {
        let is_satisfied = || wanted.wish.is_any() || self.place(frame).satisfies(&wanted.wish);
        self.node_of(frame) == wanted.to && is_satisfied()
    }

    /// Colour and bank of a frame.
    pub fn place(&self, frame: u32) -> Frame {
        let node = self.node_of(frame);
        let at = frame - self.nodes[node.index()].first;
        self.map.frame(node, at.into(), frame.into())
    }

    pub fn node_of(&self, frame: u32) -> NodeId {
        NodeId::from(self.nodes.iter().position(|n| frame < n.end).expect("a frame beyond all memory"))
    }

    /// Number of used pages of a node.
    pub fn used(&self, node: NodeId) -> u64 {
        let n = &self.nodes[node.index()];
        u64::from(n.end - n.first) - n.free
    }

    /// Base pages of a node, and the free ones among them; `None` if it is offline.
    pub fn capacity(&self, node: NodeId) -> (u64, u64) {
        let n = &self.nodes[node.index()];
        if n.offline { (0, 0) } else { (u64::from(n.end - n.first), n.free) }
    }

    /// A node's watermarks.
    pub fn watermarks(&self, node: NodeId) -> Watermarks {
        let n = &self.nodes[node.index()];
        Watermarks { low_pages: n.low, high_pages: n.high }
    }

    /// Takes a node offline, if none of its pages is in use: otherwise it stays online, as in Linux.
    pub fn unplug(&mut self, node: NodeId) -> bool {
        let n = &mut self.nodes[node.index()];
        n.offline |= n.free == u64::from(n.end - n.first);
        n.offline
    }

    /// Whether only migration brings pages to a node.
    pub fn is_isolated(&self, node: NodeId) -> bool {
        self.nodes[node.index()].isolated
    }

    /// Whether a node is offline.
    pub fn is_offline(&self, node: NodeId) -> bool {
        self.nodes[node.index()].offline
    }

    /// Base pages to free until the node is back at its high watermark.
    pub fn short_of_high(&self, node: NodeId) -> u64 {
        let n = &self.nodes[node.index()];
        n.high.max(1).saturating_sub(n.free)
    }

    /// Base pages to free until a page of this size can be promoted to the node, and its free memory is above
    /// the watermark for promotions.
    pub fn short_of_promotion(&self, node: NodeId, size: PageSize) -> u64 {
        let marks = self.watermarks(node);
        let wanted = marks.promotion_pages().max(marks.high_pages + size.base_pages()) + 1;
        wanted.saturating_sub(self.nodes[node.index()].free)
    }

    /// Takes a free frame for a page and adds it at the head of the inactive list. Ignores watermarks.
    pub fn take(&mut self, node: NodeId, owner: Owner) -> Option<u32> {
        self.take_like(node, owner, &Frame::ANY)
    }

    /// Takes a free frame of the wished colour and bank, or else of the colour, or else any. A huge page,
    /// which has all colours, gets any.
    pub fn take_like(&mut self, node: NodeId, owner: Owner, wish: &Frame) -> Option<u32> {
        if self.nodes[node.index()].offline {
            return None;
        }
        let frame = match owner.size {
            PageSize::Base if wish.is_any() => self.take_base(node.index())?,
            PageSize::Base => self.take_wished(node, wish).or_else(|| self.take_base(node.index()))?,
            PageSize::Huge => self.take_huge(node.index())?,
        };
        self.nodes[node.index()].free -= owner.size.base_pages();
        self.owner[frame as usize] = encode(owner);
        self.push(node.index(), frame, false);
        Some(frame)
    }

    fn take_base(&mut self, node: usize) -> Option<u32> {
        if let Some(frame) = self.pop_free(node) {
            return Some(frame);
        }
        let n = &mut self.nodes[node];
        while n.fresh < n.huge_bottom {
            n.fresh += 1;
            if !n.classes.as_mut().is_some_and(|classes| classes.was_taken(n.fresh - 1)) {
                return Some(n.fresh - 1);
            }
        }
        let frames = self.take_huge(node)?;
        (frames + 1..frames + HUGE).rev().for_each(|frame| self.push_free(node, frame));
        Some(frames)
    }

    /// Takes a free frame that is not fresh.
    fn pop_free(&mut self, node: usize) -> Option<u32> {
        let n = &mut self.nodes[node];
        if let Some(classes) = &mut n.classes {
            return classes.pop_any(&self.next);
        }
        let frame = Some(n.free_base).filter(|&frame| frame != NONE)?;
        n.free_base = self.next[frame as usize];
        Some(frame)
    }

    fn push_free(&mut self, node: usize, frame: u32) {
        let n = &mut self.nodes[node];
        let list = match &mut n.classes {
            Some(classes) => {
                let at = u64::from(frame - n.first);
                classes.list(&self.map.frame(NodeId::from(node), at, frame.into()))
            }
            None => &mut n.free_base,
        };
        self.next[frame as usize] = *list;
        *list = frame;
    }

    /// Takes a free base frame of the wished colour and bank, or else of the colour.
    fn take_wished(&mut self, node: NodeId, wish: &Frame) -> Option<u32> {
        self.sort_free(node);
        let n = &mut self.nodes[node.index()];
        let (first, fresh) = (n.first, n.fresh..n.huge_bottom);
        let classes = n.classes.as_mut()?;
        let place = |frame: u32| self.map.frame(node, (frame - first).into(), frame.into());
        let of_colour = Frame { bank: None, ..*wish };
        classes
            .take(wish, &self.next, fresh.clone(), place)
            .or_else(|| classes.take(&of_colour, &self.next, fresh, place))
    }

    /// Sorts a node's free base frames by class, unless they are.
    fn sort_free(&mut self, node: NodeId) {
        if self.nodes[node.index()].classes.is_some() {
            return;
        }
        let n = &mut self.nodes[node.index()];
        n.classes = Some(Box::new(Classes::new(self.map.colours(), self.map.banks(node), n.fresh)));
        let mut frame = std::mem::replace(&mut n.free_base, NONE);
        while frame != NONE {
            let next = self.next[frame as usize];
            self.push_free(node.index(), frame);
            frame = next;
        }
    }

    fn take_huge(&mut self, node: usize) -> Option<u32> {
        let n = &mut self.nodes[node];
        if n.free_huge != NONE {
            let frame = n.free_huge;
            n.free_huge = self.next[frame as usize];
            return Some(frame);
        }
        let bottom = n.huge_bottom.checked_sub(HUGE).filter(|&bottom| bottom >= n.fresh)?;
        if n.classes.as_ref().is_some_and(|classes| classes.has_taken(bottom..n.huge_bottom)) {
            return None;
        }
        n.huge_bottom = bottom;
        Some(bottom)
    }

    /// Frees a page's frame.
    pub fn give(&mut self, frame: u32) {
        let owner = self.owner(frame);
        let node = self.node_of(frame).index();
        self.unlink(node, frame);
        let n = &mut self.nodes[node];
        n.free += owner.size.base_pages();
        if owner.size == PageSize::Base {
            return self.push_free(node, frame);
        }
        self.next[frame as usize] = n.free_huge;
        n.free_huge = frame;
    }

    /// Makes the frames of a huge page those of base pages, in the same list.
    pub fn split(&mut self, head: u32) {
        let Owner { task, page, .. } = self.owner(head);
        let is_active = word(self.owner[head as usize]) & ACTIVE != 0;
        let node = self.node_of(head).index();
        self.unlink(node, head);
        for (frame, page) in (head..head + HUGE).zip(page.0..) {
            self.owner[frame as usize] = encode(Owner { task, page: Vpn(page), size: PageSize::Base });
            self.push(node, frame, is_active);
        }
    }

    pub fn owner(&self, frame: u32) -> Owner {
        let word = word(self.owner[frame as usize]);
        Owner {
            task: TaskId((word >> 38) as u32),
            page: Vpn((word >> 2) & ((1 << 36) - 1)),
            size: if word & 1 != 0 { PageSize::Huge } else { PageSize::Base },
        }
    }

    /// The page of which a frame in use is a part.
    pub fn page_in(&self, frame: u32) -> Owner {
        self.owner(self.head_of(frame, self.node_of(frame)))
    }

    /// Task, base page and node of a frame in use.
    #[inline]
    pub fn page_of(&self, frame: u32) -> (TaskId, Vpn, NodeId) {
        let node = self.node_of(frame);
        let head = self.head_of(frame, node);
        let owner = self.owner(head);
        (owner.task, Vpn(owner.page.0 + u64::from(frame - head)), node)
    }

    /// The first frame of the page of which a node's frame is a part: huge ones are aligned to the node's
    /// end.
    fn head_of(&self, frame: u32, node: NodeId) -> u32 {
        let n = &self.nodes[node.index()];
        if frame < n.huge_bottom {
            return frame;
        }
        let head = n.end - (n.end - frame).div_ceil(HUGE) * HUGE;
        if self.owner(head).size == PageSize::Huge { head } else { frame }
    }

    /// The next page for reclaim to check: the oldest inactive one. First, if active pages outnumber inactive
    /// ones, the oldest active one becomes inactive (Linux's balance of the two lists for anonymous memory).
    pub fn oldest(&mut self, node: NodeId) -> Option<u32> {
        self.deactivate_oldest(node);
        let tail = self.nodes[node.index()].inactive.tail;
        (tail != NONE).then_some(tail)
    }

    /// Makes the oldest active page inactive if active pages outnumber inactive ones; returns its frame.
    pub fn deactivate_oldest(&mut self, node: NodeId) -> Option<u32> {
        let n = &self.nodes[node.index()];
        if n.active.len <= n.inactive.len {
            return None;
        }
        let frame = n.active.tail;
        self.deactivate(frame);
        Some(frame)
    }

    /// Number of pages in a node's inactive list.
    pub fn inactive(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].inactive.len
    }

    /// The oldest page of a node's inactive list.
    pub fn inactive_tail(&self, node: NodeId) -> Option<u32> {
        Some(self.nodes[node.index()].inactive.tail).filter(|&tail| tail != NONE)
    }

    /// The next more recent page of a list.
    pub fn newer(&self, frame: u32) -> Option<u32> {
        Some(self.previous[frame as usize]).filter(|&newer| newer != NONE)
    }

    /// Moves a page to the head of the inactive list.
    pub fn deactivate(&mut self, frame: u32) {
        let node = self.node_of(frame).index();
        self.unlink(node, frame);
        self.push(node, frame, false);
    }

    /// Moves an accessed page to the head of the active list.
    pub fn activate(&mut self, frame: u32) {
        let node = self.node_of(frame).index();
        self.unlink(node, frame);
        self.push(node, frame, true);
    }

    fn push(&mut self, node: usize, frame: u32, active: bool) {
        let at = frame as usize;
        self.owner[at] = packed(word(self.owner[at]) & !ACTIVE | u64::from(active) << 1);
        let n = &mut self.nodes[node];
        let list = if active { &mut n.active } else { &mut n.inactive };
        self.next[at] = list.head;
        self.previous[at] = NONE;
        match list.head {
            NONE => list.tail = frame,
            head => self.previous[head as usize] = frame,
        }
        list.head = frame;
        list.len += 1;
    }

    fn unlink(&mut self, node: usize, frame: u32) {
        let at = frame as usize;
        let n = &mut self.nodes[node];
        let list = if word(self.owner[at]) & ACTIVE != 0 { &mut n.active } else { &mut n.inactive };
        let (previous, next) = (self.previous[at], self.next[at]);
        match previous {
            NONE => list.head = next,
            previous => self.next[previous as usize] = next,
        }
        match next {
            NONE => list.tail = previous,
            next => self.previous[next as usize] = previous,
        }
        list.len -= 1;
    }
}

impl FreeMemory for Frames {
    /// For a first touch: isolated nodes have no memory for it.
    fn fits(&self, node: NodeId, size: PageSize) -> bool {
        !self.nodes[node.index()].isolated && self.has_room(node, size)
    }
}

impl Frames {
    /// Whether a page of this size can move to the node.
    pub fn has_room(&self, node: NodeId, size: PageSize) -> bool {
        let n = &self.nodes[node.index()];
        if n.offline {
            return false;
        }
        let whole = match size {
            PageSize::Base => true,
            PageSize::Huge => n.free_huge != NONE || self.has_fresh_huge(node),
        };
        whole && n.free >= size.base_pages() + n.low
    }
}

impl Frames {
    fn has_fresh_huge(&self, node: NodeId) -> bool {
        let n = &self.nodes[node.index()];
        let taken = |classes: &Classes| classes.has_taken(n.huge_bottom - HUGE..n.huge_bottom);
        n.huge_bottom - n.fresh >= HUGE && !n.classes.as_deref().is_some_and(taken)
    }
}

fn encode(owner: Owner) -> [u8; 7] {
    let huge = u64::from(owner.size == PageSize::Huge);
    packed(u64::from(owner.task.0) << 38 | owner.page.0 << 2 | huge)
}

#[cfg(test)]
impl Frames {
    /// Checks that every frame is in one list, and that the counts match the lists.
    pub fn check(&self) {
        for node in &self.nodes {
            let chain = |first: u32| {
                let next = |&frame: &u32| Some(self.next[frame as usize]).filter(|&next| next != NONE);
                std::iter::successors(Some(first).filter(|&first| first != NONE), next)
            };
            let classes = node.classes.as_deref();
            let sorted = classes.map_or(0, |classes| classes.heads().map(|head| chain(head).count()).sum());
            let free = sorted + chain(node.free_base).count() + HUGE as usize * chain(node.free_huge).count();
            let fresh = node.huge_bottom - node.fresh - classes.map_or(0, Classes::taken);
            assert_eq!(node.free, free as u64 + u64::from(fresh), "free frames");
            let mut used = 0;
            for (list, active) in [(node.active, true), (node.inactive, false)] {
                assert_eq!(chain(list.head).count() as u64, list.len, "length of a list");
                assert_eq!(chain(list.head).last().unwrap_or(NONE), list.tail, "end of a list");
                assert!(
                    chain(list.head).all(|frame| (word(self.owner[frame as usize]) & ACTIVE != 0) == active)
                );
                used += chain(list.head).map(|frame| self.owner(frame).size.base_pages()).sum::<u64>();
            }
            assert_eq!(used + node.free, u64::from(node.end - node.first), "used and free frames");
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::machine::bundled;
    use proptest::prelude::*;

    use super::*;

    const NVM: NodeId = NodeId(1);

    /// NVM of 8 MiB with 4 colours and 8 banks: 64 frames of each class.
    fn frames() -> Frames {
        let mut machine = bundled::machine("memos").unwrap().unwrap();
        machine.scale = 4;
        let mut machine = machine.scaled();
        machine.nodes.iter_mut().for_each(|node| node.capacity_mib = 8);
        Frames::new(&machine)
    }

    fn owner(page: u64, size: PageSize) -> Owner {
        Owner { task: TaskId(1), page: Vpn(page), size }
    }

    fn wish(colour: Option<u16>, bank: Option<u16>) -> Frame {
        Frame { colour, bank }
    }

    #[test]
    fn frames_of_a_split_page_are_freed_one_by_one() {
        let mut frames = frames();
        let head = frames.take(NVM, owner(512, PageSize::Huge)).expect("a free huge frame");
        frames.activate(head);
        let free = frames.capacity(NVM).1;
        frames.split(head);
        frames.check();
        assert_eq!(frames.page_of(head + 7), (TaskId(1), Vpn(519), NVM));
        assert_eq!(frames.owner(head + 7), owner(519, PageSize::Base));
        frames.give(head);
        frames.give(head + 7);
        frames.check();
        assert_eq!(frames.capacity(NVM).1, free + 2);
        assert_eq!(frames.page_of(head + 8), (TaskId(1), Vpn(520), NVM), "the first frame is free");
    }

    #[test]
    fn wished_frames_are_of_the_class_until_it_is_used_up() {
        let mut frames = frames();
        let (exact, mut taken) = (wish(Some(2), Some(5)), Vec::new());
        for page in 0..64 {
            let frame = frames.take_like(NVM, owner(page, PageSize::Base), &exact).expect("a free frame");
            assert_eq!(frames.place(frame), exact);
            taken.push(frame);
        }
        let other = frames.take_like(NVM, owner(64, PageSize::Base), &exact).expect("a free frame");
        let place = frames.place(other);
        assert!(place.colour == Some(2) && place.bank != Some(5), "{place:?}: of the colour at least");
        frames.give(taken.swap_remove(7));
        let again = frames.take_like(NVM, owner(65, PageSize::Base), &exact).expect("a free frame");
        assert_eq!(frames.place(again), exact);
        frames.check();
    }

    #[test]
    fn wishes_for_a_part_take_its_classes_in_turn() {
        let mut frames = frames();
        let bank = |frames: &mut Frames, page| {
            let frame = frames.take_like(NVM, owner(page, PageSize::Base), &wish(Some(1), None));
            let place = frames.place(frame.expect("a free frame"));
            assert_eq!(place.colour, Some(1));
            place.bank.unwrap()
        };
        let banks: Vec<u16> = (0..10).map(|page| bank(&mut frames, page)).collect();
        assert_eq!(banks, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
        let unknown = frames.take_like(NVM, owner(10, PageSize::Base), &wish(Some(99), Some(99)));
        assert!(unknown.is_some(), "a colour that no frame has: any will do");
    }

    proptest! {
        #[test]
        fn frames_are_in_one_list_whatever_is_taken(
            steps in proptest::collection::vec((0u8..4, 0u16..5, 0u16..9, 0usize..64), 1..200),
        ) {
            let mut frames = frames();
            let mut used: Vec<u32> = Vec::new();
            for (page, (what, colour, bank, which)) in (0u64..).zip(steps) {
                let taken = match what {
                    0 if !used.is_empty() => {
                        frames.give(used.swap_remove(which % used.len()));
                        None
                    }
                    1 => frames.take(NVM, owner(page * 512, PageSize::Huge)),
                    2 => frames.take(NVM, owner(page, PageSize::Base)),
                    _ => {
                        let part = |n: u16, none: u16| (n != none).then_some(n);
                        let wish = wish(part(colour, 4), part(bank, 8));
                        frames.take_like(NVM, owner(page, PageSize::Base), &wish)
                    }
                };
                used.extend(taken);
                frames.check();
            }
        }
    }
}
