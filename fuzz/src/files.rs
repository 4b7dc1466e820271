//! Files for parsers that take a path.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// A file in memory.
pub struct MemoryFile(File);

impl MemoryFile {
    /// A file with this content.
    pub fn new(data: &[u8]) -> MemoryFile {
        let mut file = File::from(memfd_create("input", MemfdFlags::CLOEXEC).expect("a file in memory"));
        file.write_all(data).expect("memory for a file");
        MemoryFile(file)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Calls `act` with this thread's folder for temporary files, which is removed when the thread ends.
pub fn with_folder<T>(act: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    }
    FOLDER.with(|folder| act(folder.get_or_init(|| tempfile::tempdir().expect("a folder")).path()))
}
