//! Memory shared by several guests: a host file, which is a device in each guest.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memtide_lab_protocol::agent::Shared;

use crate::error::LabError;
use crate::layout::Layout;

/// Shared memory for the agent's task.
pub fn devices(layout: &Layout) -> Vec<Shared> {
    let of = |node: usize| Shared { name: layout.nodes[node].name.clone(), start: layout.start(node) };
    layout.shared().map(|(node, _)| of(node)).collect()
}

/// Creates missing files, and checks existing ones.
pub fn prepare(layout: &Layout) -> Result<(), LabError> {
    for (node, file) in layout.shared() {
        of_size(file, layout.nodes[node].mib << 20)
            .map_err(LabError::file(file, "share it between guests"))?;
    }
    Ok(())
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
                "it is not a regular file of {bytes} bytes, the node's memory; remove it"
            )))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_is_created_once_with_node_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        of_size(&path, 4096).unwrap();
        fs::write(&path, [7; 4096]).unwrap();
        of_size(&path, 4096).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 4096], "what is in it stays");
        assert!(of_size(&path, 8192).unwrap_err().to_string().contains("not a regular file of 8192 bytes"));
        assert!(of_size(folder.path(), 4096).is_err());
    }
}
