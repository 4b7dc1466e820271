//! Records: accesses that may matter to a policy's timing.

use memtide_core::{Then, Time, VirtAddr};

/// An access within one line, and those before it, since the record before, that have no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it begins, if it is of an access: see [`Record::is_access`].
    pub address: VirtAddr,
    /// Instructions since the record before, its own included.
    pub instructions: u32,
    /// Accesses that are done with it, since the record before.
    pub accesses: u32,
    /// Stores since the record before, its own included.
    pub stores: u32,
    /// The record whose end its address depends on: how many records back; 0 if on none.
    pub producer: u16,
    /// Lines in [`Chunk::spilled`] that leave the private caches with it.
    pub spilled: u16,
    /// It begins no earlier than this long after its producer's end, in ps.
    pub after_producer: u32,
    /// Nor earlier than this long after its own dispatch, in ps, less what the core has waited in the last
    /// [`Record::unwaited`] instructions.
    pub after_dispatch: u32,
    /// See [`Record::after_dispatch`].
    pub unwaited: u16,
    /// Time of the translation, without a page walk's waits, in ps.
    pub translation: u32,
    /// Latency of a hit, in ps; bytes of a non-temporal store.
    pub latency: u32,
    /// How long after its end that load ends, of those that depend on it and have no record, which holds up
    /// the reorder buffer longest, in ps; 0 if none does for longer than the record.
    pub tail: u32,
    /// How many instructions after the record that load is.
    pub tail_after: u16,
    pub(crate) flags: u8,
}

/// No access begins here: addresses have 48 bits.
const NOWHERE: VirtAddr = VirtAddr(u64::MAX);

const STORE: u8 = 1;
const WALK: u8 = 2;
const MISS: u8 = 4;
const DIRTIES: u8 = 8;
const HIT: u8 = 16;
const NON_TEMPORAL: u8 = 32;
const OVERWRITES: u8 = 64;

impl Record {
    /// With nothing but flags.
    pub(crate) fn of(address: VirtAddr, flags: Flags) -> Record {
        let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
        let flags = bit(flags.store, STORE)
            | bit(flags.walks, WALK)
            | bit(flags.misses, MISS)
            | bit(flags.dirties, DIRTIES)
            | bit(flags.hits, HIT)
            | bit(flags.non_temporal, NON_TEMPORAL)
            | bit(flags.overwrites, OVERWRITES);
        Record {
            address,
            instructions: 0,
            accesses: 0,
            stores: 0,
            producer: 0,
            spilled: 0,
            after_producer: 0,
            after_dispatch: 0,
            unwaited: 0,
            translation: 0,
            latency: 0,
            tail: 0,
            tail_after: 0,
            flags,
        }
    }

    /// Of no access: what is left before something else.
    pub(crate) fn of_no_access() -> Record {
        Record::of(NOWHERE, Flags::default())
    }

    /// Whether it is of an access, and not only of those before it.
    #[inline]
    pub fn is_access(&self) -> bool {
        self.address != NOWHERE
    }

    /// Whether it is a store.
    #[inline]
    pub fn is_store(&self) -> bool {
        self.flags & STORE != 0
    }

    /// Whether its page is in no TLB level.
    #[inline]
    pub fn walks(&self) -> bool {
        self.flags & WALK != 0
    }

    /// Whether it is the first store to its page since the page's translation was loaded.
    #[inline]
    pub fn dirties(&self) -> bool {
        self.flags & DIRTIES != 0
    }

    /// Whether its line goes to the shared levels.
    #[inline]
    pub fn misses(&self) -> bool {
        self.flags & MISS != 0
    }

    /// Whether it hits a private level.
    #[inline]
    pub fn hits(&self) -> bool {
        self.flags & HIT != 0
    }

    /// Whether it is a non-temporal store.
    #[inline]
    pub fn is_non_temporal(&self) -> bool {
        self.flags & NON_TEMPORAL != 0
    }

    /// Whether it is a store that begins to overwrite a line, which is not fetched.
    #[inline]
    pub fn overwrites(&self) -> bool {
        self.flags & OVERWRITES != 0
    }

    /// [`Record::translation`] as a time.
    #[inline]
    pub fn translation(&self) -> Time {
        Time(self.translation.into())
    }
}

/// What kind of access a record is of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub store: bool,
    pub walks: bool,
    pub misses: bool,
    pub dirties: bool,
    pub hits: bool,
    pub non_temporal: bool,
    pub overwrites: bool,
}

/// A run of a thread's records and what follows.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// In program order.
    pub records: Vec<Record>,
    /// Dirty lines that leave the private caches, as virtual line numbers, in the records' order.
    pub spilled: Vec<u64>,
    /// Hits of each private level, nearest to the core first.
    pub hits: Vec<u64>,
    /// What follows the last access.
    pub then: Then,
}

impl Chunk {
    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Chunk>() + size_of_val(&self.records[..]) + size_of_val(&self.spilled[..])
    }
}
