//! Memory that several guests have: a file of the host, which is a device in each of them.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memtide_guest::{MODULE_FILES, MODULES, Shared};

use crate::archive::Archive;
use crate::{LabError, Layout};

/// The kernel's drivers for it, in its folder of modules.
const DRIVERS: &str = "kernel/drivers/dax";

/// What the agent makes devices of.
pub fn devices(layout: &Layout) -> Vec<Shared> {
    let of = |node: usize| Shared { name: layout.nodes[node].name.clone(), start: layout.start(node) };
    layout.shared().map(|(node, _)| of(node)).collect()
}

/// Makes the files that are not there, checks those that are, and puts the drivers into the guest.
pub fn prepare(layout: &Layout, kernel: &Path, archive: &mut Archive) -> Result<(), LabError> {
    for (node, file) in layout.shared() {
        of_size(file, layout.nodes[node].mib << 20)
            .map_err(LabError::file(file, "share it between guests"))?;
    }
    if layout.shared().next().is_none() {
        return Ok(());
    }
    let folder = drivers(kernel).ok_or_else(|| LabError::Missing {
        what: format!("the modules of the kernel {} are not beside it", kernel.display()),
        remedy: "shared memory needs them: take a kernel that memtide lab setup has fetched".to_owned(),
    })?;
    for name in MODULE_FILES {
        let places = [folder.join(name), folder.join("hmem").join(name)];
        let file = places.iter().find(|path| path.is_file()).ok_or_else(|| LabError::Missing {
            what: format!("module {name} is not in {}", folder.display()),
            remedy: "shared memory needs it: take Debian's kernel".to_owned(),
        })?;
        archive.host(&Path::new(MODULES).join(name), file);
    }
    Ok(())
}

/// The drivers of the kernel of an unpacked package, whose modules are in `lib` or `usr/lib`.
fn drivers(kernel: &Path) -> Option<PathBuf> {
    let root = kernel.ancestors().find(|folder| folder.join("lib/modules").is_dir())?;
    let releases = fs::read_dir(root.join("lib/modules")).ok()?;
    releases.filter_map(|entry| Some(entry.ok()?.path().join(DRIVERS))).find(|path| path.is_dir())
}

fn of_size(path: &Path, bytes: u64) -> io::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(file) => file.set_len(bytes),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let known = fs::metadata(path)?;
            if known.is_file() && known.len() == bytes {
                return Ok(());
            }
            Err(io::Error::other(format!(
                "it is no plain file of {bytes} bytes, the node's memory; remove it"
            )))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_must_be_of_the_nodes_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        of_size(&path, 4096).unwrap();
        fs::write(&path, [7; 4096]).unwrap();
        of_size(&path, 4096).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 4096], "what is in it stays");
        assert!(of_size(&path, 8192).unwrap_err().to_string().contains("no plain file of 8192 bytes"));
        assert!(of_size(folder.path(), 4096).is_err());
    }
}
