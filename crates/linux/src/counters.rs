//! The lab's counters, in the memory of a PCI device of the guest: an emulated CPU's replacement for hardware
//! counters.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::counters::{self, ReadError, Snapshot};
use memtide_lab_protocol::samples::{self, Sample};

use crate::sys::SharedWords;

const DEVICES: &str = "/sys/bus/pci/devices";

/// QEMU's ivshmem (docs/specs/ivshmem-spec), whose memory is its third resource.
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
const MEMORY: &str = "resource2";

/// Maximum size of the memory, for any machine.
const MOST_BYTES: u64 = 1 << 24;

/// Why counters cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// No such device.
    #[error("there are no counters here: only a guest of the lab has them")]
    None,
    /// The device's memory cannot be mapped.
    #[error("{path}: the counters cannot be read ({source}){}",
        if source.kind() == io::ErrorKind::PermissionDenied { "; only root may" } else { "" })]
    Device {
        /// The device's memory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The content is not in the format that this version reads.
    #[error("{path}: {source}")]
    Content {
        /// The device's memory.
        path: PathBuf,
        /// What is wrong.
        source: ReadError,
    },
}

/// Why a snapshot cannot be read.
enum Unread {
    Device(io::Error),
    Content(ReadError),
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Unread {
        Unread::Content(error)
    }
}

/// The counters of the guest that this process runs in.
#[derive(Debug)]
pub struct Counters {
    path: PathBuf,
    memory: SharedWords,
}

impl Counters {
    /// Opens the counters.
    ///
    /// # Errors
    /// If there are none, or they are not readable.
    pub fn open() -> Result<Counters, CountersError> {
        Counters::open_in(Path::new(DEVICES))
    }

    fn open_in(devices: &Path) -> Result<Counters, CountersError> {
        let entries = fs::read_dir(devices).map_err(|_| CountersError::None)?;
        let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.sort();
        let is = |device: &Path, name: &str, id: &str| {
            fs::read_to_string(device.join(name)).is_ok_and(|text| text.trim() == id)
        };
        let mine =
            found.into_iter().find(|device| is(device, "vendor", VENDOR) && is(device, "device", DEVICE));
        let path = mine.ok_or(CountersError::None)?.join(MEMORY);
        let map = || {
            let file = File::open(&path)?;
            let bytes = file.metadata()?.len().min(MOST_BYTES);
            SharedWords::map(&file, bytes as usize)
        };
        match map() {
            Ok(memory) => Ok(Counters { path, memory }),
            Err(source) => Err(CountersError::Device { path, source }),
        }
    }

    /// The sampled accesses from number `from` on, and the number of the next one.
    ///
    /// # Errors
    /// If the memory has no samples in a format that this version reads, or is gone.
    pub fn samples(&self, from: u64) -> Result<(Vec<Sample>, u64), CountersError> {
        let read =
            samples::read(self.memory.len(), from, |words| self.memory.copy(words).map_err(Unread::Device));
        read.map_err(|unread| self.error(unread))
    }

    /// A consistent snapshot of the counters.
    ///
    /// # Errors
    /// If the memory does not contain counters in a format that this version reads, or is gone.
    pub fn read(&self) -> Result<Snapshot, CountersError> {
        let read = counters::read(self.memory.len(), |words| self.memory.copy(words).map_err(Unread::Device));
        read.map_err(|unread| self.error(unread))
    }

    fn error(&self, unread: Unread) -> CountersError {
        let path = self.path.clone();
        match unread {
            Unread::Device(source) => CountersError::Device { path, source },
            Unread::Content(source) => CountersError::Content { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use memtide_lab_protocol::counters::MAGIC;

    use super::*;

    fn device(devices: &Path, name: &str, id: &str, words: &[u64]) {
        let folder = devices.join(name);
        fs::create_dir(&folder).expect("a folder");
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let files = [("vendor", VENDOR.as_bytes()), ("device", id.as_bytes()), (MEMORY, &memory)];
        for (file, text) in files {
            fs::write(folder.join(file), text).expect("a file");
        }
    }

    #[test]
    fn device_is_found_and_its_content_checked() {
        let devices = tempfile::tempdir().expect("a folder");
        let open = || Counters::open_in(devices.path());
        device(devices.path(), "1", "0x1000", &[0; 512]);
        assert!(matches!(open(), Err(CountersError::None)), "another device of the same vendor");
        let mut words = vec![0; 512];
        words[..8].copy_from_slice(&[MAGIC, 1, 2, 9, 1, 1, 1, 0]);
        device(devices.path(), "2", "0x1110\n", &words);
        let seen = open().and_then(|counters| counters.read()).expect("counters");
        assert_eq!((seen.guest_ns, seen.processes.len()), (9, 0));
        fs::write(devices.path().join("2").join(MEMORY), [7; 4096]).expect("other content");
        let wrong = open().and_then(|counters| counters.read()).expect_err("it is foreign");
        assert!(wrong.to_string().contains("not the memory of memtide"), "{wrong}");
        fs::write(devices.path().join("2").join(MEMORY), []).expect("no content");
        assert!(matches!(open(), Err(CountersError::Device { .. })), "nothing can be mapped");
    }

    #[test]
    fn truncated_memory_is_an_error_without_signal() {
        let devices = tempfile::tempdir().expect("a folder");
        let mut words = vec![0; 1024];
        words[..8].copy_from_slice(&[MAGIC, 1, 2, 9, 1, 1, 200, 0]);
        device(devices.path(), "1", DEVICE, &words);
        let counters = Counters::open_in(devices.path()).expect("counters");
        assert!(
            matches!(counters.read(), Err(CountersError::Content { .. })),
            "it is too short for 200 records"
        );
        let file = File::options().write(true).open(devices.path().join("1").join(MEMORY)).expect("a file");
        for bytes in [4096, 0] {
            file.set_len(bytes).expect("a shorter file");
            assert!(matches!(counters.read(), Err(CountersError::Device { .. })), "{bytes} bytes");
        }
    }

    #[test]
    fn missing_device_is_an_error_that_names_the_lab() {
        let none = Counters::open_in(Path::new("/no/such/bus")).expect_err("there is none");
        assert!(
            matches!(none, CountersError::None) && none.to_string().contains("guest of the lab"),
            "{none}"
        );
    }
}
