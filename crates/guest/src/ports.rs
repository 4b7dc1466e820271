//! Virtio ports to the lab.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtide_lab_protocol::agent::{ERR_PORT, Message, OUT_PORT, RESULT_PORT};

const CLASS: &str = "/sys/class/virtio-ports";

/// The ports of the guest.
pub struct Ports {
    /// The program's output.
    pub out: File,
    /// The program's errors.
    pub err: File,
    result: File,
}

impl Ports {
    /// Opens the ports.
    pub fn open() -> io::Result<Ports> {
        Ok(Ports { out: port(OUT_PORT)?, err: port(ERR_PORT)?, result: port(RESULT_PORT)? })
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) {
        let mut line = message.to_json();
        line.push(b'\n');
        // An error of the port cannot be reported.
        let _ = self.result.write_all(&line);
    }
}

/// Opens a port by name; waits until the kernel has read the names.
fn port(name: &str) -> io::Result<File> {
    for _ in 0..1000 {
        if let Some(device) = device(name)? {
            return OpenOptions::new().write(true).open(device);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other(format!(
        "there is no virtio port '{name}'; the kernel needs VIRTIO_CONSOLE built in"
    )))
}

fn device(name: &str) -> io::Result<Option<PathBuf>> {
    let Ok(entries) = fs::read_dir(CLASS) else { return Ok(None) };
    for entry in entries {
        let entry = entry?;
        let has = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if has.trim_end() == name {
            return Ok(Some(Path::new("/dev").join(entry.file_name())));
        }
    }
    Ok(None)
}
