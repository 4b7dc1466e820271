//! Makes mappable devices of shared memory.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::{SHARED_DEVICES, SHARED_MODULES, Shared};

use crate::modules::load;

const DEVICES: &str = "/sys/bus/dax/devices";
const DRIVER: &str = "/sys/bus/dax/drivers/device_dax/new_id";

/// Loads the drivers and creates a device for each memory.
pub fn make_devices(shared: &[Shared]) -> Result<(), String> {
    if shared.is_empty() {
        return Ok(());
    }
    let failed = |what: String| format!("shared memory cannot be made a device: {what}");
    let [device, finder, kernels_own] = SHARED_MODULES;
    for name in [device, finder] {
        load(name).map_err(failed)?;
    }
    for memory in shared {
        make(memory).map_err(|error| failed(format!("'{}': {error}", memory.name)))?;
    }
    // Last: it claims all memory that is not a device yet.
    load(kernels_own).map_err(failed)
}

fn make(memory: &Shared) -> io::Result<()> {
    let device = find(memory.start)?.ok_or_else(|| io::Error::other("the kernel has not found it"))?;
    fs::write(DRIVER, &device)?;
    fs::create_dir_all(SHARED_DEVICES)?;
    symlink(PathBuf::from("/dev").join(&device), Path::new(SHARED_DEVICES).join(&memory.name))
}

/// Name of the kernel's device for the memory at this address.
fn find(start: u64) -> io::Result<Option<String>> {
    for entry in fs::read_dir(DEVICES)? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path().join("resource"))?;
        if u64::from_str_radix(text.trim().trim_start_matches("0x"), 16) == Ok(start) {
            return Ok(entry.file_name().into_string().ok());
        }
    }
    Ok(None)
}
