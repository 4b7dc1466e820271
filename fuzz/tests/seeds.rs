//! Replays every seed of every target.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use memtide_fuzz::{TARGETS, check};

/// Seeds are small: they are in every clone and every test run.
const BYTES_MAX: u64 = 1 << 20;

fn here(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn names(folder: &str) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    files(&here(folder)).iter().map(stem).collect()
}

#[test]
fn targets_binaries_and_seeds_correspond() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "a target is listed twice");
    assert_eq!(names("seeds"), targets);
    assert_eq!(names("fuzz_targets"), targets);
    assert!(names("dictionaries").is_subset(&targets));
    let manifest = fs::read_to_string(here("Cargo.toml")).expect("the manifest");
    for (name, _) in TARGETS {
        assert!(!files(&here("seeds").join(name)).is_empty(), "{name} has no seeds");
        assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "{name} has no [[bin]]");
        let program =
            fs::read_to_string(here("fuzz_targets").join(format!("{name}.rs"))).expect("its program");
        assert!(program.contains(&format!("::{name}, data")), "{name} runs another target");
    }
}

#[test]
fn seeds_are_small() {
    let size = |path: &PathBuf| path.metadata().expect("a file").len();
    let bytes: u64 =
        TARGETS.iter().flat_map(|(name, _)| files(&here("seeds").join(name))).map(|path| size(&path)).sum();
    assert!(bytes < BYTES_MAX, "{bytes} bytes");
}

/// One test for all: memory is measured for the whole process.
#[test]
fn seeds_pass_all_targets() {
    for (name, target) in TARGETS {
        for path in files(&here("seeds").join(name)) {
            let data = fs::read(&path).expect("a file");
            let checked = std::panic::catch_unwind(|| check(target, &data));
            assert!(checked.is_ok(), "{} fails", path.display());
        }
    }
}
