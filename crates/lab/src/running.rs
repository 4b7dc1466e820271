//! Registry of running virtual machines, for other commands of the same user.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cache;
use crate::error::LabError;

/// A running virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// Process id of its `memtide lab`, which identifies it.
    pub run: u32,
    /// Its machine.
    pub machine: String,
    /// Its program.
    pub program: String,
    /// Its hotpluggable nodes.
    pub nodes: Vec<HotplugNode>,
    /// Its folder, with the monitor socket.
    pub(crate) folder: PathBuf,
}

/// A node whose memory can be plugged in and unplugged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotplugNode {
    /// Its name in the machine file.
    pub name: String,
    /// Its memory in MiB.
    pub mib: u64,
    /// Its node number in the virtual machine.
    pub(crate) number: usize,
    /// Guest-physical start address of its memory.
    pub(crate) start: u64,
}

/// A registry entry. Locked while the virtual machine runs; removed on drop.
pub struct Entry {
    path: PathBuf,
    _lock: File,
}

impl Drop for Entry {
    fn drop(&mut self) {
        // An entry without a lock is removed by its next reader.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder of entries, private to the user.
fn folder() -> Result<PathBuf, LabError> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("memtide"),
        None => cache::folder()?.join("running"),
    };
    let make = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let made = fs::symlink_metadata(&folder)?;
        let own = made.uid() == rustix::process::getuid().as_raw();
        if own && made.is_dir() && made.mode() & 0o077 == 0 {
            return Ok(());
        }
        Err(io::Error::other("other users can access it; chmod 700 it, or remove it"))
    };
    make().map_err(LabError::file(&folder, "keep running virtual machines in it"))?;
    Ok(folder)
}

/// Registers a virtual machine.
pub fn enter(running: &Running) -> Result<Entry, LabError> {
    let folder = folder()?;
    let path = folder.join(format!("{}.json", running.run));
    let enter = || -> io::Result<File> {
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        serde_json::to_writer(&mut file, running)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file.persist(&path)?)
    };
    let _lock = enter().map_err(LabError::file(&path, "enter a running virtual machine"))?;
    Ok(Entry { path, _lock })
}

/// All running virtual machines with hotpluggable nodes, sorted by process id.
///
/// # Errors
/// If there is no folder for entries.
pub fn running() -> Result<Vec<Running>, LabError> {
    let folder = folder()?;
    let entries =
        fs::read_dir(&folder).map_err(LabError::file(&folder, "look for running virtual machines"))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let mut all: Vec<Running> = named.filter_map(|path| read(&path)).collect();
    all.sort_by_key(|running| running.run);
    Ok(all)
}

/// Reads an entry; removes it if its process was killed.
fn read(path: &Path) -> Option<Running> {
    let file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        // A concurrent reader may remove it first.
        let _ = fs::remove_file(path);
        return None;
    }
    serde_json::from_reader(io::BufReader::new(file)).ok()
}
