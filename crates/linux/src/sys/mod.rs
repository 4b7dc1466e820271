//! System calls without a safe library wrapper. The only module of this crate with `unsafe`.

#![allow(unsafe_code, reason = "system calls on memory")]

pub mod advice;
pub mod pagemap;
pub mod perf;
pub mod run_ahead;
pub mod time;
pub mod trace;
pub mod transparent_huge_pages;
pub mod userfaultfd;
pub mod vector;

use std::fs::File;
use std::io::{self, Read, pipe};
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null, null_mut};

use memtide_core::{NodeId, PAGE_BYTES, PageSize};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::process::Pid;

/// A memory policy's mode (set_mempolicy(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// The system default.
    Default = libc::MPOL_DEFAULT,
    /// The nearest of these nodes, no other.
    Bind = libc::MPOL_BIND,
    /// This node, or the nearest one with free memory.
    Preferred = libc::MPOL_PREFERRED,
    /// Round robin over the nodes.
    Interleave = libc::MPOL_INTERLEAVE,
    /// The nearest node.
    Local = libc::MPOL_LOCAL,
    /// The nearest of these nodes, or the nearest one with free memory (Linux 5.15; linux/mempolicy.h).
    PreferredMany = 5,
    /// Weighted round robin over the nodes (Linux 6.9; linux/mempolicy.h).
    WeightedInterleave = 6,
}

/// Sets the memory policy of the calling thread, which its children inherit.
///
/// # Errors
/// The kernel's: an unknown mode, or no allowed node.
pub fn set_memory_policy(mode: Mode, nodes: &[NodeId]) -> io::Result<()> {
    let mask = node_mask(nodes.iter().copied());
    let (mask, bits) = if nodes.is_empty() { (null(), 0) } else { (mask.as_ptr(), MASK_BITS) };
    // SAFETY: the mask has as many bits as passed, or is not read.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode as i32, mask, bits) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the calling thread has no memory policy of its own.
///
/// # Errors
/// The kernel's, if it has no memory policies.
pub fn memory_policy_is_default() -> io::Result<bool> {
    let mut mode = 0i32;
    // SAFETY: the kernel writes the mode alone: no mask, address or flags are passed.
    let done =
        unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, null::<u64>(), 0, null::<u64>(), 0) };
    if done == 0 { Ok(mode == libc::MPOL_DEFAULT) } else { Err(io::Error::last_os_error()) }
}

/// Which pages move (linux/mempolicy.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Those that no other process maps (`MPOL_MF_MOVE`).
    ByOne = 1 << 1,
    /// Also others (`MPOL_MF_MOVE_ALL`), which needs CAP_SYS_NICE.
    ByAny = 1 << 2,
}

/// Moves base pages of a process, given by their addresses, each to its node; without nodes, queries the node
/// of each. A page's status is its node, or a negative errno. Returns the number of pages that were not moved
/// and have no status.
///
/// # Errors
/// The kernel's; the statuses may then not have been written. ESRCH also for a task without memory, as an
/// exiting process is, which the kernel reports as EINVAL (`find_mm_struct` in mm/migrate.c).
///
/// # Panics
/// If there are not as many nodes or statuses as pages.
pub fn move_pages(
    process: Pid,
    addresses: &[u64],
    to: Option<(&[i32], Mapped)>,
    status: &mut [i32],
) -> io::Result<u64> {
    let pages = addresses.len();
    assert!(status.len() == pages && to.is_none_or(|(to, _)| to.len() == pages), "a status for each page");
    let (nodes, mapped) = to.map_or((null(), Mapped::ByOne), |(to, mapped)| (to.as_ptr(), mapped));
    // SAFETY: three arrays of one length, or no nodes. The kernel only reads the addresses as numbers: the
    // pages are another process's, or keep their content when moved.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            process.as_raw_nonzero().get(),
            pages,
            addresses.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            mapped as i32,
        )
    };
    u64::try_from(done).map_err(|_| match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINVAL) => io::Error::from_raw_os_error(libc::ESRCH),
        error => error,
    })
}

/// Bits of a node mask: one for each [`NodeId`], and a word that the kernel ignores.
const MASK_WORDS: usize = 5;
const MASK_BITS: usize = 64 * MASK_WORDS;

fn node_mask(nodes: impl IntoIterator<Item = NodeId>) -> [u64; MASK_WORDS] {
    let mut mask = [0; MASK_WORDS];
    for node in nodes {
        mask[node.index() / 64] |= 1 << (node.index() % 64);
    }
    mask
}

/// Zeroed words on one memory node.
#[derive(Debug)]
pub struct Words {
    start: NonNull<u64>,
    len: usize,
}

/// Bytes per word.
const WORD: usize = size_of::<u64>();

/// Bytes per huge page.
const HUGE: usize = 2 << 20;

// SAFETY: the words are owned by this value alone.
unsafe impl Send for Words {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Words {}

impl Words {
    /// Maps `bytes` of memory bound to `node`, in base pages, or in huge ones as far as available. The first
    /// access to each page faults.
    ///
    /// # Errors
    /// The kernel's, if there is no such node.
    pub fn untouched(bytes: usize, node: NodeId, pages: PageSize) -> io::Result<Words> {
        let len = bytes.div_ceil(8).max(1);
        let mut words = Words { start: mapped(len * 8)?, len };
        words.bind(node, pages)?;
        Ok(words)
    }

    /// Writes to every base page.
    pub fn touch(&mut self) {
        for page in self.chunks_mut(PAGE_BYTES as usize / WORD) {
            page[0] = 0;
        }
    }

    fn bind(&mut self, node: NodeId, pages: PageSize) -> io::Result<()> {
        let mask = node_mask([node]);
        let advice = match pages {
            PageSize::Base => libc::MADV_NOHUGEPAGE,
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the mapping is this value's, not touched yet; the mask has as many bits as passed. A kernel
        // without huge pages refuses the advice, which changes nothing.
        let done = unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.len * 8, advice);
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.len * 8,
                libc::MPOL_BIND,
                mask.as_ptr(),
                MASK_BITS,
                0,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A new mapping aligned to huge pages.
fn mapped(bytes: usize) -> io::Result<NonNull<u64>> {
    // SAFETY: a new mapping at an address of the kernel's choice; the unmapped parts are unused.
    let start = unsafe {
        let all = bytes + HUGE;
        let start = mmap_anonymous(null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        let before = start.align_offset(HUGE);
        let after = (before + bytes).next_multiple_of(4096);
        if before > 0 {
            munmap(start, before)?;
        }
        munmap(start.byte_add(after), all - after)?;
        start.byte_add(before)
    };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Deref for Words {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        // SAFETY: a mapping of this length that lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and no other reference exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, without remaining references. munmap cannot fail here.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len * 8) };
    }
}

/// A shared file mapping that others may write, truncate or remove: device memory, which has no read(2).
///
/// Copied by write(2) to a pipe: the kernel returns an error for a missing page, where a load raises SIGBUS.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<u64>,
    len: usize,
}

/// Bytes that an empty pipe takes in one write.
const PIPE_BYTES: usize = 4096;

impl SharedWords {
    /// Maps `bytes` of a file read-only.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(file: &File, bytes: usize) -> io::Result<SharedWords> {
        // SAFETY: a new mapping, anywhere.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedWords { start, len: bytes / WORD })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies words that others may write concurrently.
    ///
    /// # Errors
    /// The kernel's, if the memory is gone.
    ///
    /// # Panics
    /// If the words are outside the mapping.
    pub fn copy(&self, words: Range<usize>) -> io::Result<Vec<u64>> {
        assert!(words.start <= words.end && words.end <= self.len, "words of the mapping");
        let (mut reader, writer) = pipe()?;
        let mut bytes = vec![0; words.len() * WORD];
        for (at, chunk) in (words.start * WORD..).step_by(PIPE_BYTES).zip(bytes.chunks_mut(PIPE_BYTES)) {
            // SAFETY: the bytes are in the mapping, which lives as long as `self`. Only the kernel reads
            // them.
            let written = unsafe {
                libc::write(writer.as_raw_fd(), self.start.as_ptr().byte_add(at).cast(), chunk.len())
            };
            match usize::try_from(written) {
                Ok(written) if written == chunk.len() => reader.read_exact(chunk)?,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, without remaining references. munmap cannot fail here.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len * WORD) };
    }
}

/// A pointer chase: each word is the index of another.
#[derive(Debug)]
pub struct Chain(Words);

/// Loads per iteration.
const UNROLLED: u64 = 16;

impl Chain {
    /// A chase over these words.
    ///
    /// # Panics
    /// If a word is not a valid index.
    pub fn new(words: Words) -> Chain {
        assert!(words.iter().all(|&next| (next as usize) < words.len), "a chain leaves its memory");
        Chain(words)
    }

    /// Follows the chain for `loads` dependent loads, rounded up to a multiple of 16; returns the last index.
    ///
    /// # Panics
    /// If `from` is not a valid index.
    pub fn follow(&self, from: u64, loads: u64) -> u64 {
        assert!((from as usize) < self.0.len, "a chain begins in its memory");
        let start = self.0.start.as_ptr();
        let mut at = from;
        for _ in 0..loads.div_ceil(UNROLLED) {
            for _ in 0..UNROLLED {
                // SAFETY: every word is below the length, and so is `from`.
                at = unsafe { start.add(at as usize).read() };
            }
        }
        at
    }

    /// Follows the chain from several words at once, `steps` dependent loads from each; returns the last
    /// indices.
    ///
    /// # Panics
    /// If one of `from` is not a valid index.
    pub fn follow_together<const N: usize>(&self, from: [u64; N], steps: u64) -> [u64; N] {
        assert!(from.iter().all(|&from| (from as usize) < self.0.len), "a chain begins in its memory");
        let start = self.0.start.as_ptr();
        let mut at = from;
        for _ in 0..steps {
            for at in &mut at {
                // SAFETY: every word is below the length, and so is each of `from`.
                *at = unsafe { start.add(*at as usize).read() };
            }
        }
        at
    }
}
