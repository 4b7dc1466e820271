//! Lines on their way into the shared caches.

use memtide_core::Time;

/// Entries of the table; several times what a machine's cores and prefetchers can have under way.
const ENTRIES: usize = 4096;

/// Remembers which lines are still on their way, so that a second access to one waits for it instead of
/// hitting too early. Directly mapped: of two lines with the same place the older one is forgotten, and hits
/// at once.
#[derive(Debug)]
pub(super) struct InFlight {
    entries: Vec<Entry>,
}

/// A line on its way into a cache, or one that was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: u64,
    /// The request that fetches it.
    pub request: u32,
    /// When it is there; [`Time::NEVER`] while that is not known.
    pub arrival: Time,
}

impl InFlight {
    pub fn new() -> InFlight {
        InFlight { entries: vec![Entry { key: u64::MAX, request: 0, arrival: Time::ZERO }; ENTRIES] }
    }

    /// The entry of a line in a caching domain, if it is remembered.
    #[inline]
    pub fn find(&self, domain: u16, line: u64) -> Option<Entry> {
        let key = key(domain, line);
        Some(self.entries[place(key)]).filter(|entry| entry.key == key)
    }

    pub fn begin(&mut self, domain: u16, line: u64, request: u32) {
        let key = key(domain, line);
        self.entries[place(key)] = Entry { key, request, arrival: Time::NEVER };
    }

    /// Notes when a line arrives, unless it was forgotten.
    pub fn arrives(&mut self, domain: u16, line: u64, request: u32, arrival: Time) {
        let key = key(domain, line);
        let entry = &mut self.entries[place(key)];
        if entry.key == key && entry.request == request {
            entry.arrival = arrival;
        }
    }
}

fn key(domain: u16, line: u64) -> u64 {
    debug_assert!(line >> 48 == 0, "a line beyond all memory");
    u64::from(domain) << 48 | line
}

#[inline]
fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}
