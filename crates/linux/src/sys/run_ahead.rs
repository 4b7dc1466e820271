//! Many chases at once, with a fixed number of instructions or stores for each load.

use super::Chain;

/// Chases of [`Chain::follow_apart`].
pub const CHASES: usize = 32;

/// What is between two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Instructions per load, its own included, of a mix as in integer programs: one of [`INSTRUCTIONS`].
    Instructions(u16),
    /// Stores per load: one of [`STORES`].
    Stores(u16),
}

/// Numbers of instructions per load that [`Chain::follow_apart`] has loops for, ascending.
pub const INSTRUCTIONS: [u16; 12] = [21, 29, 37, 45, 53, 61, 77, 93, 125, 189, 253, 509];

/// Numbers of stores per load that [`Chain::follow_apart`] has loops for, ascending.
pub const STORES: [u16; 11] = [3, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97];

impl Chain {
    /// Follows the chain from several words in turn, `steps` dependent loads from each; `at` are the indices.
    /// Returns false, and does nothing, on processors other than x86-64, and for numbers without a loop.
    ///
    /// # Panics
    /// If one of `at` is not a valid index.
    pub fn follow_apart(&self, at: &mut [u64; CHASES], steps: u64, between: Between) -> bool {
        assert!(at.iter().all(|&at| (at as usize) < self.0.len), "a chain begins in its memory");
        self.follow_apart_by(at, steps, between)
    }

    #[cfg(target_arch = "x86_64")]
    fn follow_apart_by(&self, at: &mut [u64; CHASES], steps: u64, between: Between) -> bool {
        macro_rules! by {
            ($loop:ident, $count:ident: $($literal:literal)*) => {
                match $count {
                    $($literal => self.$loop::<$literal>(at, steps),)*
                    _ => return false,
                }
            };
        }
        match between {
            Between::Instructions(count) => {
                by!(among_instructions, count: 21 29 37 45 53 61 77 93 125 189 253 509);
            }
            Between::Stores(count) => by!(among_stores, count: 3 5 7 9 13 17 25 33 49 65 97),
        }
        true
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn follow_apart_by(&self, _: &mut [u64; CHASES], _: u64, _: Between) -> bool {
        false
    }

    /// A load has five instructions of the loop, and groups of eight: of these, five have an integer result,
    /// two are a compare and its branch, and one is a store; two access memory, and hit the first cache.
    #[cfg(target_arch = "x86_64")]
    fn among_instructions<const INSTRUCTIONS: u16>(&self, at: &mut [u64; CHASES], steps: u64) {
        let start = self.0.start.as_ptr();
        let mut cached = [0_u64; 2];
        for _ in 0..steps {
            // SAFETY: every word is below the length, and so is each of `at`, which the loop reads and writes
            // from its end to its start; the other accesses are to `cached`. The inner branches are never
            // taken, as the compared values are equal.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "mov {next}, [{at} + 8*{chase} - 8]",
                    "mov {next}, [{start} + 8*{next}]",
                    "mov [{at} + 8*{chase} - 8], {next}",
                    ".rept {groups}",
                    "add {a}, 1",
                    "mov {b}, [{cached}]",
                    "lea {c}, [{cached} + 1]",
                    "cmp {cached}, {cached}",
                    "jne 3f",
                    "mov [{cached} + 8], {cached}",
                    "add {d}, 3",
                    "add {e}, 1",
                    ".endr",
                    "3:",
                    "dec {chase}",
                    "jnz 2b",
                    groups = const INSTRUCTIONS / 8,
                    start = in(reg) start,
                    at = in(reg) at.as_mut_ptr(),
                    cached = in(reg) cached.as_mut_ptr(),
                    chase = inout(reg) CHASES => _,
                    next = out(reg) _,
                    a = inout(reg) 0_u64 => _,
                    b = out(reg) _,
                    c = out(reg) _,
                    d = inout(reg) 0_u64 => _,
                    e = inout(reg) 0_u64 => _,
                    options(nostack),
                );
            }
        }
    }

    /// A load has one store of the loop, and others that hit the first cache.
    #[cfg(target_arch = "x86_64")]
    fn among_stores<const STORES: u16>(&self, at: &mut [u64; CHASES], steps: u64) {
        let start = self.0.start.as_ptr();
        let mut cached = [0_u64; 2];
        for _ in 0..steps {
            // SAFETY: as above; the other stores are to `cached`.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "mov {next}, [{at} + 8*{chase} - 8]",
                    "mov {next}, [{start} + 8*{next}]",
                    "mov [{at} + 8*{chase} - 8], {next}",
                    ".rept {pairs}",
                    "mov [{cached}], {cached}",
                    "mov [{cached} + 8], {cached}",
                    ".endr",
                    "dec {chase}",
                    "jnz 2b",
                    pairs = const STORES / 2,
                    start = in(reg) start,
                    at = in(reg) at.as_mut_ptr(),
                    cached = in(reg) cached.as_mut_ptr(),
                    chase = inout(reg) CHASES => _,
                    next = out(reg) _,
                    options(nostack),
                );
            }
        }
    }
}
