//! The front end of a core: dispatches a thread's accesses in program order.

use memtide_core::{Access, LINE_BYTES, PAGE_BYTES, PageSize, Then, Time, VirtAddr};
use memtide_memory::{PageKey, Translation, Uncore, Walk};

use super::Core;
use super::window::End;
use crate::os::{Entry, PAGES, PageTable, Space};
use crate::thread::{Thread, ThreadCounts};

/// Why a core stopped dispatching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits for memory.
    Blocked,
    /// It is ahead of the other actors by the limit.
    Ahead,
    /// The thread's batch is used up.
    UsedUp,
    /// The thread's next access has no translation.
    Fault(Trap),
}

/// Why a thread enters the operating system, once all its earlier accesses have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// Its next access has no translation.
    Fault {
        /// The address.
        address: VirtAddr,
        /// Whether it is a store.
        write: bool,
    },
    /// An event of its program.
    Then(Then),
    /// Its time slice is over.
    Yield,
}

/// The physical line of an address, and the duration of the translation, which starts when the address is
/// known but not before `from`.
pub(super) struct Translated {
    pub line: u64,
    pub from: Time,
    pub takes: Time,
}

/// The bytes of an access within one line.
struct Piece {
    address: VirtAddr,
    bytes: u64,
    /// Bytes of the access up to the end of this piece.
    done_bytes: u16,
    last: bool,
}

impl Core {
    /// Dispatches accesses of `thread` until something stops it or its clock passes `limit`.
    pub fn take_in(
        &mut self,
        thread: &mut Thread,
        space: &mut Space,
        uncore: &mut Uncore,
        limit: Time,
    ) -> Stop {
        loop {
            let Some(access) = thread.next_access() else { return Stop::UsedUp };
            if !thread.dispatched {
                thread.dispatched = true;
                warm_ahead(thread, space, access.address);
                self.instructions += u64::from(access.instructions);
                self.stores += u64::from(access.write);
                thread.counts.instructions += u64::from(access.instructions);
                thread.spent.user += self.clock.run(access.instructions.into());
            }
            let Some(begin) = self.window.dispatch(self.instructions, &self.clock) else {
                return Stop::Blocked;
            };
            let Some(begin) = self.window.place(begin) else { return Stop::Blocked };
            let begin = match access.write {
                true => self.window.dispatch_store(self.stores, begin, |_| Time::ZERO),
                false => Some(begin),
            };
            let Some(begin) = begin else { return Stop::Blocked };
            thread.spent.stall += self.clock.wait_until(begin);
            if self.clock.now() > limit {
                return Stop::Ahead;
            }
            let piece = piece(&access, thread.done_bytes);
            let Some(place) = self.translate(thread, space, piece.address, access.write) else {
                return Stop::Fault(Trap::Fault { address: piece.address, write: access.write });
            };
            self.execute(&access, &piece, place, space, uncore, &mut thread.counts);
            thread.done_bytes = piece.done_bytes;
            if piece.last {
                thread.done_bytes = 0;
                thread.dispatched = false;
                thread.cursor += 1;
                thread.counts.accesses += 1;
            }
        }
    }

    /// Runs instructions of the thread without memory accesses.
    pub fn work(&mut self, thread: &mut Thread, instructions: u64) {
        self.instructions += instructions;
        thread.counts.instructions += instructions;
        thread.spent.user += self.clock.run_any(instructions);
    }

    /// Executes one line's part of an access.
    #[inline]
    fn execute(
        &mut self,
        access: &Access,
        piece: &Piece,
        place: Translated,
        space: &mut Space,
        uncore: &mut Uncore,
        counts: &mut ThreadCounts,
    ) {
        if access.non_temporal {
            return self.store_past(access, piece, place, counts);
        }
        let Translated { line, from, takes } = place;
        let producer = self.window.producer(access.producer);
        let overwritten = access.write && self.write_stream.see(piece.address, piece.bytes);
        let end = match self.private.access(line, access.write, &mut self.spilled) {
            Some(latency) => self.window.hit(line, from, takes + latency, producer),
            None => {
                if !self.combining.is_empty() && self.combining.take(line).is_some() {
                    uncore.write_past(self.cpu, line, from + takes, None);
                }
                if overwritten {
                    End::at(uncore.accepts(self.cpu, line))
                } else {
                    uncore.warm(self.cpu, line);
                    self.follow_to_next_page(line, piece.address, space);
                    counts.read_lines += 1;
                    self.window.miss(line, from, takes, producer)
                }
            }
        };
        if !self.spilled.is_empty() {
            counts.written_lines += self.spilled.len() as u64;
            for line in self.spilled.drain(..) {
                uncore.spill(self.cpu, line, from + takes);
            }
        }
        if !end.is_before(self.clock.now() + self.hidden) {
            if access.write {
                self.window.must_leave(self.stores, end);
            } else {
                self.window.must_retire(self.instructions, end);
            }
        }
        if piece.last {
            self.window.remember(if access.write { End::at(Time::ZERO) } else { end });
        }
    }

    /// Tells the prefetcher where the next page is, if it is mapped, once a stream nears its page's end.
    pub(super) fn follow_to_next_page(&mut self, line: u64, address: VirtAddr, space: &mut Space) {
        let Some(prefetcher) = self.prefetcher.as_mut().filter(|prefetcher| prefetcher.nears_end(line))
        else {
            return;
        };
        let next = VirtAddr(address.0 - address.0 % PAGE_BYTES + PAGE_BYTES);
        let found = space.table.find(next.page());
        if let Some((entry, size)) = found.filter(|(entry, _)| entry.has(Entry::PRESENT)) {
            let translation = Translation { frame: entry.frame(), dirty: false };
            prefetcher.continues(line, line_in(translation, next, size));
        }
    }

    /// Executes one line's part of a non-temporal store. It never waits; the line's buffer may, once sent.
    fn store_past(&mut self, access: &Access, piece: &Piece, place: Translated, counts: &mut ThreadCounts) {
        let Translated { line, from, takes } = place;
        let producer = self.window.producer(access.producer);
        let combined = self.combining.store(line, piece.address.0 % LINE_BYTES, piece.bytes, producer);
        if combined.opens {
            self.private.evict(line);
        }
        if let Some(buffer) = combined.sent {
            counts.written_lines += 1;
            self.window.write(buffer.line, from, takes, buffer.last);
        }
        if piece.last {
            self.window.remember(End::at(Time::ZERO));
        }
    }

    /// The physical line of an address; `None` if it faults.
    #[inline]
    fn translate(
        &mut self,
        thread: &mut Thread,
        space: &mut Space,
        address: VirtAddr,
        write: bool,
    ) -> Option<Translated> {
        let page = address.page().0;
        if page >= PAGES {
            return None;
        }
        let from = self.clock.now();
        let base = PageKey::new(space.id.0, page, false);
        if let Some((key, translation)) = self.last_page
            && key == base
            && (translation.dirty || !write)
        {
            let line = line_in(translation, address, PageSize::Base);
            return Some(Translated { line, from, takes: Time::ZERO });
        }
        let mut found = self.tlb.lookup(base).map(|hit| (base, hit, PageSize::Base));
        if found.is_none() && space.has_huge {
            let huge = PageKey::new(space.id.0, page / PageSize::Huge.base_pages(), true);
            found = self.tlb.lookup(huge).map(|hit| (huge, hit, PageSize::Huge));
        }
        let Some((key, (mut translation, takes), size)) = found else {
            return self.walk(thread, space, address, write);
        };
        if write && !translation.dirty {
            let (entry, _) = space.table.find(address.page())?;
            if entry.has(Entry::PROTECTED) {
                return None;
            }
            entry.set(Entry::DIRTY);
            self.tlb.set_dirty(key);
            translation.dirty = true;
        }
        self.last_page = (size == PageSize::Base).then_some((key, translation));
        Some(Translated { line: line_in(translation, address, size), from, takes })
    }

    fn walk(
        &mut self,
        thread: &mut Thread,
        space: &mut Space,
        address: VirtAddr,
        write: bool,
    ) -> Option<Translated> {
        let counted = self.is_counted(space.id.0, address);
        let (key, translation, size) = walk_table(&mut space.table, space.id.0, address, write, counted)?;
        thread.counts.tlb_misses += u64::from(self.tlb.levels() > 0);
        self.tlb.fill(key, translation);
        self.last_page = (size == PageSize::Base).then_some((key, translation));
        let Walk { from, takes } =
            self.walkers.walk(key, self.clock.now(), &mut self.private, &mut self.spilled);
        Some(Translated { line: line_in(translation, address, size), from, takes })
    }
}

impl Core {
    /// Whether the TLB miss of the next walk, for an address, has been counted.
    #[inline]
    pub(super) fn is_counted(&mut self, space: u32, address: VirtAddr) -> bool {
        let counted = self.counted.take();
        counted.is_some_and(|key| key == PageKey::new(space, address.page().0, false))
    }
}

/// Distances in accesses at which the host memory of page table entries, and of the accesses themselves, is
/// prefetched.
const WARM_AHEAD: usize = 6;
const FETCH_AHEAD: usize = 24;

#[inline]
fn warm_ahead(thread: &Thread, space: &Space, address: VirtAddr) {
    prefetch_index::prefetch_index(&thread.batch.accesses, thread.cursor + FETCH_AHEAD);
    if let Some(later) = thread.batch.accesses.get(thread.cursor + WARM_AHEAD)
        && later.address.page() != address.page()
    {
        space.table.warm(later.address.page());
    }
}

/// Finds a translation and sets the entry's accessed and dirty bits; `None` if there is no usable one, if
/// the entry is marked and this miss not yet counted, or for a store to a protected page.
fn walk_table(
    table: &mut PageTable,
    space: u32,
    address: VirtAddr,
    write: bool,
    counted: bool,
) -> Option<(PageKey, Translation, PageSize)> {
    let page = address.page();
    let (entry, size) = table.find(page)?;
    if !entry.has(Entry::PRESENT) || entry.any(Entry::HINT | Entry::MOVING) {
        return None;
    }
    if entry.has(Entry::MARKED) && !counted || write && entry.has(Entry::PROTECTED) {
        return None;
    }
    entry.set(Entry::ACCESSED | if write { Entry::DIRTY } else { 0 });
    let translation =
        Translation { frame: entry.frame(), dirty: entry.has(Entry::DIRTY) && !entry.has(Entry::PROTECTED) };
    Some((PageKey::new(space, page.0 / size.base_pages(), size == PageSize::Huge), translation, size))
}

#[inline]
fn line_in(translation: Translation, address: VirtAddr, size: PageSize) -> u64 {
    u64::from(translation.frame) * (PAGE_BYTES / LINE_BYTES) + (address.0 & (size.bytes() - 1)) / LINE_BYTES
}

#[inline]
fn piece(access: &Access, done_bytes: u16) -> Piece {
    let address = VirtAddr(access.address.0 + u64::from(done_bytes));
    let left_in_line = LINE_BYTES - address.0 % LINE_BYTES;
    let left = u64::from(access.size.max(1) - done_bytes);
    let bytes = left.min(left_in_line);
    Piece { address, bytes, done_bytes: done_bytes + bytes as u16, last: left <= left_in_line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_across_lines_is_split_by_line() {
        let access = Access {
            address: VirtAddr(60),
            instructions: 1,
            producer: 0,
            size: 72,
            write: false,
            non_temporal: false,
        };
        let mut done = 0;
        let mut pieces = Vec::new();
        loop {
            let p = piece(&access, done);
            pieces.push((p.address.0, p.done_bytes));
            done = p.done_bytes;
            if p.last {
                break;
            }
        }
        assert_eq!(pieces, [(60, 4), (64, 68), (128, 72)]);
    }
}
