//! A virtual CPU: its cached translations, and its state between accesses.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use memtide_core::{PageSize, Time};
use memtide_lab_model::{CacheAccess, PageKey, WriteStream};

use crate::first::First;
use crate::flow::Flow;
use crate::op::MAX_VCPUS;

/// First address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// Cached translations of user pages, all of them in the modelled TLB; few, because a hit here bypasses the
/// model.
const USER: usize = 16;

/// Cached translations of kernel pages, which the TLB model ignores, and of user pages, whether in the
/// modelled TLB or not.
const SYSTEM: usize = 256;

/// Cached sizes of user pages.
const SIZES: usize = 512;

/// Time after which the accessed bit of a huge page in use is set again. The modelled TLB may keep all huge
/// pages of a small program for good. Processors do not: what evicts them is not modelled (the kernel's
/// pages, interrupts, other processes). See `docs/lab.md`.
const RENEWED: Time = Time::from_ms(1);

/// User pages to be dropped from QEMU's TLB.
const EVICTED: usize = 512;

/// A cached translation: the first line of the page's frame.
#[derive(Clone, Copy, Debug)]
struct Translation {
    page: u64,
    first_line: u64,
}

/// Whether the 2 MiB with this number are a huge page.
#[derive(Clone, Copy, Debug)]
struct Size {
    number: u64,
    is_huge: bool,
}

const NO_SIZE: Size = Size { number: u64::MAX, is_huge: false };

const NO_PAGE: u64 = u64::MAX;
const NONE: Translation = Translation { page: NO_PAGE, first_line: 0 };

/// Divisor of the number of sets of any first cache.
const SETS: usize = 64;

/// A virtual CPU's slot: state readable by other threads, and state private to its callbacks.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// Loads from memory while the model was on.
    loads: AtomicU64,
    /// Stores to memory while the model was on.
    stores: AtomicU64,
    own: UnsafeCell<Vcpu>,
}

// SAFETY: `own` is for the virtual CPU's callbacks alone: see `get`.
unsafe impl Sync for Slot {}

/// All virtual CPUs, static so that an access without cost needs no lookup.
pub static VCPUS: [Slot; MAX_VCPUS] = [const { Slot::new() }; MAX_VCPUS];

impl Slot {
    /// Without history.
    pub const fn new() -> Slot {
        Slot { loads: AtomicU64::new(0), stores: AtomicU64::new(0), own: UnsafeCell::new(Vcpu::new()) }
    }

    /// Counts an access. Called by the virtual CPU's callbacks alone.
    #[inline(always)]
    pub fn count_access(&self, write: bool) {
        let count = if write { &self.stores } else { &self.loads };
        // The only writer: there is no addition to lose.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        self.loads.load(Ordering::Relaxed) + self.stores()
    }

    /// Stores so far.
    #[inline(always)]
    pub fn stores(&self) -> u64 {
        self.stores.load(Ordering::Relaxed)
    }

    /// The virtual CPU's private state. Only a callback of the virtual CPU, of which one runs at a time, may
    /// create a reference, once at its start, and pass it down; others may while no virtual CPU runs.
    #[inline(always)]
    pub fn get(&self) -> *mut Vcpu {
        self.own.get()
    }
}

/// A virtual CPU's state, private to its callbacks.
#[derive(Debug)]
#[repr(C)]
pub struct Vcpu {
    user: [Translation; USER],
    /// The last accessed line of all with the same number in these bits: it is the most recently used one of
    /// its set in the first cache, where an access to it changes nothing. Twice its number, plus 1 if it is
    /// dirty there.
    latest: [u64; SETS],
    /// The first cache, if the machine has one of a common geometry. Here, most hits need no other state.
    pub first: Option<First>,
    /// Its stores, as long as all of them are seen here.
    pub write_stream: WriteStream,
    /// When its values are known.
    pub flow: Flow,
    system: [Translation; SYSTEM],
    /// User pages that QEMU translates, in the modelled TLB or not.
    known: [Translation; SYSTEM],
    sizes: [Size; SIZES],
    /// A base page of a huge page, if there are any.
    huge: Option<u64>,
    /// When QEMU dropped its translations of huge pages, whether in the modelled TLB or not.
    renewed: Time,
    /// First base pages of those evicted from the modelled TLB in this turn, by their keys' numbers;
    /// [`NO_PAGE`] if none.
    evicted: [u64; EVICTED],
}

impl Vcpu {
    /// Without history.
    pub const fn new() -> Vcpu {
        Vcpu {
            user: [NONE; USER],
            latest: [u64::MAX; SETS],
            first: None,
            write_stream: WriteStream::new(0),
            flow: Flow::new(),
            system: [NONE; SYSTEM],
            known: [NONE; SYSTEM],
            sizes: [NO_SIZE; SIZES],
            huge: None,
            renewed: Time::ZERO,
            evicted: [NO_PAGE; EVICTED],
        }
    }

    /// Whether an address is the kernel's.
    #[inline(always)]
    pub fn is_kernel(address: u64) -> bool {
        address >= KERNEL
    }

    /// The line of an address, if its translation is cached.
    #[inline(always)]
    pub fn line(&self, address: u64) -> Option<u64> {
        let page = address >> 12;
        let known = if Vcpu::is_kernel(address) {
            &self.system[page as usize % SYSTEM]
        } else {
            &self.user[page as usize % USER]
        };
        (known.page == page).then(|| known.first_line + (address >> 6) % 64)
    }

    /// Looks a line up in the first cache; false if it has no such line or is elsewhere.
    #[inline(always)]
    pub fn hits_first(&mut self, line: u64, write: bool) -> bool {
        if self.changes_nothing(line, write) {
            return true;
        }
        self.record(line, write);
        self.first.as_mut().is_some_and(|first| first.touch(line, write))
    }

    /// Looks a line up in the first cache, and inserts it; `None` if that is elsewhere.
    pub fn touch_first(&mut self, line: u64, write: bool) -> Option<CacheAccess> {
        self.record(line, write);
        let hit = self.first.as_mut()?.touch(line, write);
        if hit { Some(CacheAccess::Hit) } else { self.fill_first(line, write) }
    }

    /// Inserts a line that missed the first cache; `None` if that is elsewhere.
    pub fn fill_first(&mut self, line: u64, write: bool) -> Option<CacheAccess> {
        self.first.as_mut().map(|first| CacheAccess::Miss(first.fill(line, write)))
    }

    /// Whether an access is sure to hit the first cache without changing its state.
    #[inline(always)]
    fn changes_nothing(&self, line: u64, write: bool) -> bool {
        let latest = self.latest[line as usize % SETS];
        latest == (line << 1 | 1) || (!write && latest == line << 1)
    }

    /// Records an access passed to the first cache.
    #[inline(always)]
    fn record(&mut self, line: u64, write: bool) {
        let latest = &mut self.latest[line as usize % SETS];
        let dirty = u64::from(write) | if *latest >> 1 == line { *latest & 1 } else { 0 };
        *latest = line << 1 | dirty;
    }

    /// Drops a line from the first cache.
    pub fn drop_line(&mut self, line: u64) {
        let latest = &mut self.latest[line as usize % SETS];
        if *latest >> 1 == line {
            *latest = u64::MAX;
        }
        if let Some(first) = &mut self.first {
            first.evict(line);
        }
    }

    /// Caches a translation.
    pub fn learn(&mut self, address: u64, physical: u64) {
        let (page, first_line) = (address >> 12, physical >> 12 << 6);
        let translation = Translation { page, first_line };
        if Vcpu::is_kernel(address) {
            self.system[page as usize % SYSTEM] = translation;
        } else {
            self.user[page as usize % USER] = translation;
            self.known[page as usize % SYSTEM] = translation;
        }
    }

    /// Restores a user page that was not in the modelled TLB, if its translation is cached; returns the
    /// address's line.
    pub fn recall(&mut self, address: u64) -> Option<u64> {
        let page = address >> 12;
        let known = self.known[page as usize % SYSTEM];
        if Vcpu::is_kernel(address) || known.page != page {
            return None;
        }
        self.user[page as usize % USER] = known;
        Some(known.first_line + (address >> 6) % 64)
    }

    /// The page of a user address; `is_huge` looks its size up if that is not cached.
    pub fn page(&mut self, address: u64, is_huge: impl FnOnce() -> bool) -> PageKey {
        let number = address >> 21;
        let size = &mut self.sizes[number as usize % SIZES];
        if size.number != number {
            *size = Size { number, is_huge: is_huge() };
        }
        let page = address >> 12;
        if !size.is_huge {
            return PageKey::new(0, page, false);
        }
        self.huge = Some(page);
        PageKey::new(0, number, true)
    }

    /// A base page of a huge page whose translation QEMU must drop, and with it those of all huge pages, if
    /// that is due: see [`RENEWED`].
    pub fn renew(&mut self, now: Time) -> Option<u64> {
        let huge = self.huge.filter(|_| now >= self.renewed + RENEWED)?;
        self.renewed = now;
        Some(huge)
    }

    /// Records a user page evicted from the modelled TLB. Returns the first base page of one that QEMU must
    /// drop at once; others are dropped at the end of the turn.
    pub fn evict(&mut self, key: PageKey) -> Option<u64> {
        let page = if key.is_huge() { key.page() * PageSize::Huge.base_pages() } else { key.page() };
        if key.is_huge() {
            let pages = page..page + PageSize::Huge.base_pages();
            self.user.iter_mut().filter(|known| pages.contains(&known.page)).for_each(|known| *known = NONE);
        } else {
            let slot = &mut self.user[page as usize % USER];
            if slot.page == page {
                *slot = NONE;
            }
        }
        let before = std::mem::replace(&mut self.evicted[key.page() as usize % EVICTED], page);
        (before != NO_PAGE && before != page).then_some(before)
    }

    /// Takes the pages evicted from the modelled TLB in this turn.
    pub fn take_evicted(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.evicted.iter_mut().map(|page| std::mem::replace(page, NO_PAGE)).filter(|&page| page != NO_PAGE)
    }

    /// Drops all translations.
    pub fn forget_all(&mut self) {
        self.user = [NONE; USER];
        self.system = [NONE; SYSTEM];
        self.known = [NONE; SYSTEM];
        self.sizes = [NO_SIZE; SIZES];
        self.huge = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_line_of_set_is_skipped() {
        let mut vcpu = Vcpu::new();
        assert!(!vcpu.changes_nothing(5, false));
        vcpu.record(5, false);
        assert!(vcpu.changes_nothing(5, false) && !vcpu.changes_nothing(5, true));
        vcpu.record(5, true);
        vcpu.record(5, false);
        assert!(vcpu.changes_nothing(5, true));
        vcpu.record(5 + 64, false);
        assert!(!vcpu.changes_nothing(5, false));
        vcpu.record(5, false);
        assert!(!vcpu.changes_nothing(5, true), "what the cache did with it since is not known");
    }

    #[test]
    fn dropped_line_misses_next_time() {
        let mut vcpu = Vcpu::new();
        vcpu.first = First::new(&crate::first::geometry(32, 8));
        vcpu.touch_first(5, true);
        assert!(vcpu.changes_nothing(5, true));
        vcpu.drop_line(5);
        assert!(!vcpu.changes_nothing(5, false));
        assert_eq!(vcpu.touch_first(5, false), Some(CacheAccess::Miss(None)));
    }

    fn base(page: u64) -> PageKey {
        PageKey::new(0, page, false)
    }

    #[test]
    fn huge_page_is_evicted_as_a_whole() {
        let mut vcpu = Vcpu::new();
        let key = vcpu.page(0x4020_1040, || true);
        assert_eq!(key, PageKey::new(0, 0x201, true));
        assert_eq!(vcpu.page(0x403f_f000, || unreachable!("its size is cached")), key);
        assert_eq!(vcpu.page(0x4040_1000, || false), base(0x4_0401));
        for address in [0x4020_1000, 0x403f_f000, 0x4040_0000] {
            vcpu.learn(address, address);
        }
        assert_eq!(vcpu.evict(key), None);
        assert_eq!(
            [0x4020_1000, 0x403f_f000, 0x4040_0000].map(|at| vcpu.line(at).is_some()),
            [false, false, true]
        );
        assert_eq!(vcpu.take_evicted().collect::<Vec<_>>(), [0x4_0200]);
        vcpu.forget_all();
        assert_eq!(vcpu.page(0x4020_1040, || false), base(0x4_0201), "split since");
    }

    #[test]
    fn translations_of_huge_pages_are_renewed_in_time() {
        let mut vcpu = Vcpu::new();
        vcpu.page(0x4040_1000, || false);
        assert_eq!(vcpu.renew(Time::from_ms(5)), None, "there are none");
        vcpu.page(0x4020_1040, || true);
        assert_eq!(vcpu.renew(Time::from_ms(5)), Some(0x4_0201));
        assert_eq!(vcpu.renew(Time(Time::from_ms(6).0 - 1)), None);
        assert_eq!(vcpu.renew(Time::from_ms(6)), Some(0x4_0201));
        vcpu.forget_all();
        assert_eq!(vcpu.renew(Time::from_ms(7)), None);
    }

    #[test]
    fn translation_is_cached_until_dropped_or_displaced() {
        let mut vcpu = Vcpu::new();
        assert_eq!(vcpu.line(0x7000_1040), None);
        vcpu.learn(0x7000_1040, 0x20_3040);
        assert_eq!(vcpu.line(0x7000_10c8), Some(0x20_30c8 >> 6));
        assert_eq!(vcpu.evict(base(0x7_0002)), None);
        assert_eq!(vcpu.line(0x7000_1000), Some(0x20_3000 >> 6));
        assert_eq!(vcpu.evict(base(0x7_0001)), None);
        assert_eq!(vcpu.line(0x7000_1000), None);
        assert_eq!(vcpu.recall(0x7000_1040), Some(0x20_3040 >> 6));
        assert_eq!(vcpu.evict(base(0x7_0001 + 512)), Some(0x7_0001), "two pages have one place");
        assert_eq!(vcpu.take_evicted().collect::<Vec<_>>(), [0x7_0201, 0x7_0002]);
        assert_eq!(vcpu.take_evicted().count(), 0);
        vcpu.learn(0xffff_8880_0000_1000, 0x1000);
        vcpu.learn(0x1000, 0x5000);
        assert_eq!((vcpu.line(0xffff_8880_0000_1000), vcpu.line(0x1000)), (Some(64), Some(5 * 64)));
    }

    #[test]
    fn other_threads_read_access_count_concurrently() {
        let slot = Slot::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: this thread alone has it.
                let vcpu = unsafe { &mut *slot.get() };
                for line in 0..100 {
                    slot.count_access(line % 4 == 0);
                    vcpu.record(line, false);
                }
                assert!(vcpu.changes_nothing(99, false));
            });
            assert!(slot.accesses() <= 100);
        });
        assert_eq!((slot.accesses(), slot.stores()), (100, 25));
    }
}
