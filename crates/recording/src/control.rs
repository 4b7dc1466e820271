//! The control page: 64-bit counters in native byte order, shared by every process of the recorded program.

/// Bytes in the control page.
pub const BYTES: usize = 4096;

/// First word of a control page of this version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memtide2");

/// The words of the page, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// [`MAGIC`].
    Magic,
    /// Accesses of the whole program to skip at its start.
    Skip,
    /// Maximum number of accesses to record.
    Limit,
    /// Instructions of the whole program per epoch.
    EpochInstructions,
    /// Accesses made so far, including skipped ones, in steps of up to 1,024 per thread.
    Accesses,
    /// Instructions retired so far, excluding skipped ones, in steps of up to 8,192 per thread. Each item of
    /// a repeated string instruction counts as one: this is the clock of epochs.
    Instructions,
    /// Number of streams begun.
    Streams,
    /// Why recording stopped early: 0, or an `errno`.
    Failure,
    /// Accesses counted but not made by threads that have ended normally.
    Unmade,
}

/// Creates a control page for a new recording.
pub fn new_page(skip: u64, limit: u64, epoch_instructions: u64) -> Vec<u8> {
    let mut page = vec![0; BYTES];
    for (word, value) in [
        (Word::Magic, MAGIC),
        (Word::Skip, skip),
        (Word::Limit, limit),
        (Word::EpochInstructions, epoch_instructions),
    ] {
        page[word as usize * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    page
}

/// Reads a word of a control page; 0 if the page is too short.
pub fn read(page: &[u8], word: Word) -> u64 {
    let at = word as usize * 8;
    page.get(at..at + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().expect("8 bytes")))
}
