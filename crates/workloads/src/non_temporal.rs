//! Non-temporal stores on the host's own memory.

use std::sync::atomic::AtomicU64;

/// Stores numbers past the caches: two at a time (x86's `movntpd`) where they are aligned, else one
/// (`movnti`). Other threads may access them only after this one's [`fence`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code, reason = "instructions that Rust has no safe names for")]
pub(crate) fn store<const N: usize>(cells: &[AtomicU64; N], values: [f64; N]) {
    use std::arch::x86_64::{_mm_set_pd, _mm_stream_pd, _mm_stream_si64};
    let start: *mut f64 = cells.as_ptr().cast_mut().cast();
    // Arrays of a page and more, which the allocator maps, are always aligned.
    let pairs = if start.addr().is_multiple_of(16) { N / 2 } else { 0 };
    for pair in 0..pairs {
        // SAFETY: two of the cells, 16 bytes at a multiple of 16, which may be written through a shared
        // reference; no other thread accesses them before the fence. Every x86-64 processor has SSE2.
        unsafe {
            let both = _mm_set_pd(values[2 * pair + 1], values[2 * pair]);
            _mm_stream_pd(start.add(2 * pair), both);
        }
    }
    for (cell, value) in cells.iter().zip(values).skip(2 * pairs) {
        // SAFETY: a cell, as above.
        unsafe { _mm_stream_si64(cell.as_ptr().cast(), value.to_bits().cast_signed()) }
    }
}

/// Ordinary stores: this processor's non-temporal ones have no name in Rust.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn store<const N: usize>(cells: &[AtomicU64; N], values: [f64; N]) {
    for (cell, value) in cells.iter().zip(values) {
        cell.store(value.to_bits(), std::sync::atomic::Ordering::Relaxed);
    }
}

/// Orders this thread's earlier non-temporal stores before all that follow.
#[inline(always)]
#[allow(unsafe_code, reason = "an instruction that Rust has no safe name for")]
pub(crate) fn fence() {
    // SAFETY: a fence, which every x86-64 processor has.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn fenced_stores_are_those_of_ordinary_ones_at_any_alignment() {
        for first in 0..4 {
            let cells: Vec<AtomicU64> = (0..100).map(AtomicU64::new).collect();
            let (chunks, rest) = cells[first..].as_chunks::<5>();
            for (at, chunk) in (1..).zip(chunks) {
                store(chunk, std::array::from_fn(|lane| f64::from(at) + lane as f64 / 8.0));
            }
            fence();
            for (at, chunk) in (1..).zip(chunks) {
                let values = chunk.each_ref().map(|cell| f64::from_bits(cell.load(Relaxed)));
                assert_eq!(values, std::array::from_fn(|lane| f64::from(at) + lane as f64 / 8.0));
            }
            let untouched = cells[..first].iter().chain(rest);
            assert!(untouched.map(|cell| cell.load(Relaxed)).all(|bits| bits < 100));
        }
    }
}
