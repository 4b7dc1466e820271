//! Sets `MEMTIDE_MODEL`, a hash of the code that results of runs depend on, by which `memtide repro` caches
//! them: all crates but the command and the experiments, what the command runs simulations with, and the
//! versions of dependencies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Crates that no result depends on, and folders in the others.
const WITHOUT: [&str; 5] = ["cli", "experiments", "tests", "benches", "examples"];

fn main() -> io::Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two levels deep");
    let mut paths = vec![root.join("Cargo.lock"), root.join("crates/cli/src/runs")];
    paths.extend(sorted(&root.join("crates"))?);
    let mut digest = Sha256::new();
    for path in &paths {
        println!("cargo:rerun-if-changed={}", path.display());
        add(&mut digest, root, path)?;
    }
    let hash: String = digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo:rustc-env=MEMTIDE_MODEL={hash}");
    Ok(())
}

/// Adds a file, or the files of a folder and its folders.
fn add(digest: &mut Sha256, root: &Path, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return sorted(path)?.iter().try_for_each(|path| add(digest, root, path));
    }
    let content = fs::read(path)?;
    let name = path.strip_prefix(root).unwrap_or(path).as_os_str().as_encoded_bytes();
    for part in [name, &content] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    Ok(())
}

/// What results depend on in a folder.
fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !WITHOUT.iter().any(|name| path.ends_with(name)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
