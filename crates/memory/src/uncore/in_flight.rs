//! Lines in flight to the shared caches.

use memtide_core::Time;

/// Number of table entries: several times the maximum in flight of cores and prefetchers.
const ENTRIES: usize = 4096;

/// Tracks lines in flight, so that a second access to one waits for it instead of hitting too early.
/// Direct-mapped: of two conflicting lines the older one is dropped, and hits at once.
#[derive(Debug)]
pub(super) struct InFlight {
    entries: Vec<Entry>,
}

/// A line that is or was in flight to a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    key: u64,
    /// The request that fetches it.
    pub request: u32,
    /// Its arrival; [`Time::NEVER`] while unknown.
    pub arrival: Time,
}

impl InFlight {
    pub fn new() -> InFlight {
        InFlight { entries: vec![Entry { key: u64::MAX, request: 0, arrival: Time::ZERO }; ENTRIES] }
    }

    /// The entry of a line in a caching domain, if tracked.
    #[inline]
    pub fn find(&self, domain: u16, line: u64) -> Option<Entry> {
        let key = key(domain, line);
        Some(self.entries[place(key)]).filter(|entry| entry.key == key)
    }

    pub fn begin(&mut self, domain: u16, line: u64, request: u32) {
        let key = key(domain, line);
        self.entries[place(key)] = Entry { key, request, arrival: Time::NEVER };
    }

    /// Sets the arrival of a line, if still tracked.
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
