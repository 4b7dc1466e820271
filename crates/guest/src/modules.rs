//! The kernel's modules.

use std::fs::File;
use std::path::Path;

use memtide_lab_protocol::agent::MODULES;
use rustix::io::Errno;
use rustix::system::finit_module;

/// The file is compressed, as in its package (`MODULE_INIT_COMPRESSED_FILE` of the kernel's
/// `linux/module.h`).
const COMPRESSED: i32 = 4;

/// Loads a module unless already loaded.
pub fn load(name: &str) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("module {name}: {why}");
    let file = File::open(Path::new(MODULES).join(name)).map_err(failed)?;
    match finit_module(&file, c"", COMPRESSED) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}
