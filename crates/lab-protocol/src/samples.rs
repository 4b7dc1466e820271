//! Sampled accesses: a ring at the end of the memory of the counters' device. Written by the clock plugin and
//! read by programs in the guest.
//!
//! Little-endian 64-bit words: a head of eight, of which the first are [`MAGIC`] and the number of samples so
//! far, then [`CAPACITY`] records of [`RECORD`] words. Sample *n* is in record *n* modulo [`CAPACITY`], and
//! complete once the number is above *n*. docs/lab.md lists every word.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memtide_core::Time;

use crate::counters::{self, ReadError};

/// First word of the ring.
pub const MAGIC: u64 = u64::from_le_bytes(*b"samples\0");

/// Samples in the ring.
pub const CAPACITY: u64 = 1 << 15;

/// Words of a record.
pub const RECORD: usize = 8;

/// Words before the records.
const HEAD: usize = 8;

/// Place of the number of samples.
const NUMBER: usize = 1;

const WORDS: usize = HEAD + CAPACITY as usize * RECORD;

/// A sampled access that missed all caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Physical address of the page table.
    pub root: u64,
    /// Virtual address.
    pub address: u64,
    /// Guest-physical base page.
    pub frame: u64,
    /// The guest's number of the node.
    pub node: u64,
    /// Time on the guest's clock, in ns.
    pub guest_ns: u64,
    /// Duration of the access.
    pub latency: Time,
    /// Accesses that it stands for.
    pub period: u32,
    /// A store if true, else a load.
    pub write: bool,
}

/// Size in bytes of the device's memory for a machine with `nodes` nodes, a power of two.
pub fn device_bytes(nodes: usize) -> u64 {
    (counters::bytes(nodes) + WORDS as u64 * 8).next_power_of_two()
}

/// The writer.
#[derive(Debug)]
pub struct Writer<'a> {
    words: &'a [AtomicU64],
    written: u64,
}

impl<'a> Writer<'a> {
    /// Writes to the device's memory.
    ///
    /// # Panics
    /// If the memory is shorter than a ring.
    pub fn new(words: &'a [AtomicU64]) -> Writer<'a> {
        let words = &words[words.len() - WORDS..];
        words[NUMBER].store(0, Ordering::Relaxed);
        words[0].store(MAGIC.to_le(), Ordering::Release);
        Writer { words, written: 0 }
    }

    /// Adds a sample.
    pub fn write(&mut self, sample: &Sample) {
        let at = HEAD + (self.written % CAPACITY) as usize * RECORD;
        for (word, value) in self.words[at..at + RECORD].iter().zip(to_words(sample)) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
        self.written += 1;
        self.words[NUMBER].store(self.written.to_le(), Ordering::Release);
    }
}

fn to_words(sample: &Sample) -> [u64; RECORD] {
    let Sample { root, address, frame, node, guest_ns, latency, period, write } = *sample;
    [root, address, frame, node, guest_ns, latency.0, period.into(), write.into()]
}

fn from_words(words: &[u64; RECORD]) -> Sample {
    let [root, address, frame, node, guest_ns, latency, period, write] = words.map(u64::from_le);
    let period = u32::try_from(period).unwrap_or(u32::MAX).max(1);
    Sample { root, address, frame, node, guest_ns, latency: Time(latency), period, write: write != 0 }
}

/// The number of samples so far, by the ring's head.
fn number(head: &[u64]) -> Result<u64, ReadError> {
    if head[0] == MAGIC.to_le() { Ok(u64::from_le(head[NUMBER])) } else { Err(ReadError::Foreign) }
}

/// Reads the samples from number `from` on, as far as they are still in the ring, from a device's memory of
/// `words` words. `copy` copies a range of them. Also returns the number of the next one.
///
/// # Errors
/// If the memory has no ring, or cannot be copied.
pub fn read<E: From<ReadError>>(
    words: usize,
    from: u64,
    mut copy: impl FnMut(Range<usize>) -> Result<Vec<u64>, E>,
) -> Result<(Vec<Sample>, u64), E> {
    let start = words.checked_sub(WORDS).ok_or(ReadError::Foreign)?;
    let until = number(&copy(start..start + HEAD)?)?;
    fence(Ordering::Acquire);
    let from = from.max(until.saturating_sub(CAPACITY)).min(until);
    let record = |number: u64| start + HEAD + (number % CAPACITY) as usize * RECORD;
    // In two parts if it goes past the ring's end.
    let turn = until.min(from.next_multiple_of(CAPACITY).max(from));
    let mut words = Vec::new();
    for (from, until) in [(from, turn), (turn, until)].into_iter().filter(|(from, until)| from < until) {
        let at = record(from);
        words.extend(copy(at..at + (until - from) as usize * RECORD)?);
    }
    fence(Ordering::Acquire);
    // The writer may be in the record of the sample after `now`.
    let now = number(&copy(start..start + HEAD)?)?;
    let lost = (now + 1).saturating_sub(CAPACITY).saturating_sub(from).min(until - from);
    let samples = words.as_chunks().0.iter().skip(lost as usize).map(from_words);
    Ok((samples.collect(), until))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: usize = 2;

    fn memory() -> Vec<AtomicU64> {
        (0..device_bytes(NODES) / 8).map(|_| AtomicU64::new(0)).collect()
    }

    fn read_from(memory: &[AtomicU64], from: u64) -> (Vec<Sample>, u64) {
        let load = |words: Range<usize>| memory[words].iter().map(|word| word.load(Ordering::Relaxed));
        read(memory.len(), from, |words| Ok::<_, ReadError>(load(words).collect())).expect("a ring")
    }

    fn sample(number: u64) -> Sample {
        Sample {
            root: number << 12,
            address: number * 3,
            frame: number * 5,
            node: number % 2,
            guest_ns: number,
            latency: Time(number * 7),
            period: number as u32 + 1,
            write: number.is_multiple_of(3),
        }
    }

    #[test]
    fn samples_are_read_once_and_in_order_as_far_as_the_ring_has_them() {
        let memory = memory();
        let mut writer = Writer::new(&memory);
        assert_eq!(read_from(&memory, 0), (vec![], 0));
        let mut next = 0;
        let mut written = 0;
        // The last addition is more than the ring has.
        for added in [5, CAPACITY - 7, 3, 10, CAPACITY - 1, 2 * CAPACITY + 5] {
            (written..written + added).for_each(|number| writer.write(&sample(number)));
            written += added;
            let (samples, then) = read_from(&memory, next);
            let first = next.max((written + 1).saturating_sub(CAPACITY));
            assert_eq!(samples, (first..written).map(sample).collect::<Vec<_>>());
            assert_eq!(then, written);
            next = then;
        }
    }

    #[test]
    fn memory_is_a_power_of_two_and_the_counters_come_first() {
        assert_eq!(device_bytes(2), 4 << 20);
        let memory = memory();
        Writer::new(&memory).write(&sample(9));
        let counters = &memory[..(counters::bytes(NODES) / 8) as usize];
        assert!(counters.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let ring = &memory[memory.len() - WORDS..];
        let words: Vec<u64> = ring.iter().map(|word| u64::from_le(word.load(Ordering::Relaxed))).collect();
        assert_eq!(words[..2], [MAGIC, 1], "docs/lab.md: the number of samples");
        assert_eq!(words[8..16], [9 << 12, 27, 45, 1, 9, 63, 10, 1], "docs/lab.md: a record's words");
    }

    proptest! {
        /// Any content: reading stays in bounds, and numbers only grow.
        #[test]
        fn any_memory_is_read(head: u64, from: u64, words in prop::collection::vec(any::<u64>(), 64)) {
            let memory = memory();
            let start = memory.len() - WORDS;
            memory[start].store(MAGIC.to_le(), Ordering::Relaxed);
            memory[start + NUMBER].store(head, Ordering::Relaxed);
            for (word, value) in memory[start + HEAD..].iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            let (samples, next) = read_from(&memory, from);
            prop_assert!(samples.len() as u64 <= CAPACITY);
            prop_assert_eq!(next, u64::from_le(head));
        }
    }
}
