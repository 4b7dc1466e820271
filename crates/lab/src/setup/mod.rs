//! Setup: finds and fetches the lab's tools.

mod apt;
mod damo;
mod kernels;
mod sources;

use std::path::PathBuf;

use apt::Apt;

use crate::cache;
use crate::error::LabError;
use crate::tools::{QEMU_LEAST, Tools, qemu};

const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Options of setup.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// Name prefix of a kernel package, such as `linux-image-7`; `None`: Linux 6.12.
    pub kernel: Option<String>,
    /// A further suite to search, such as `trixie-backports`.
    pub suite: Option<String>,
}

/// Result of setup.
#[derive(Debug)]
pub struct SetupReport {
    /// The lab's tools.
    pub tools: Tools,
    /// Packages fetched or installed.
    pub fetched: Vec<String>,
    /// Why damo is missing, if it is: only the subject `damo` needs it.
    pub without_damo: Option<LabError>,
    /// Folder of fetched kernels.
    pub cache: PathBuf,
}

/// Finds the lab's tools and gets missing ones: QEMU is installed if memtide runs as root on a system with
/// `apt-get`; a kernel and damo are fetched into memtide's cache, with an apt configuration separate from the
/// system's.
///
/// # Errors
/// If a tool is still missing; says which, why, and how to get it.
pub fn setup(options: &SetupOptions) -> Result<SetupReport, LabError> {
    let cache = cache::folder()?;
    let _lock = cache::lock(&cache)?;
    let mut fetched = Vec::new();
    let mut apt = Apt::new(&cache, options.suite.as_deref());
    if let Err(what) = qemu() {
        fetched.push(apt.install(QEMU_PACKAGE, QEMU_LEAST, &what)?);
    }
    let wanted = options.kernel.as_deref();
    let is_file = wanted.is_some_and(|kernel| kernel.contains('/'));
    if !is_file && cache::kernels::fetched(&cache, wanted).is_none() {
        fetched.push(kernels::fetch(&mut apt, &cache, wanted)?);
    }
    let without_damo = match cache::damo::fetched(&cache) {
        Some(_) => None,
        None => damo::fetch(&mut apt, &cache).map(|damo| fetched.push(damo)).err(),
    };
    Ok(SetupReport { tools: Tools::find(wanted)?, fetched, without_damo, cache })
}
