//! Makes nodes of CXL memory: `cxl create-region` through sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use memtide_lab_protocol::agent::{CXL_MODULES, Expander};

use crate::counters;
use crate::modules::load;

const DEVICES: &str = "/sys/bus/cxl/devices";
const REGION_DRIVER: &str = "/sys/bus/cxl/drivers/cxl_region/bind";

/// Interleave granularity; irrelevant with one device.
const GRANULARITY: u64 = 256;

/// Time limit of a step of the kernel, in units of 10 ms.
const POLLS_MAX: u32 = 1000;
const STEP: Duration = Duration::from_millis(10);

/// Loads the drivers and makes a node of each expander.
pub fn make_nodes(expanders: &[Expander]) -> Result<(), String> {
    if expanders.is_empty() {
        return Ok(());
    }
    let failed = |what: String| format!("CXL memory cannot be made a node: {what}");
    for name in CXL_MODULES {
        load(name).map_err(failed)?;
    }
    for (window, expander) in expanders.iter().enumerate() {
        make(window, expander).map_err(|what| failed(format!("'{}': {what}", expander.name)))?;
    }
    Ok(())
}

fn make(window: usize, expander: &Expander) -> Result<(), String> {
    let endpoint = wait_for(|| endpoint(window + 1)).ok_or("the kernel does not find its device")?;
    let root = Path::new(DEVICES).join(format!("decoder0.{window}"));
    let start = number(&root.join("start"))?;
    if start != expander.start {
        return Err(format!("its window begins at {start:#x}, not at {:#x}", expander.start));
    }
    let region = region(&root, &endpoint, expander.bytes)?;
    let node = expander.node;
    let memory = format!("/sys/devices/system/node/node{node}/meminfo");
    let kib = || counters::kib(&fs::read_to_string(&memory).unwrap_or_default(), "MemTotal:");
    wait_for(|| (kib() == expander.bytes >> 10).then_some(())).ok_or_else(|| {
        let has = kib() >> 10;
        format!("node {node} has {has} MiB of {} after region {region} was made", expander.bytes >> 20)
    })
}

/// The decoder of a device, which is enabled once the kernel has attached it to a port.
fn endpoint(serial: usize) -> Option<PathBuf> {
    for entry in fs::read_dir(DEVICES).ok()? {
        let entry = entry.ok()?.path();
        let name = entry.file_name()?.to_str()?;
        let Some(number) = name.strip_prefix("endpoint") else { continue };
        if self::number(&entry.join("uport/serial")) == Ok(serial as u64) {
            return Some(Path::new(DEVICES).join(format!("decoder{number}.0"))).filter(|path| path.exists());
        }
    }
    None
}

/// Creates a region of a window and all of a device's memory, and binds its driver.
fn region(root: &Path, endpoint: &Path, bytes: u64) -> Result<String, String> {
    let create = root.join("create_ram_region");
    let region = read(&create)?;
    write(&create, &region)?;
    write(&endpoint.join("mode"), "ram")?;
    write(&endpoint.join("dpa_size"), &format!("{bytes:#x}"))?;
    let folder = Path::new(DEVICES).join(&region);
    let decoder = endpoint.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    for (file, value) in [
        ("interleave_granularity", GRANULARITY.to_string()),
        ("interleave_ways", "1".to_owned()),
        ("size", format!("{bytes:#x}")),
        ("target0", decoder.to_owned()),
        ("commit", "1".to_owned()),
    ] {
        write(&folder.join(file), &value)?;
    }
    write(Path::new(REGION_DRIVER), &region)?;
    Ok(region)
}

fn wait_for<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..POLLS_MAX {
        if let Some(found) = poll() {
            return Some(found);
        }
        thread::sleep(STEP);
    }
    None
}

fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(with(path))?;
    Ok(text.trim().to_owned())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{text:?} to {}", with(path)(error)))
}

fn number(path: &Path) -> Result<u64, String> {
    let text = read(path)?;
    let digits = text.strip_prefix("0x").map_or(text.parse(), |digits| u64::from_str_radix(digits, 16));
    digits.map_err(|_| format!("{}: '{text}' is not a number", path.display()))
}

fn with(path: &Path) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
