//! The counters page: live counters, written by the clock plugin and read by programs in the guest.
//!
//! Little-endian 64-bit words: `HEAD` words, a word per node, and a record per process; the first record is
//! the sum of all others. docs/lab.md lists every word. A seqlock: the writer makes the sequence word odd,
//! writes, and makes it even; a reader that sees it change retries.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memtide_core::Time;

use crate::version::COUNTERS_LAYOUT;
use crate::{Counts, NodeCounts, Process, Who};

/// First word of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memtide\0");

/// Maximum number of processes with their own record.
pub const PROCESSES: usize = 256;

/// Maximum number of nodes.
const NODES: usize = 64;

/// Words of the head, of a record before its nodes, and of a node in a record.
const HEAD: usize = 8;
const RECORD: usize = 12;
const NODE: usize = 4;

/// Bytes of a process's name, including the terminating zero.
pub const NAME_BYTES: usize = 32;

/// Index of the sequence word, which is odd during a write.
const SEQUENCE: usize = 2;

/// Retries of a reader that meets the writer.
const TRIES: usize = 1000;

/// A consistent copy of the counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Time of the write on the guest's clock, in ns.
    pub guest_ns: u64,
    /// Whether a region of interest is active; nothing is counted outside.
    pub on: bool,
    /// The guest's number of each node.
    pub nodes: Vec<u64>,
    /// The sum over all processes.
    pub total: Counts,
    /// Every process, as in [`crate::clock::RegionTotals::processes`], but since the start of the first
    /// region of interest.
    pub processes: Vec<Process>,
}

/// Why counters cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The memory contains something else, or nothing yet.
    #[error("not the memory of memtide's counters")]
    Foreign,
    /// Another layout version.
    #[error("the counters have layout {0}; this memtide reads layout {COUNTERS_LAYOUT}")]
    Version(u64),
    /// Invalid values.
    #[error("the counters are damaged: {0}")]
    Damaged(&'static str),
    /// The writer was active at each try.
    #[error("the counters changed at each of {TRIES} tries")]
    Busy,
}

/// Size in bytes of the counters of a machine with `nodes` nodes, a power of two.
pub fn bytes(nodes: usize) -> u64 {
    let words = HEAD + nodes + (PROCESSES + 1) * (RECORD + NODE * nodes);
    (words as u64 * 8).next_power_of_two().max(memtide_core::PAGE_BYTES)
}

/// The writer.
#[derive(Debug)]
pub struct Writer<'a> {
    words: &'a [AtomicU64],
    nodes: Vec<u64>,
    sequence: u64,
}

impl<'a> Writer<'a> {
    /// Initialises memory of [`bytes`] bytes; readers find no counters yet. `nodes` are the numbers in the
    /// guest.
    ///
    /// # Panics
    /// If the memory is shorter.
    pub fn new(words: &'a [AtomicU64], nodes: &[u64]) -> Writer<'a> {
        assert!(words.len() as u64 * 8 >= bytes(nodes.len()), "memory for counters is too short");
        Writer { words, nodes: nodes.to_vec(), sequence: 0 }
    }

    /// Writes all counters. Never reads the page: others may write to it.
    ///
    /// # Panics
    /// If there are more than [`PROCESSES`] processes.
    pub fn write(&mut self, guest_ns: u64, on: bool, processes: &[Process]) {
        assert!(processes.len() <= PROCESSES);
        self.sequence += 1;
        self.words[SEQUENCE].store(self.sequence.to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
        let total = Counts::sum(self.nodes.len(), processes.iter().map(|process| &process.counts));
        let (nodes, records) = (self.nodes.len() as u64, processes.len() as u64 + 1);
        let mut at = 0;
        let mut put = |values: &[u64]| {
            for (word, value) in self.words[at..].iter().zip(values) {
                word.store(value.to_le(), Ordering::Relaxed);
            }
            at += values.len();
        };
        put(&[MAGIC, COUNTERS_LAYOUT, self.sequence, guest_ns, on.into(), nodes, records, 0]);
        put(&self.nodes);
        put_record(&mut put, [0, 0], "", &total);
        for Process { root, name, who, counts } in processes {
            put_record(&mut put, [*root, number(*who)], name, counts);
        }
        self.sequence += 1;
        self.words[SEQUENCE].store(self.sequence.to_le(), Ordering::Release);
    }
}

fn put_record(put: &mut impl FnMut(&[u64]), identity: [u64; 2], name: &str, counts: &Counts) {
    let Counts { instructions, user_instructions, accesses, llc_misses, page_walks, nodes } = counts;
    put(&identity);
    put(&words_of(name));
    put(&[*instructions, *user_instructions, *accesses, *llc_misses, *page_walks, 0]);
    for NodeCounts { reads, prefetches, writes, latency } in nodes {
        put(&[*reads, *prefetches, *writes, latency.0]);
    }
}

fn words_of(name: &str) -> [u64; NAME_BYTES / 8] {
    let mut bytes = [0; NAME_BYTES];
    let end = (0..NAME_BYTES).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    std::array::from_fn(|place| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * place + byte])))
}

fn name_of(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).replace(char::is_control, "?")
}

fn number(who: Who) -> u64 {
    match who {
        Who::Kernel => 1,
        Who::Agent => 2,
        Who::Program => 3,
    }
}

/// Reads a consistent snapshot from memory of `words` words. `copy` copies a range of them.
///
/// # Errors
/// If the memory does not contain counters, or cannot be copied.
pub fn read<E: From<ReadError>>(
    words: usize,
    mut copy: impl FnMut(Range<usize>) -> Result<Vec<u64>, E>,
) -> Result<Snapshot, E> {
    if words < HEAD {
        return Err(ReadError::Foreign.into());
    }
    for _ in 0..TRIES {
        let head = copy(0..HEAD)?;
        fence(Ordering::Acquire);
        if head[0] != MAGIC.to_le() {
            return Err(ReadError::Foreign.into());
        }
        let all = copy(0..used(&head).min(words))?;
        fence(Ordering::Acquire);
        let (before, after) = (head[SEQUENCE], copy(SEQUENCE..SEQUENCE + 1)?);
        if u64::from_le(before) % 2 == 0 && all[SEQUENCE] == before && after == [before] {
            let all: Vec<u64> = all.into_iter().map(u64::from_le).collect();
            return Ok(parse(&all)?);
        }
        std::hint::spin_loop();
    }
    Err(ReadError::Busy.into())
}

/// Number of words, by the head.
fn used(head: &[u64]) -> usize {
    let at = |place: usize| u64::from_le(head[place]) as usize;
    let (nodes, records) = (at(5).min(NODES), at(6).min(PROCESSES + 1));
    HEAD + nodes + records * (RECORD + NODE * nodes)
}

fn parse(words: &[u64]) -> Result<Snapshot, ReadError> {
    let Some((&[magic, version, _, guest_ns, on, nodes, records, _], rest)) =
        words.split_first_chunk::<HEAD>()
    else {
        return Err(ReadError::Foreign);
    };
    if magic != MAGIC {
        return Err(ReadError::Foreign);
    }
    if version != COUNTERS_LAYOUT {
        return Err(ReadError::Version(version));
    }
    let (nodes, records) = (nodes as usize, records as usize);
    if !(1..=NODES).contains(&nodes) || !(1..=PROCESSES + 1).contains(&records) {
        return Err(ReadError::Damaged("more nodes or processes than there can be"));
    }
    let record = RECORD + NODE * nodes;
    if rest.len() != nodes + records * record {
        return Err(ReadError::Damaged("it is shorter than it says"));
    }
    let (numbers, rest) = rest.split_at(nodes);
    let total = counts(&rest[..record]);
    let processes = rest[record..].chunks(record).map(|words| {
        let who = match words[1] {
            1 => Who::Kernel,
            2 => Who::Agent,
            3 => Who::Program,
            _ => return Err(ReadError::Damaged("a process is nobody's")),
        };
        Ok(Process { root: words[0], name: name_of(&words[2..6]), who, counts: counts(words) })
    });
    let processes = processes.collect::<Result<_, _>>()?;
    Ok(Snapshot { guest_ns, on: on != 0, nodes: numbers.to_vec(), total, processes })
}

/// The figures of a record.
fn counts(record: &[u64]) -> Counts {
    let node = |words: &[u64]| NodeCounts {
        reads: words[0],
        prefetches: words[1],
        writes: words[2],
        latency: Time(words[3]),
    };
    Counts {
        instructions: record[6],
        user_instructions: record[7],
        accesses: record[8],
        llc_misses: record[9],
        page_walks: record[10],
        nodes: record[RECORD..].chunks_exact(NODE).map(node).collect(),
    }
}

#[cfg(test)]
mod tests;
