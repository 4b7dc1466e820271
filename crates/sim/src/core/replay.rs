//! Replay of records: what is left of a program's accesses for each policy. The counterpart of `front`.

use std::sync::Arc;

use memtide_core::{LINE_BYTES, PAGE_BYTES, PageSize, Time, Vpn};
use memtide_front::Record;
use memtide_memory::{PageKey, Uncore, Walk};

use super::Core;
use super::front::{Stop, Translated, Trap};
use super::window::End;
use crate::os::{Entry, Space};
use crate::thread::{Cursor, Thread, ThreadCounts};

/// Pages whose frames a core knows.
const FRAMES: usize = 2048;

/// Distances in records at which the host memory of frames and page table entries, and of the records
/// themselves, is prefetched.
const WARM_AHEAD: usize = 6;
const FETCH_AHEAD: usize = 24;

/// Waits at most this many instructions apart count as one.
const SOON: u64 = 64;

/// What a core knows in replay only.
#[derive(Default)]
pub(super) struct Replayed {
    pub frames: Frames,
    /// Hits of each private level.
    pub hits: Vec<u64>,
    last_wait: Wait,
}

/// The last time that a core did not dispatch at its full rate.
#[derive(Clone, Copy, Default)]
struct Wait {
    /// Instructions dispatched before its end.
    instructions: u64,
    time: Time,
    /// The clock, when it was last looked at.
    clock: Time,
}

impl Wait {
    /// What is left of a time of a record whose last `within` instructions count.
    #[inline]
    fn left_of(self, time: Time, instructions: u64, within: u16) -> Time {
        let counts = instructions < self.instructions + u64::from(within);
        if counts { time.since(self.time) } else { time }
    }
}

/// Frames of the pages used last, so that most records need no look at the page table.
pub(super) struct Frames {
    known: Vec<Option<Known>>,
    /// Entries of earlier epochs are stale.
    epoch: u32,
}

/// In 16 bytes, so that a core's stay in the host's first cache levels.
#[derive(Clone, Copy)]
struct Known {
    key: PageKey,
    frame: u32,
    /// Twice the epoch; plus 1 if the next store sets the page's dirty bit even if the record does not say
    /// so.
    epoch_and_clean: u32,
}

impl Known {
    fn is_clean(self) -> bool {
        self.epoch_and_clean % 2 == 1
    }
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { known: vec![None; FRAMES], epoch: 1 }
    }
}

impl Frames {
    /// What is known of a page, and whether its translation was dropped since.
    #[inline]
    fn find(&self, key: PageKey) -> Option<(Known, bool)> {
        let known = self.known[key.page() as usize % FRAMES].filter(|known| known.key == key)?;
        Some((known, known.epoch_and_clean / 2 != self.epoch))
    }

    fn insert(&mut self, key: PageKey, frame: u32, is_clean: bool) {
        let epoch_and_clean = self.epoch * 2 + u32::from(is_clean);
        self.known[key.page() as usize % FRAMES] = Some(Known { key, frame, epoch_and_clean });
    }

    /// Prefetches the host memory of what is known of a base page.
    #[inline]
    fn warm(&self, page: Vpn) {
        prefetch_index::prefetch_index(&self.known, page.0 as usize % FRAMES);
    }

    /// Drops translations: one page's, or all.
    pub fn invalidate(&mut self, page: Option<PageKey>) {
        match page {
            Some(key) if !key.is_huge() => {
                let known = &mut self.known[key.page() as usize % FRAMES];
                if let Some(known) = known.as_mut().filter(|known| known.key == key) {
                    known.epoch_and_clean %= 2;
                }
            }
            _ => self.epoch += 1,
        }
    }
}

impl Core {
    /// Dispatches records of `thread` until something stops it or its clock passes `limit`.
    pub fn replay(
        &mut self,
        thread: &mut Thread,
        space: &mut Space,
        uncore: &mut Uncore,
        limit: Time,
    ) -> Stop {
        let Some(mut at) = thread.records.take() else { return Stop::UsedUp };
        let stop = self.replay_from(&mut at, thread, space, uncore, limit);
        thread.records = Some(at);
        stop
    }

    fn replay_from(
        &mut self,
        at: &mut Cursor,
        thread: &mut Thread,
        space: &mut Space,
        uncore: &mut Uncore,
        limit: Time,
    ) -> Stop {
        let chunk = Arc::clone(&at.chunk);
        loop {
            let Some(record) = chunk.records.get(at.next) else { return Stop::UsedUp };
            self.note_wait(self.instructions);
            if !thread.dispatched {
                thread.dispatched = true;
                self.warm_ahead(&chunk.records, at.next, space);
                self.instructions += u64::from(record.instructions);
                self.stores += u64::from(record.stores);
                thread.counts.instructions += u64::from(record.instructions);
                thread.spent.user += self.clock.run(record.instructions.into());
                self.replayed.last_wait.clock = self.clock.now();
            }
            let begin = self.window.dispatch(self.instructions, &self.clock);
            let begin = begin.and_then(|begin| self.window.place(begin));
            let begin = begin.and_then(|begin| match record.stores {
                0 => Some(begin),
                _ => {
                    // Stores are taken to be equally far apart.
                    let apart = u64::from(record.instructions) / u64::from(record.stores);
                    let since = |stores| self.clock.takes(stores * apart);
                    self.window.dispatch_store(self.stores, begin, since)
                }
            });
            let Some(begin) = begin else { return Stop::Blocked };
            thread.spent.stall += self.clock.wait_until(begin);
            self.note_wait(self.window.held_up());
            if self.clock.now() > limit {
                return Stop::Ahead;
            }
            let end = if !record.is_access() {
                End::at(Time::ZERO)
            } else {
                let Some(place) = self.place_of(record, thread, space) else {
                    return Stop::Fault(Trap::Fault { address: record.address, write: record.is_store() });
                };
                self.execute_record(record, place, space, uncore, &mut thread.counts)
            };
            self.window.remember(if record.is_store() { End::at(Time::ZERO) } else { end });
            thread.counts.written_lines += u64::from(record.spilled);
            for _ in 0..record.spilled {
                let line = chunk.spilled[at.next_spilled];
                at.next_spilled += 1;
                if let Some(line) = self.line_of(space, line) {
                    uncore.spill(self.cpu, line, self.clock.now());
                }
            }
            at.next += 1;
            thread.dispatched = false;
            thread.counts.accesses += u64::from(record.accesses);
        }
    }

    /// Prefetches the host memory that later records need.
    #[inline]
    fn warm_ahead(&self, records: &[Record], at: usize, space: &Space) {
        prefetch_index::prefetch_index(records, at + FETCH_AHEAD);
        if let Some(later) = records.get(at + WARM_AHEAD)
            && later.address.page() != records[at].address.page()
        {
            self.replayed.frames.warm(later.address.page());
            space.table.warm(later.address.page());
        }
    }

    /// Notes whether the clock has gone on without instructions, up to an instruction.
    #[inline]
    fn note_wait(&mut self, until: u64) {
        let Wait { instructions, time, clock } = self.replayed.last_wait;
        let now = self.clock.now();
        if now > clock {
            let before = if until < instructions + SOON { time } else { Time::ZERO };
            self.replayed.last_wait =
                Wait { instructions: until.max(instructions), time: before + now.since(clock), clock: now };
        }
    }

    /// Counts the private hits of records.
    pub fn count_hits(&mut self, hits: &[u64]) {
        let all = &mut self.replayed.hits;
        all.resize(all.len().max(hits.len()), 0);
        all.iter_mut().zip(hits).for_each(|(all, hits)| *all += hits);
    }

    /// The physical line of a record, unless its page faults.
    #[inline]
    fn place_of(&mut self, record: &Record, thread: &mut Thread, space: &mut Space) -> Option<Translated> {
        let page = record.address.page();
        let in_page = record.address.0 % PAGE_BYTES / LINE_BYTES;
        let key = PageKey::new(space.id.0, page.0, false);
        let known = self.replayed.frames.find(key);
        let now = self.clock.now();
        let is_clean = known.is_some_and(|(known, _)| known.is_clean());
        let sets_dirty = record.is_store() && (record.dirties() || is_clean);
        if let Some((Known { frame, .. }, false)) = known
            && !record.walks()
            && !sets_dirty
        {
            return Some(Translated {
                line: line_in(frame, in_page),
                from: now,
                takes: record.translation(),
            });
        }
        let (entry, size) = space.table.find(page)?;
        if !entry.has(Entry::PRESENT) || entry.any(Entry::HINT | Entry::MOVING) {
            return None;
        }
        let is_protected = entry.has(Entry::PROTECTED);
        if is_protected && record.is_store() {
            return None;
        }
        let is_stale = known.is_some_and(|(_, is_stale)| is_stale);
        let walks = record.walks() || is_stale;
        if walks && entry.has(Entry::MARKED) && self.counted.take() != Some(key) {
            return None;
        }
        if walks {
            entry.set(Entry::ACCESSED);
        }
        if sets_dirty || walks && record.is_store() {
            entry.set(Entry::DIRTY);
        }
        let frame = frame_of(entry.frame(), page, size);
        // After a walk that the record does not know of, nor does it know of the first store.
        let is_clean = (is_stale || is_clean) && !entry.has(Entry::DIRTY);
        self.replayed.frames.insert(key, frame, is_protected || is_clean && !record.walks());
        let line = line_in(frame, in_page);
        if !walks {
            return Some(Translated { line, from: now, takes: record.translation() });
        }
        thread.counts.tlb_misses += u64::from(self.tlb.levels() > 0);
        let takes = if record.walks() { record.translation() } else { self.walkers.warm() };
        let Walk { from, takes } = self.walkers.walk_for(now, takes);
        Some(Translated { line, from, takes })
    }

    #[inline]
    fn execute_record(
        &mut self,
        record: &Record,
        place: Translated,
        space: &mut Space,
        uncore: &mut Uncore,
        counts: &mut ThreadCounts,
    ) -> End {
        let Translated { line, from, takes } = place;
        let now = self.clock.now();
        let produced = self.window.producer(record.producer.into());
        let late = self.replayed.last_wait.left_of(
            Time(record.after_dispatch.into()),
            self.instructions,
            record.unwaited,
        );
        let ready = produced.then(Time::ZERO, Time(record.after_producer.into())).and(End::at(now + late));
        if record.is_non_temporal() {
            let offset = record.address.0 % LINE_BYTES;
            let combined = self.combining.store(line, offset, record.latency.into(), ready);
            if let Some(buffer) = combined.sent {
                counts.written_lines += 1;
                self.window.write(buffer.line, from, takes, buffer.last);
            }
            return End::at(Time::ZERO);
        }
        let end = if record.misses() {
            if !self.combining.is_empty() && self.combining.take(line).is_some() {
                uncore.write_past(self.cpu, line, from + takes, None);
            }
            uncore.warm(self.cpu, line);
            self.follow_to_next_page(line, record.address, space);
            counts.read_lines += 1;
            self.window.miss(line, from, takes, ready)
        } else if record.hits() {
            self.window.hit(line, from, takes + Time(record.latency.into()), ready)
        } else if record.overwrites() {
            End::at(uncore.accepts(self.cpu, line))
        } else {
            return End::at(Time::ZERO);
        };
        if !end.is_before(now + self.hidden) {
            if record.is_store() {
                self.window.must_leave(self.stores, end);
            } else {
                self.window.must_retire(self.instructions, end);
            }
        }
        if record.tail > 0 {
            let last = end.then(Time::ZERO, Time(record.tail.into()));
            self.window.must_retire(self.instructions + u64::from(record.tail_after), last);
        }
        end
    }

    /// The physical line of a virtual line number, if its page is still there.
    fn line_of(&mut self, space: &mut Space, line: u64) -> Option<u64> {
        let lines = PAGE_BYTES / LINE_BYTES;
        let page = Vpn(line / lines);
        let known = self.replayed.frames.find(PageKey::new(space.id.0, page.0, false));
        if let Some((Known { frame, .. }, false)) = known {
            return Some(line_in(frame, line % lines));
        }
        let (entry, size) = space.table.find(page)?;
        let is_there = entry.has(Entry::PRESENT);
        is_there.then(|| line_in(frame_of(entry.frame(), page, size), line % lines))
    }
}

/// The frame of a base page within a page.
#[inline]
fn frame_of(first: u32, page: Vpn, size: PageSize) -> u32 {
    first + (page.0 % size.base_pages()) as u32
}

#[inline]
fn line_in(frame: u32, in_page: u64) -> u64 {
    u64::from(frame) * (PAGE_BYTES / LINE_BYTES) + in_page
}
