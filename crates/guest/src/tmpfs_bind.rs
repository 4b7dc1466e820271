//! Binds files to one node, so that they do not use the program's memory.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::path::PathBuf;

use memtide_lab_protocol::agent::TmpfsBind;
use rustix::mount::{MountFlags, mount};

/// Copies a folder's files to a tmpfs bound to the node, and frees the originals.
pub fn bind(task: &TmpfsBind) -> Result<(), String> {
    move_files(task)
        .map_err(|error| format!("{} cannot be put on node {}: {error}", task.folder.display(), task.node))
}

fn move_files(task: &TmpfsBind) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(&task.folder)? {
        files.push(take(entry?.path())?);
    }
    let options = CString::new(format!("mpol=bind:{}", task.node))?;
    mount("tmpfs", &task.folder, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))?;
    files.into_iter().try_for_each(|(path, mut from, permissions)| {
        let mut to = OpenOptions::new().write(true).create_new(true).open(&path)?;
        io::copy(&mut from, &mut to)?;
        to.set_permissions(permissions)
    })
}

/// Opens and unlinks a file: closing it frees its memory.
fn take(path: PathBuf) -> io::Result<(PathBuf, File, Permissions)> {
    let file = File::open(&path)?;
    let permissions = file.metadata()?.permissions();
    fs::remove_file(&path)?;
    Ok((path, file, permissions))
}
