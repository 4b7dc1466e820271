//! A virtual CPU: translations it has seen lately, and its state between accesses.

use crate::op::{NO_WRITERS, Writers};

/// First address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// Translations kept of user pages, which are all in the modelled TLB; few, because a hit here is not seen there.
const USER: usize = 16;

/// Translations kept of kernel pages, which the modelled TLB leaves out, and of user pages, whether they are in it or not.
const SYSTEM: usize = 256;

/// User pages that wait to be dropped from QEMU's TLB.
const EVICTED: usize = 512;

/// Where a page lies: the first line of its frame.
#[derive(Clone, Copy, Debug)]
struct Translation {
    page: u64,
    first_line: u64,
}

const NO_PAGE: u64 = u64::MAX;
const NONE: Translation = Translation { page: NO_PAGE, first_line: 0 };

/// Sets that any first cache has at least, or a multiple of them.
const SETS: usize = 64;

/// A virtual CPU.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Vcpu {
    /// Accesses to memory while the model was on.
    pub accesses: u64,
    user: [Translation; USER],
    /// Of all lines whose numbers agree in these bits, the one accessed last: it is the most recently used one of its set in
    /// the first cache, where an access to it changes nothing. Twice its number, and 1 if it is dirty there.
    latest: [u64; SETS],
    /// The load that last fed each register.
    pub writers: Writers,
    system: [Translation; SYSTEM],
    /// User pages that QEMU translates, in the modelled TLB or not.
    known: [Translation; SYSTEM],
    /// Pages that left the modelled TLB in this turn, each in the place of its number; [`NO_PAGE`] where there is none.
    evicted: Box<[u64; EVICTED]>,
    /// It has halted.
    pub idle: bool,
}

impl Vcpu {
    /// One that has seen nothing; all but the first wait to be started.
    pub fn new(first: bool) -> Vcpu {
        Vcpu {
            accesses: 0,
            user: [NONE; USER],
            latest: [u64::MAX; SETS],
            writers: NO_WRITERS,
            system: [NONE; SYSTEM],
            known: [NONE; SYSTEM],
            evicted: Box::new([NO_PAGE; EVICTED]),
            idle: !first,
        }
    }

    /// Whether an address is the kernel's.
    #[inline(always)]
    pub fn is_kernel(address: u64) -> bool {
        address >= KERNEL
    }

    /// The line of an address, if its page was seen lately.
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

    /// Whether an access of a line is sure to hit the first cache and to change nothing there.
    #[inline(always)]
    pub fn changes_nothing(&self, line: u64, write: bool) -> bool {
        let latest = self.latest[line as usize % SETS];
        latest == (line << 1 | 1) || (!write && latest == line << 1)
    }

    /// Notes an access that the first cache has seen.
    #[inline(always)]
    pub fn note(&mut self, line: u64, write: bool) {
        let latest = &mut self.latest[line as usize % SETS];
        let dirty = u64::from(write) | if *latest >> 1 == line { *latest & 1 } else { 0 };
        *latest = line << 1 | dirty;
    }

    /// Notes where a page lies.
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

    /// Has a user page that the modelled TLB did not hold again, if it is known where it lies; gives the address's line.
    pub fn recall(&mut self, address: u64) -> Option<u64> {
        let page = address >> 12;
        let known = self.known[page as usize % SYSTEM];
        if Vcpu::is_kernel(address) || known.page != page {
            return None;
        }
        self.user[page as usize % USER] = known;
        Some(known.first_line + (address >> 6) % 64)
    }

    /// A user page left the modelled TLB. Gives a page that QEMU must drop at once; the others wait for the end of the turn.
    pub fn evict(&mut self, page: u64) -> Option<u64> {
        let slot = &mut self.user[page as usize % USER];
        if slot.page == page {
            *slot = NONE;
        }
        let before = std::mem::replace(&mut self.evicted[page as usize % EVICTED], page);
        (before != NO_PAGE && before != page).then_some(before)
    }

    /// Takes the pages that left the modelled TLB in this turn.
    pub fn take_evicted(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.evicted.iter_mut().map(|page| std::mem::replace(page, NO_PAGE)).filter(|&page| page != NO_PAGE)
    }

    /// Forgets where all pages lie.
    pub fn forget_all(&mut self) {
        self.user = [NONE; USER];
        self.system = [NONE; SYSTEM];
        self.known = [NONE; SYSTEM];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_line_of_a_set_changes_nothing() {
        let mut vcpu = Vcpu::new(true);
        assert!(!vcpu.changes_nothing(5, false));
        vcpu.note(5, false);
        assert!(vcpu.changes_nothing(5, false) && !vcpu.changes_nothing(5, true));
        vcpu.note(5, true);
        vcpu.note(5, false);
        assert!(vcpu.changes_nothing(5, true));
        vcpu.note(5 + 64, false);
        assert!(!vcpu.changes_nothing(5, false));
        vcpu.note(5, false);
        assert!(!vcpu.changes_nothing(5, true), "what the cache did with it since is not known");
    }

    #[test]
    fn a_page_is_known_until_forgotten_or_displaced() {
        let mut vcpu = Vcpu::new(true);
        assert_eq!(vcpu.line(0x7000_1040), None);
        vcpu.learn(0x7000_1040, 0x20_3040);
        assert_eq!(vcpu.line(0x7000_10c8), Some(0x20_30c8 >> 6));
        assert_eq!(vcpu.evict(0x7_0002), None);
        assert_eq!(vcpu.line(0x7000_1000), Some(0x20_3000 >> 6));
        assert_eq!(vcpu.evict(0x7_0001), None);
        assert_eq!(vcpu.line(0x7000_1000), None);
        assert_eq!(vcpu.recall(0x7000_1040), Some(0x20_3040 >> 6));
        assert_eq!(vcpu.evict(0x7_0001 + 512), Some(0x7_0001), "two pages have one place");
        assert_eq!(vcpu.take_evicted().collect::<Vec<_>>(), [0x7_0201, 0x7_0002]);
        assert_eq!(vcpu.take_evicted().count(), 0);
        vcpu.learn(0xffff_8880_0000_1000, 0x1000);
        vcpu.learn(0x1000, 0x5000);
        assert_eq!((vcpu.line(0xffff_8880_0000_1000), vcpu.line(0x1000)), (Some(64), Some(5 * 64)));
    }
}
