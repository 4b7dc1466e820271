//! The lab's cache of fetched files.

pub mod damo;
pub mod kernels;

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{LabError, Remedy};

/// `memtide/NAME` in the user's cache folder (XDG base directories); `None` if the user has none.
pub fn cache_folder(name: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("memtide").join(name))
}

/// The lab's cache folder.
pub fn folder() -> Result<PathBuf, LabError> {
    cache_folder("lab").ok_or_else(|| LabError::Missing {
        what: "there is no folder for what the lab fetches".to_owned(),
        remedy: Remedy::CacheFolder,
    })
}

/// Creates the folder and locks it against other setups until the returned file is closed.
pub fn lock(folder: &Path) -> Result<File, LabError> {
    fs::create_dir_all(folder).map_err(LabError::file(folder, "make it"))?;
    let path = folder.join("lock");
    let locked = File::create(&path)
        .and_then(|file| flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from).map(|()| file));
    locked.map_err(LabError::file(&path, "lock it"))
}

/// Default folder for results of comparisons: `memtide/lab/results` in the user's cache folder.
///
/// # Errors
/// If the user has no cache folder.
pub fn results_folder() -> Result<PathBuf, LabError> {
    Ok(folder()?.join("results"))
}
