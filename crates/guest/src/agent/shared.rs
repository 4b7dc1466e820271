//! Shared memory as devices that programs map.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use memtide_guest::{MODULE_FILES, MODULES, SHARED_DEVICES, Shared};
use rustix::system::finit_module;

/// The file is as its package has it (`MODULE_INIT_COMPRESSED_FILE` of the kernel's `linux/module.h`).
const COMPRESSED: i32 = 4;

const DEVICES: &str = "/sys/bus/dax/devices";
const DRIVER: &str = "/sys/bus/dax/drivers/device_dax/new_id";

/// Loads the drivers and makes a device of each memory.
pub fn make_devices(shared: &[Shared]) -> Result<(), String> {
    if shared.is_empty() {
        return Ok(());
    }
    let failed = |what: &str| format!("shared memory cannot be made a device: {what}");
    let [device, finder, kernels_own] = MODULE_FILES;
    for name in [device, finder] {
        load(name).map_err(|error| failed(&format!("module {name}: {error}")))?;
    }
    for memory in shared {
        make(memory).map_err(|error| failed(&format!("'{}': {error}", memory.name)))?;
    }
    // It takes what is not a device yet, so it comes last.
    load(kernels_own).map_err(|error| failed(&format!("module {kernels_own}: {error}")))
}

fn load(name: &str) -> io::Result<()> {
    let file = File::open(Path::new(MODULES).join(name))?;
    Ok(finit_module(&file, c"", COMPRESSED)?)
}

fn make(memory: &Shared) -> io::Result<()> {
    let device = find(memory.start)?.ok_or_else(|| io::Error::other("the kernel has not found it"))?;
    fs::write(DRIVER, &device)?;
    fs::create_dir_all(SHARED_DEVICES)?;
    symlink(PathBuf::from("/dev").join(&device), Path::new(SHARED_DEVICES).join(&memory.name))
}

/// The name of the kernel's device for the memory that begins there.
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
