//! Getting what the lab needs.

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

/// What is to be set up.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// A kernel package by the beginning of its name, such as `linux-image-7`; Linux 6.12 if `None`.
    pub kernel: Option<String>,
    /// A further suite to look for packages in, such as `trixie-backports`.
    pub suite: Option<String>,
}

/// What there is now.
#[derive(Debug)]
pub struct SetupReport {
    /// What the lab is made of.
    pub tools: Tools,
    /// Packages that were fetched or installed for it.
    pub fetched: Vec<String>,
    /// Why damo is not there, if it is not: all but the subject `damo` works without.
    pub without_damo: Option<LabError>,
    /// Where fetched kernels are.
    pub cache: PathBuf,
}

/// Finds what the lab needs, and gets what is missing: QEMU is installed if memtide runs as root on a system with
/// `apt-get`, a kernel and damo are fetched into memtide's cache, where packages are listed and kept apart from the system's own set-up.
///
/// # Errors
/// With what is missing, why, and how to get it.
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
