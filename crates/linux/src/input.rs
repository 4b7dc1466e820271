//! Input files named by the user.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};

/// Opens a file for reading without blocking: a FIFO without a writer reads as empty.
///
/// # Errors
/// If it cannot be opened, or is a directory.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder; give a file"));
    }
    // Reads of a pipe that has a writer block as usual.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn fifo_without_writer_is_empty_and_directory_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        let mut read = Vec::new();
        open(&fifo).and_then(|mut file| file.read_to_end(&mut read)).expect("nothing to wait for");
        assert!(read.is_empty());
        assert_eq!(open(folder.path()).expect_err("a folder").to_string(), "it is a folder; give a file");
    }
}
