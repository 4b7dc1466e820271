//! Finished runs, by content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtide_sim::Report;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Hash of the model, the workloads and the policies (`build.rs`).
const MODEL: &str = env!("MEMTIDE_MODEL");

/// Runs of models that were not used for this long are removed.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);

/// A folder with a file for each finished run of this model.
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens or creates the folder; the user's if none is given.
    pub fn open(folder: Option<&Path>) -> Result<Cache, Failure> {
        let all = match folder {
            Some(folder) => folder.to_owned(),
            None => memtide_lab::cache_folder("repro").ok_or_else(|| {
                Failure::Run("there is no folder for finished runs; set HOME, or give --cache".to_owned())
            })?,
        };
        let folder = all.join(MODEL);
        fs::create_dir_all(&folder).map_err(|error| Failure::unwritable(folder.display(), &error))?;
        // Marks it as used.
        let used = folder.join("used");
        fs::write(&used, "").map_err(|error| Failure::unwritable(used.display(), &error))?;
        remove_unused(&all);
        Ok(Cache { folder })
    }

    /// A run's report; `None` if missing or incomplete.
    pub fn find(&self, key: &str) -> Option<Report> {
        serde_json::from_slice(&fs::read(self.file(key)).ok()?).ok()
    }

    /// Stores a run's report atomically.
    pub fn store(&self, key: &str, report: &Report) -> Result<(), Failure> {
        let path = self.file(key);
        let write = || -> io::Result<()> {
            let file = NamedTempFile::new_in(&self.folder)?;
            serde_json::to_writer(&file, report)?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|error| Failure::unwritable(path.display(), &error))
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Hash of parts, each of which ends where it says.
pub fn key(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Removes what only takes space. Failures do not matter.
fn remove_unused(all: &Path) {
    let is_old = |folder: &Path| {
        let used = fs::metadata(folder.join("used")).and_then(|used| used.modified());
        used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since > UNUSED))
    };
    for folder in fs::read_dir(all).into_iter().flatten().flatten() {
        if is_old(&folder.path()) {
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_depends_on_where_parts_end() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }
}
