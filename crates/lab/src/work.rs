//! The folder of a run: all files of it are there, and all go with it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::LabError;

/// The initial file system.
pub const ARCHIVE: &str = "initrd";
/// The guest's console.
pub const CONSOLE: &str = "console";
/// What the clock plugin is to do.
pub const CLOCK: &str = "clock.json";
/// What the clock plugin found.
pub const RESULTS: &str = "results.json";
/// Memory that the clock plugin and the guest share.
pub const COUNTERS: &str = "counters";
/// QEMU's monitor, a socket.
pub const MONITOR: &str = "monitor";
/// The command line, for a folder that is kept.
pub const COMMAND: &str = "command";

/// A folder that is removed when it is dropped, unless it is kept.
pub enum Folder {
    /// To be removed.
    Passing(TempDir),
    /// To be kept.
    Kept(PathBuf),
}

impl Folder {
    /// Makes one where temporary files go, which nobody else may look into.
    pub fn new(keep: bool) -> Result<Folder, LabError> {
        let owner = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("memtide-lab-").permissions(owner).tempdir();
        let made = made.map_err(LabError::file(&std::env::temp_dir(), "make a folder in it"))?;
        Ok(if keep { Folder::Kept(made.keep()) } else { Folder::Passing(made) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Folder::Passing(folder) => folder.path(),
            Folder::Kept(path) => path,
        }
    }

    /// Where it stays, if it does.
    pub fn kept(&self) -> Option<&Path> {
        match self {
            Folder::Passing(_) => None,
            Folder::Kept(path) => Some(path),
        }
    }
}
