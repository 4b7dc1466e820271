//! The control page: 64-bit counters in native byte order, shared by every process of the recorded program.

/// Bytes in the control page.
pub const BYTES: usize = 4096;

/// First word of a control page that this version understands.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memtide1");

/// The words of the page, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// [`MAGIC`].
    Magic,
    /// Accesses of the whole program that are not recorded at its beginning.
    Skip,
    /// Accesses that are recorded at most.
    Limit,
    /// Instructions of the whole program in an epoch.
    EpochInstructions,
    /// Accesses made so far, the skipped ones included, in steps of up to 1,024 a thread.
    Accesses,
    /// Instructions retired so far, the skipped ones excluded (in steps of up to 8,192 a thread). Each item of a repeated
    /// string instruction counts as one: this is the clock by which epochs go.
    Instructions,
    /// Streams begun so far.
    Streams,
    /// Why recording stopped early: 0, or an `errno`.
    Failure,
    /// Of the accesses counted, those that threads had not made when they ended in order.
    Unmade,
}

/// Makes a control page for a new recording.
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
