//! The folder of a run, with all of its files.

use std::env;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::{NamedTempFile, TempDir};

use crate::error::LabError;

/// The kernel, unpacked.
pub const KERNEL: &str = "vmlinux";
/// The initial file system.
pub const ARCHIVE: &str = "initrd";
/// The guest's console.
pub const CONSOLE: &str = "console";
/// The clock plugin's configuration.
pub const CLOCK: &str = "clock.json";
/// The clock plugin's results.
pub const RESULTS: &str = "results.json";
/// Memory shared by the clock plugin and the guest.
pub const COUNTERS: &str = "counters";
/// QEMU's control socket (QMP).
pub const QMP_SOCKET: &str = "monitor";
/// Present once the guest's agent has started.
pub const BOOTED: &str = "booted";
/// QEMU's command line, for a kept folder.
pub const COMMAND: &str = "command";

/// Lock file, locked while the folder is in use.
const LOCK: &str = "lock";

const PREFIX: &str = "memtide-lab-";

/// A folder that is removed on drop, unless kept.
pub enum RunDir {
    /// To be removed.
    Temporary {
        /// The folder.
        folder: TempDir,
        /// Its lock.
        _lock: File,
    },
    /// To be kept.
    Kept(PathBuf),
}

impl RunDir {
    /// Creates a private one in the folder for temporary files, and removes those left behind by killed
    /// processes.
    pub fn new(keep: bool) -> Result<RunDir, LabError> {
        let place = env::temp_dir();
        remove_left(&place);
        let owner = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix(PREFIX).permissions(owner).tempdir_in(&place);
        let folder = made.map_err(LabError::file(&place, "make a folder in it"))?;
        if keep {
            return Ok(RunDir::Kept(folder.keep()));
        }
        let _lock = lock(folder.path()).map_err(LabError::file(folder.path(), "lock it"))?;
        Ok(RunDir::Temporary { folder, _lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            RunDir::Temporary { folder, .. } => folder.path(),
            RunDir::Kept(path) => path,
        }
    }

    /// Its path if it is kept.
    pub fn kept(&self) -> Option<&Path> {
        match self {
            RunDir::Temporary { .. } => None,
            RunDir::Kept(path) => Some(path),
        }
    }
}

/// Locks a folder. The lock file gets its name only after it is locked.
fn lock(folder: &Path) -> io::Result<File> {
    let file = NamedTempFile::new_in(folder)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file.persist(folder.join(LOCK))?)
}

/// Removes this user's folders whose lock is not held.
fn remove_left(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for folder in named.map(|entry| entry.path()).filter(|folder| is_left(folder).unwrap_or(false)) {
        // Another process may remove it first.
        let _ = fs::remove_dir_all(folder);
    }
}

fn is_left(folder: &Path) -> io::Result<bool> {
    let known = fs::symlink_metadata(folder)?;
    if !known.is_dir() || known.uid() != rustix::process::getuid().as_raw() {
        return Ok(false);
    }
    Ok(flock(File::open(folder.join(LOCK))?, FlockOperation::NonBlockingLockShared).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_killed_processes_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let [left, used, kept, others] =
            ["memtide-lab-left", "memtide-lab-used", "memtide-lab-kept", "others"].map(folder);
        drop(lock(&left).unwrap());
        drop(lock(&others).unwrap());
        let held = lock(&used).unwrap();
        fs::write(left.join("initrd"), "files").unwrap();
        std::os::unix::fs::symlink(&left, place.path().join("memtide-lab-link")).unwrap();
        remove_left(place.path());
        assert_eq!([left, used, kept, others].map(|folder| folder.exists()), [false, true, true, true]);
        drop(held);
    }
}
