//! Files that get their name once they are complete.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// The folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file next to `path` with the permissions of a new one, removed unless renamed.
pub fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    // Less the user's mask.
    let permissions = Permissions::from_mode(0o666);
    Builder::new().prefix(".memtide-").permissions(permissions).tempfile_in(folder_of(path))
}
