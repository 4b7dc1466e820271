//! userfaultfd(2) of another process's memory.
//!
//! Hand-written: the `userfaultfd` crate runs bindgen and so needs libclang to build.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, read};

/// Bytes per base page.
pub const PAGE: u64 = 4096;

/// `struct uffd_msg`.
const MESSAGE: usize = 32;
const EVENT_PAGEFAULT: u8 = 0x12;

const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const UNREGISTER: libc::c_ulong = 0x8010_aa01;
const WAKE: libc::c_ulong = 0x8010_aa02;
const COPY: libc::c_ulong = 0xc028_aa03;

/// Content of pages that were never written.
static ZERO_PAGE: [u8; PAGE as usize] = [0; PAGE as usize];

/// A missing-page fault; its thread waits until the fault is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The page's address.
    pub page: u64,
    /// The thread's id in its own pid namespace.
    pub tid: i32,
}

/// The missing-page faults of one address space. When dropped, the kernel resolves them again.
#[derive(Debug)]
pub struct Userfaultfd(OwnedFd);

/// Whether this process may handle faults raised in kernel mode, and receive the faulting thread's id.
///
/// # Errors
/// The kernel's.
pub fn check_permission() -> io::Result<()> {
    // SAFETY: this call takes a number alone.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    check(fd.min(0) as i32)?;
    // SAFETY: a new descriptor without another owner.
    Userfaultfd::new(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }).map(drop)
}

impl Userfaultfd {
    /// The faults of the address space in which the descriptor was created.
    ///
    /// # Errors
    /// The kernel's, if it is older than Linux 4.14.
    pub fn new(fd: OwnedFd) -> io::Result<Userfaultfd> {
        const VERSION: u64 = 0xaa;
        const THREAD_ID: u64 = 1 << 8;
        let opened = Userfaultfd(fd);
        opened.request(API, &mut [VERSION, THREAD_ID, 0])?;
        Ok(opened)
    }

    /// Registers a range: missing-page faults in it are reported from now on.
    ///
    /// # Errors
    /// The kernel's, if the range is not anonymous memory, or is already registered.
    pub fn register(&self, range: Range<u64>) -> io::Result<()> {
        const MODE_MISSING: u64 = 1;
        self.request(REGISTER, &mut [range.start, range.end - range.start, MODE_MISSING, 0])
    }

    /// The next fault; `None` if none is pending.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next(&self) -> io::Result<Option<PageFault>> {
        let mut message = [0; MESSAGE];
        loop {
            match read(&self.0, &mut message) {
                Ok(MESSAGE) if message[0] == EVENT_PAGEFAULT => break,
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        let part = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().expect("four bytes"));
        let address = u64::from(part(16)) | u64::from(part(20)) << 32;
        Ok(Some(PageFault { page: address & !(PAGE - 1), tid: part(24) as i32 }))
    }

    /// Resolves a fault with a zero page, allocated by the calling thread's memory policy, and wakes its
    /// threads.
    ///
    /// # Errors
    /// The kernel's: the page exists by now, its range is unmapped, or no memory is free.
    pub fn resolve(&self, page: u64) -> io::Result<()> {
        self.request(COPY, &mut [page, ZERO_PAGE.as_ptr() as u64, PAGE, 0, 0])
    }

    /// Wakes the threads that wait for a page; they retry.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wake(&self, page: u64) -> io::Result<()> {
        self.request(WAKE, &mut [page, PAGE])
    }

    /// Lets the kernel resolve a page, and wakes its threads.
    ///
    /// # Errors
    /// The kernel's, if the page is unmapped.
    pub fn unregister(&self, page: u64) -> io::Result<()> {
        self.request(UNREGISTER, &mut [page, PAGE])
    }

    fn request(&self, request: libc::c_ulong, argument: &mut [u64]) -> io::Result<()> {
        // SAFETY: each request's structure has the number of words given by its caller. The kernel only reads
        // the source of `COPY`, a page of this program.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument.as_mut_ptr()) })
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(returned: i32) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
