//! Two chases with a fixed number of instructions between their loads.

use super::Chain;

/// Numbers of instructions that [`Chain::follow_apart`] has loops for, ascending.
pub const INSTRUCTIONS: [u16; 24] = [
    32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 832,
    896, 960, 1024,
];

/// Assembly of `groups` times eight instructions: five have an integer result, two are a compare and its
/// branch, one is a store; two are accesses to memory, which hit the first cache.
#[cfg(target_arch = "x86_64")]
macro_rules! mix {
    () => {
        concat!(
            ".rept {groups}\n",
            "add {a}, 1\n",
            "mov {b}, [{cached}]\n",
            "lea {c}, [{cached} + 1]\n",
            "cmp {cached}, {cached}\n",
            "jne 2f\n",
            "mov [{cached} + 8], {cached}\n",
            "add {d}, 3\n",
            "add {e}, 1\n",
            ".endr",
        )
    };
}

impl Chain {
    /// Follows the chain from two words, `steps` dependent loads from each. This many instructions, of a mix
    /// as in integer programs, follow each load. Returns the last indices; `None` on processors other than
    /// x86-64, and for numbers not in [`INSTRUCTIONS`].
    ///
    /// # Panics
    /// If one of `from` is not a valid index.
    pub fn follow_apart(&self, from: [u64; 2], steps: u64, instructions: u16) -> Option<[u64; 2]> {
        assert!(from.iter().all(|&from| (from as usize) < self.0.len), "a chain begins in its memory");
        self.follow_apart_by(from, steps, instructions)
    }

    #[cfg(target_arch = "x86_64")]
    fn follow_apart_by(&self, from: [u64; 2], steps: u64, instructions: u16) -> Option<[u64; 2]> {
        macro_rules! by {
            ($($count:literal)*) => {
                match instructions {
                    $($count => Some(self.apart::<$count>(from, steps)),)*
                    _ => None,
                }
            };
        }
        by!(32 64 96 128 160 192 224 256 288 320 352 384 416 448 480 512 576 640 704 768 832 896 960 1024)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn follow_apart_by(&self, _: [u64; 2], _: u64, _: u16) -> Option<[u64; 2]> {
        None
    }

    #[cfg(target_arch = "x86_64")]
    fn apart<const INSTRUCTIONS: u16>(&self, [mut first, mut second]: [u64; 2], steps: u64) -> [u64; 2] {
        let start = self.0.start.as_ptr();
        let mut cached = [0_u64; 2];
        for _ in 0..steps {
            // SAFETY: every word is below the length, and so are `first` and `second`; the other accesses
            // are to `cached`. The branches are never taken, as the compared values are equal.
            unsafe {
                std::arch::asm!(
                    "mov {first}, [{start} + 8*{first}]",
                    mix!(),
                    "mov {second}, [{start} + 8*{second}]",
                    mix!(),
                    "2:",
                    groups = const INSTRUCTIONS / 8,
                    start = in(reg) start,
                    cached = in(reg) cached.as_mut_ptr(),
                    first = inout(reg) first,
                    second = inout(reg) second,
                    a = inout(reg) 0_u64 => _,
                    b = out(reg) _,
                    c = out(reg) _,
                    d = inout(reg) 0_u64 => _,
                    e = inout(reg) 0_u64 => _,
                    options(nostack),
                );
            }
        }
        [first, second]
    }
}
