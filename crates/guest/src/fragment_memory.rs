//! Fragments free memory, as on a system in use: a program's pages get other addresses than right after boot.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::child::set_policy;
use crate::counters;
use memtide_lab_protocol::agent::MemoryPolicy;

const PAGE: usize = 4096;

/// Pages touched: at most one in this many, and at most an absolute limit.
const SHARE: usize = 8;
const MOST: usize = 16 << 10;

/// One page in this many stays allocated, so that free pages do not merge into large blocks.
const KEPT_DIVISOR: usize = 16;

/// `MPOL_DEFAULT` and `MPOL_INTERLEAVE` of the kernel's `linux/mempolicy.h`.
const DEFAULT: u32 = 0;
const INTERLEAVE: u32 = 3;

/// Touches a random number of pages on all nodes and frees most of them in random order.
pub fn fragment(seed: u64) -> Result<(), String> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let nodes = counters::now().nodes;
    let has_memory = nodes.iter().enumerate().filter(|(_, node)| node.total_kib > 0);
    let mask = has_memory.fold(0, |mask, (node, _)| mask | 1 << node);
    let kib: u64 = nodes.iter().map(|node| node.total_kib).sum();
    let most = (kib as usize * 1024 / PAGE / SHARE).clamp(2, MOST);
    let pages = most / 2 + below(&mut random, most / 2);
    let mut order: Vec<usize> = (0..pages).collect();
    for place in (1..pages).rev() {
        order.swap(place, below(&mut random, place + 1));
    }
    set_policy(MemoryPolicy { mode: INTERLEAVE, nodes: mask })
        .and_then(|()| touch_and_free(pages, &order[pages / KEPT_DIVISOR..]))
        .and_then(|()| set_policy(MemoryPolicy { mode: DEFAULT, nodes: 0 }))
        .map_err(|error| format!("cannot fragment memory: {error}"))
}

fn below(random: &mut impl Rng, bound: usize) -> usize {
    (random.next_u64() % bound as u64) as usize
}

#[allow(unsafe_code, reason = "pages of our own that nothing else refers to")]
fn touch_and_free(pages: usize, freed: &[usize]) -> std::io::Result<()> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, in whose bounds all that follows stays; it is never unmapped.
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), pages * PAGE, access, MapFlags::PRIVATE)?;
        // A kernel without huge pages refuses it.
        let _ = madvise(start, pages * PAGE, Advice::LinuxNoHugepage);
        for page in 0..pages {
            start.byte_add(page * PAGE).cast::<u8>().write_volatile(1);
        }
        for page in freed {
            madvise(start.byte_add(page * PAGE), PAGE, Advice::LinuxDontNeed)?;
        }
    }
    Ok(())
}
