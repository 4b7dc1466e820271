//! Cache of finished runs' results: an interrupted comparison resumes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::error::LabError;
use crate::outcome::RunOutcome;
use crate::qemu::CommandLine;
use crate::spec::GuestSpec;
use crate::{guest_files, run_dir};

/// A folder with one file per finished run.
pub struct ResultCache {
    folder: PathBuf,
}

impl ResultCache {
    /// Opens the folder; creates it if missing.
    pub fn open(folder: &Path) -> Result<ResultCache, LabError> {
        fs::create_dir_all(folder).map_err(LabError::file(folder, "make a folder for results"))?;
        Ok(ResultCache { folder: folder.to_owned() })
    }

    /// The cached result of a run; `None` if missing or incomplete.
    pub fn find(&self, key: &str) -> Option<RunOutcome> {
        serde_json::from_slice(&fs::read(self.file(key)).ok()?).ok()
    }

    /// Stores a result atomically.
    pub fn store(&self, key: &str, outcome: &RunOutcome) -> Result<(), LabError> {
        let path = self.file(key);
        let write = || -> io::Result<()> {
            let file = NamedTempFile::new_in(&self.folder)?;
            serde_json::to_writer(&file, outcome)?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(LabError::file(&path, "keep a result in it"))
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Hash of all inputs of a run's outcome: the virtual machine, the guest's files and task, the kernel and the
/// clock plugin.
pub fn key(guest: &GuestSpec) -> Result<String, LabError> {
    let mut digest = Sha256::new();
    let command_line = CommandLine { guest, kernel: Path::new(run_dir::KERNEL), clock: None };
    for argument in command_line.arguments() {
        digest.update(argument.as_encoded_bytes());
        digest.update([0]);
    }
    digest.update(guest.layout.machine.to_toml());
    digest.update(&guest.qemu_version);
    for path in [Some(guest.kernel.as_path()), guest.clock.as_deref()].into_iter().flatten() {
        let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut digest));
        read.map_err(LabError::file(path, "read it"))?;
    }
    guest_files::archive(guest)?.write_to(&mut digest, Path::new("the name of a result"))?;
    Ok(digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}
