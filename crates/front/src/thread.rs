//! A thread's accesses as records.

use memtide_core::machine::Machine;
use memtide_core::{Access, Batch, LINE_BYTES, PAGE_BYTES, PageSize, Then, Time, VirtAddr};
use memtide_memory::{PageKey, PageWalkers, PrivateCaches, Tlb, Translation, WriteCombining, WriteStream};

use crate::pages::Pages;
use crate::record::{Chunk, Flags, Record};

/// Distance in accesses at which the host memory of pages' slots is prefetched.
const WARM_AHEAD: usize = 12;

/// Pages whose slots the host's caches hold.
const PAGES_IN_CACHE: usize = 4096;

/// Accesses and records that later ones can depend on; older ones have ended.
const RECENT: usize = 256;

/// Lines of a record without spilling it apart.
const SPILLED_MAX: u16 = 1000;

/// Groups of lines of which the last miss is known.
const LINES: usize = 64;

/// Fractions of a picosecond.
const FRACTIONS: u32 = 16;

/// What a thread's core would hold with any policy: its private caches, TLB and stores that overwrite lines.
#[derive(Debug)]
pub struct ThreadFront {
    private: PrivateCaches,
    tlb: Tlb,
    walkers: PageWalkers,
    write_stream: WriteStream,
    combining: WriteCombining<()>,
    pages: Pages,
    /// The base page accessed last, and its slot: another lookup would change nothing in the TLB.
    last_page: Option<(u64, usize, Translation)>,
    /// What the last accesses' values wait for.
    values: [Value; RECENT],
    position: usize,
    /// The last miss of each group of lines.
    lines: [Filling; LINES],
    /// The instruction of each of the last records.
    recorded: [u64; RECENT],
    records: u64,
    instruction: u64,
    stores: u64,
    pending: Pending,
    timing: Timing,
    spilled: Vec<u64>,
    hits_before: Vec<u64>,
}

/// When an access ends: the later of two times.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    /// A record's number plus 1; 0 if there is none whose end may be unknown.
    record: u64,
    /// In ps after that record's end.
    offset: u64,
    /// In ps of a core that never waits.
    floor: u64,
    /// The instruction whose dispatch the floor follows from.
    since: u64,
}

/// A line that a miss fetches.
#[derive(Clone, Copy, Debug)]
struct Filling {
    line: u64,
    /// The miss's record plus 1.
    record: u64,
    /// Its number among the stores, if it is one.
    store: Option<u64>,
}

/// Accesses since the last record.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    instructions: u64,
    accesses: u32,
    stores: u32,
    spilled: u16,
}

/// Times of the core.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// Fractions of ps.
    per_instruction: u64,
    reorder_buffer: u64,
    store_queue: u64,
    /// Latency of an access that holds nothing up, in ps.
    hidden: u64,
}

impl Timing {
    fn of(self, instructions: u64) -> u64 {
        instructions.saturating_mul(self.per_instruction) >> FRACTIONS
    }
}

/// An access's page.
struct Place {
    /// Of its page.
    slot: usize,
    /// Line, by the page's number.
    line: u64,
    takes: Time,
    walks: bool,
    dirties: bool,
    /// Whether its page has had no record for a while.
    is_due: bool,
}

impl ThreadFront {
    /// Of a thread that has a core of the machine for itself. The machine is one that has been reduced.
    pub fn new(machine: &Machine) -> ThreadFront {
        let ps = 1e6 / (machine.core.clock_mhz * machine.core.instructions_per_cycle);
        ThreadFront {
            private: PrivateCaches::new(machine),
            tlb: Tlb::new(machine),
            walkers: PageWalkers::new(machine),
            write_stream: WriteStream::new(machine.core.write_streaming_lines),
            combining: WriteCombining::new(machine.core.outstanding_misses),
            pages: Pages::default(),
            last_page: None,
            values: [Value::default(); RECENT],
            position: 0,
            lines: [Filling { line: u64::MAX, record: 0, store: None }; LINES],
            recorded: [0; RECENT],
            records: 0,
            instruction: 0,
            stores: 0,
            pending: Pending::default(),
            timing: Timing {
                per_instruction: (ps * f64::from(1 << FRACTIONS)) as u64,
                reorder_buffer: machine.core.reorder_buffer.into(),
                store_queue: machine.core.store_queue.into(),
                hidden: machine.hidden_latency().0,
            },
            spilled: Vec::new(),
            hits_before: Vec::new(),
        }
    }

    /// Appends the records of a batch to a chunk, which ends with it if the thread does not just continue.
    pub fn run(&mut self, batch: &mut Batch, is_huge: impl Fn(VirtAddr) -> bool, chunk: &mut Chunk) {
        let warms = self.pages.len() > PAGES_IN_CACHE;
        for (index, access) in batch.accesses.iter().enumerate() {
            if warms
                && let Some(later) = batch.accesses.get(index + WARM_AHEAD)
                && later.address.page() != access.address.page()
            {
                self.pages.warm(later.address.page().0);
            }
            self.access(access, &is_huge, chunk);
        }
        if batch.then == Then::Continue {
            return;
        }
        let Pending { instructions, accesses, .. } = self.pending;
        if instructions > 0 || accesses > 0 {
            self.record(chunk, Record::of_no_access(), Value::default());
        }
        self.follow(&batch.then);
        chunk.then = std::mem::take(&mut batch.then);
    }

    /// Ends a chunk that may be followed by another at once.
    pub fn end_chunk(&mut self, chunk: &mut Chunk) {
        // Lines are spilled in the chunk that has them.
        if self.pending.spilled > 0 {
            self.record(chunk, Record::of_no_access(), Value::default());
        }
        // A page in use for long is noticed if a policy has moved it.
        self.last_page = None;
        let hits: Vec<u64> = self.private.hits().collect();
        self.hits_before.resize(hits.len(), 0);
        chunk.hits = hits.iter().zip(&self.hits_before).map(|(now, before)| now - before).collect();
        self.hits_before = hits;
    }

    /// What the thread does between batches.
    fn follow(&mut self, then: &Then) {
        match then {
            Then::Continue | Then::Work(_) | Then::Map(_) | Then::Spawn(_) | Then::Fork(_) => {}
            Then::Unmap { start, bytes } => {
                let end = start.0.saturating_add(*bytes) / PAGE_BYTES;
                for page in start.0.div_ceil(PAGE_BYTES)..end {
                    if self.pages.remove(page) {
                        self.tlb.invalidate(PageKey::new(0, page, false));
                        self.tlb.invalidate(huge_key(page));
                    }
                }
                self.last_page = None;
            }
            Then::Exec => {
                self.pages = Pages::default();
                self.tlb.flush();
                self.last_page = None;
            }
            // Another core: no thread has left anything there.
            Then::OnCpu(_) | Then::Barrier | Then::Message(_) | Then::Mark(_) | Then::End => {}
        }
        if !matches!(then, Then::Continue | Then::Work(_)) {
            while self.combining.take_oldest().is_some() {}
        }
    }

    fn access(&mut self, access: &Access, is_huge: &impl Fn(VirtAddr) -> bool, chunk: &mut Chunk) {
        // A record counts up to 2^32 of them.
        if self.pending.instructions + u64::from(access.instructions) > u64::from(u32::MAX) {
            self.record(chunk, Record::of_no_access(), Value::default());
        }
        self.instruction += u64::from(access.instructions);
        self.pending.instructions += u64::from(access.instructions);
        self.pending.stores += u32::from(access.write);
        self.stores += u64::from(access.write);
        let now = self.timing.of(self.instruction);
        let produced = self.produced(access.producer, now);
        let mut address = access.address;
        let end = access.address.0 + u64::from(access.size.max(1));
        loop {
            let line_end = address.0 - address.0 % LINE_BYTES + LINE_BYTES;
            let bytes = end.min(line_end) - address.0;
            let is_last = end <= line_end;
            self.pending.accesses += u32::from(is_last);
            let place = self.translate(address, access.write, is_huge);
            let value = self.piece(access, address, bytes, &place, produced, now, chunk);
            if is_last {
                self.values[self.position] = if access.write { Value::default() } else { value };
                self.position = (self.position + 1) % RECENT;
                return;
            }
            address = VirtAddr(line_end);
        }
    }

    /// What the value of an earlier access waits for, by now.
    #[inline]
    fn produced(&self, distance: u32, now: u64) -> Value {
        let mut value = match distance as usize {
            0 => Value::default(),
            distance if distance > RECENT => Value::default(),
            distance => self.values[(self.position + RECENT - distance) % RECENT],
        };
        if value.record != 0 {
            let ago = self.instruction - self.instruction_of(value.record);
            // The reorder buffer has waited for it, or it is forgotten.
            if ago > self.timing.reorder_buffer || self.back(value.record) >= RECENT as u64 - 1 {
                let since = self.timing.of(ago.saturating_sub(self.timing.reorder_buffer));
                let late = value.offset.saturating_sub(since);
                value = Value { record: 0, offset: 0, floor: value.floor.max(now + late), ..value };
            }
        }
        value
    }

    /// How many records back one was.
    #[inline]
    fn back(&self, record: u64) -> u64 {
        self.records + 1 - record
    }

    #[inline]
    fn instruction_of(&self, record: u64) -> u64 {
        self.recorded[(record - 1) as usize % RECENT]
    }

    /// One line's part of an access; returns when it ends.
    #[expect(clippy::too_many_arguments, reason = "the parts of one access")]
    #[inline]
    fn piece(
        &mut self,
        access: &Access,
        address: VirtAddr,
        bytes: u64,
        place: &Place,
        produced: Value,
        now: u64,
        chunk: &mut Chunk,
    ) -> Value {
        let flags =
            Flags { store: access.write, walks: place.walks, dirties: place.dirties, ..Flags::default() };
        let record = Record { translation: place.takes.0 as u32, ..Record::of(address, flags) };
        if access.non_temporal {
            if self.combining.store(place.line, address.0 % LINE_BYTES, bytes, ()).opens {
                self.private.evict(place.line);
            }
            let of = Record::of(address, Flags { non_temporal: true, ..flags });
            let of = Record { translation: record.translation, latency: bytes as u32, ..of };
            self.record_of(place, chunk, of, produced);
            return Value::default();
        }
        let overwritten = access.write && self.write_stream.see(address, bytes);
        let hit = self.private.access(place.line, access.write, &mut self.spilled);
        self.note_spilled(chunk);
        match hit {
            Some(latency) => self.hit(access.write, flags, record, latency, place, produced, now, chunk),
            None => {
                if !self.combining.is_empty() {
                    self.combining.take(place.line);
                }
                if overwritten {
                    let of = Record::of(address, Flags { overwrites: true, ..flags });
                    let of = Record { translation: record.translation, ..of };
                    self.record_of(place, chunk, of, Value::default());
                    return Value::default();
                }
                let of = Record::of(address, Flags { misses: true, ..flags });
                let of = Record { translation: record.translation, ..of };
                let number = self.record_of(place, chunk, of, produced);
                self.lines[place.line as usize % LINES] =
                    Filling { line: place.line, record: number, store: access.write.then_some(self.stores) };
                Value { record: number, ..Value::default() }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one access")]
    #[inline]
    fn hit(
        &mut self,
        is_store: bool,
        flags: Flags,
        record: Record,
        latency: Time,
        place: &Place,
        produced: Value,
        now: u64,
        chunk: &mut Chunk,
    ) -> Value {
        let own = place.takes.0 + latency.0;
        let ends = Value {
            record: produced.record,
            offset: produced.offset + own,
            floor: now.max(produced.floor) + own,
            since: if now >= produced.floor { self.instruction } else { produced.since },
        };
        let filling = self.filling(place.line);
        let late = ends.floor - now;
        let waits_for_store = filling != 0 && produced.record == 0 && self.is_filled_by_store(place.line);
        let must_record = place.walks
            || place.dirties
            || place.is_due
            // It holds up the reorder buffer or the store queue by itself.
            || late > self.timing.hidden
            || ends.record != 0 && ends.offset > self.timing.hidden
            // A store on a line that another fetches leaves the store queue right after that.
            || is_store && (ends.record != 0 || filling != 0 && !self.is_filled_by_store(place.line))
            || waits_for_store
            // Which of two it waits for longer depends on time.
            || ends.record != 0 && filling != 0 && filling != ends.record;
        if must_record {
            let of = Record::of(record.address, Flags { hits: true, ..flags });
            let of = Record { translation: record.translation, latency: latency.0 as u32, ..of };
            let number = self.record_of(place, chunk, of, produced);
            if waits_for_store {
                // Later loads find that this one has waited.
                let filling = &mut self.lines[place.line as usize % LINES];
                *filling = Filling { record: number, store: None, ..*filling };
            }
            return Value { record: number, ..Value::default() };
        }
        if ends.record == 0 {
            return match filling {
                0 => ends,
                filling => Value { record: filling, offset: 0, ..ends },
            };
        }
        self.hold(ends, chunk);
        ends
    }

    /// Has the record that a load waits for hold up the reorder buffer for as long as the load would.
    fn hold(&self, ends: Value, chunk: &mut Chunk) {
        let after = self.instruction - self.instruction_of(ends.record);
        let back = self.back(ends.record) as usize;
        if ends.offset <= self.timing.of(after) || back > chunk.records.len() {
            return;
        }
        let at = chunk.records.len() - back;
        let record = &mut chunk.records[at];
        let holds_for = |offset: u64, after: u64| offset.saturating_sub(self.timing.of(after));
        if holds_for(ends.offset, after) >= holds_for(record.tail.into(), record.tail_after.into()) {
            record.tail = ends.offset as u32;
            record.tail_after = after.min(u16::MAX.into()) as u16;
        }
    }

    /// The record that may still be fetching a line; 0 if none.
    #[inline]
    fn filling(&self, line: u64) -> u64 {
        let Filling { line: held, record, store } = self.lines[line as usize % LINES];
        if held != line || record == 0 || self.back(record) >= LINES as u64 {
            return 0;
        }
        let is_open = match store {
            Some(store) => self.stores - store < self.timing.store_queue,
            None => self.instruction - self.instruction_of(record) <= self.timing.reorder_buffer,
        };
        if is_open { record } else { 0 }
    }

    fn is_filled_by_store(&self, line: u64) -> bool {
        self.lines[line as usize % LINES].store.is_some()
    }

    fn note_spilled(&mut self, chunk: &mut Chunk) {
        for at in 0..self.spilled.len() {
            let line = self.spilled[at];
            let lines = PAGE_BYTES / LINE_BYTES;
            let page = self.pages.page((line / lines) as u32);
            chunk.spilled.push(page * lines + line % lines);
            self.pending.spilled += 1;
        }
        self.spilled.clear();
        if self.pending.spilled > SPILLED_MAX {
            self.record(chunk, Record::of_no_access(), Value::default());
        }
    }

    /// Appends the record of an access, which notices what a policy did to its page; returns its number plus
    /// 1.
    #[inline]
    fn record_of(&mut self, place: &Place, chunk: &mut Chunk, record: Record, produced: Value) -> u64 {
        self.pages.note_record(place.slot, self.instruction);
        self.record(chunk, record, produced)
    }

    #[inline]
    fn record(&mut self, chunk: &mut Chunk, record: Record, produced: Value) -> u64 {
        let Pending { instructions, accesses, stores, spilled } = std::mem::take(&mut self.pending);
        let now = self.timing.of(self.instruction);
        chunk.records.push(Record {
            instructions: instructions as u32,
            accesses,
            stores,
            spilled,
            producer: if produced.record == 0 { 0 } else { self.back(produced.record) as u16 },
            after_producer: produced.offset as u32,
            after_dispatch: produced.floor.saturating_sub(now) as u32,
            unwaited: (self.instruction - produced.since).min(u16::MAX.into()) as u16,
            ..record
        });
        self.recorded[self.records as usize % RECENT] = self.instruction;
        self.records += 1;
        self.records
    }

    #[inline]
    fn translate(&mut self, address: VirtAddr, write: bool, is_huge: &impl Fn(VirtAddr) -> bool) -> Place {
        let page = address.page().0;
        let in_page = (address.0 % PAGE_BYTES) / LINE_BYTES;
        let line = |number: u32| u64::from(number) * (PAGE_BYTES / LINE_BYTES) + in_page;
        if let Some((last, slot, translation)) = self.last_page
            && last == page
            && (translation.dirty || !write)
        {
            let line = line(translation.frame);
            let is_due = self.pages.is_due(slot, self.instruction);
            return Place { slot, line, takes: Time::ZERO, walks: false, dirties: false, is_due };
        }
        let size = if is_huge(address) { PageSize::Huge } else { PageSize::Base };
        let key = if size == PageSize::Huge { huge_key(page) } else { PageKey::new(0, page, false) };
        let (slot, number) = self.pages.number(page, size);
        let found = self.tlb.lookup(key);
        let walks = found.is_none();
        let (mut translation, takes) = match found {
            Some(found) => found,
            None => {
                let translation = Translation { frame: number, dirty: write };
                self.tlb.fill(key, translation);
                // When a walker is free depends on time, and is up to the reader of the record.
                let walk = self.walkers.walk(key, Time::ZERO, &mut self.private, &mut self.spilled);
                (translation, walk.takes)
            }
        };
        let dirties = write && !translation.dirty;
        if dirties {
            self.tlb.set_dirty(key);
            translation.dirty = true;
        }
        translation.frame = number;
        self.last_page = (size == PageSize::Base).then_some((page, slot, translation));
        let is_due = self.pages.is_due(slot, self.instruction);
        Place { slot, line: line(number), takes, walks, dirties, is_due }
    }
}

fn huge_key(page: u64) -> PageKey {
    PageKey::new(0, page / PageSize::Huge.base_pages(), true)
}

#[cfg(test)]
mod tests {
    use memtide_core::machine::bundled;

    use super::*;

    /// Records of a thread that reads these addresses, this many instructions each.
    fn records(addresses: impl Iterator<Item = u64>, instructions: u32) -> Vec<Record> {
        let machine = bundled::machine("memos").unwrap().unwrap().reduced();
        let read = |address| Access {
            address: VirtAddr(address),
            instructions,
            producer: 0,
            size: 8,
            write: false,
            non_temporal: false,
        };
        let mut batch = Batch { accesses: addresses.map(read).collect(), then: Then::End };
        let mut chunk = Chunk::default();
        ThreadFront::new(&machine).run(&mut batch, |_| false, &mut chunk);
        chunk.records
    }

    #[test]
    fn page_in_use_has_records_so_that_a_policy_is_noticed() {
        let one_page = records((0..100_000).map(|index| 0x1_0000 + index % 2 * 64), 1);
        let touches = one_page.iter().filter(|record| record.hits()).count();
        assert!((3..8).contains(&touches), "{touches} in 100,000 instructions");
        let two_pages = records((0..100_000).map(|index| 0x1_0000 + index % 2 * 4096), 1);
        let touches = two_pages.iter().filter(|record| record.hits()).count();
        assert!((6..16).contains(&touches), "{touches} in 100,000 instructions");
    }

    #[test]
    fn access_at_address_0_is_one() {
        let of = records([0].into_iter(), 1);
        assert!(of[0].is_access() && of[0].misses() && of[0].address == VirtAddr(0), "{of:?}");
    }

    #[test]
    fn instructions_of_a_record_do_not_overflow() {
        // All but the first hit, and have no record of their own otherwise.
        let many = records([0x1_0000; 6].into_iter(), u32::MAX / 2);
        let all: u64 = many.iter().map(|record| u64::from(record.instructions)).sum();
        assert_eq!(all, 6 * u64::from(u32::MAX / 2), "{many:?}");
        let accesses: u32 = many.iter().map(|record| record.accesses).sum();
        assert_eq!(accesses, 6);
    }
}
