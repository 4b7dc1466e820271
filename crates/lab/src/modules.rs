//! Drivers for CXL and shared memory, which Debian's kernel has as modules.

use std::fs;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::{CXL_MODULES, MODULES, SHARED_MODULES};

use crate::archive::Archive;
use crate::error::{LabError, Remedy};
use crate::layout::Layout;

/// Their folders in the kernel's module folder.
const FOLDERS: [&str; 4] =
    ["kernel/drivers/dax", "kernel/drivers/dax/hmem", "kernel/drivers/cxl", "kernel/drivers/nvdimm"];

/// Adds the modules that a layout needs.
pub fn add(layout: &Layout, kernel: &Path, archive: &mut Archive) -> Result<(), LabError> {
    let shared = layout.shared().next().map(|_| SHARED_MODULES.as_slice());
    let cxl = layout.cxl().next().map(|_| CXL_MODULES.as_slice());
    for (names, what) in [(shared, "shared memory"), (cxl, "CXL memory")] {
        for name in names.into_iter().flatten() {
            let file = find(kernel, name).map_err(|missing| LabError::Missing {
                what: format!("{missing}; {what} needs it"),
                remedy: Remedy::FetchedKernel,
            })?;
            archive.host(&Path::new(MODULES).join(name), &file);
        }
    }
    Ok(())
}

/// A module of an unpacked kernel package.
fn find(kernel: &Path, name: &str) -> Result<PathBuf, String> {
    let missing = || format!("the module {name} of the kernel {} is not beside it", kernel.display());
    let release = modules(kernel).ok_or_else(missing)?;
    let places = FOLDERS.map(|folder| release.join(folder).join(name));
    places.into_iter().find(|path| path.is_file()).ok_or_else(missing)
}

/// The module folder of its release, in `lib` or `usr/lib`.
fn modules(kernel: &Path) -> Option<PathBuf> {
    let root = kernel.ancestors().find(|folder| folder.join("lib/modules").is_dir())?;
    let mut releases = fs::read_dir(root.join("lib/modules")).ok()?;
    releases.find_map(|entry| Some(entry.ok()?.path()).filter(|path| path.join("kernel").is_dir()))
}
