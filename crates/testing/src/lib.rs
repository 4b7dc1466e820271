//! Tests that cannot run on a system: each is recorded, and `make test` lists them at its end.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

/// The record's name below Cargo's target directory. A line per test: its program, `::`, its name, `: `, why.
pub const RECORD: &str = "tests-not-run";

/// Records that the calling test does not run here, and why. Call it on the test's own thread, then return
/// from the test.
///
/// # Panics
/// With `CI=true` in the environment, where every test must run; if the record cannot be written.
pub fn not_run(reason: &str) {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "with CI=true every test must run: {reason}");
    record(reason);
}

/// Records that a part of the calling test does not run here, and why, also with `CI=true`: for parts that
/// need something that `make setup` does not install. Call it on the test's own thread.
///
/// # Panics
/// If the record cannot be written.
pub fn not_run_in_part(reason: &str) {
    record(&format!("in part: {reason}"));
}

fn record(reason: &str) {
    let program = env::current_exe().expect("the test's file");
    let record = record_of(&program).expect("the test's file is below Cargo's target directory");
    append(&record, &entry(&program, thread::current().name(), reason));
}

/// The record of the target directory that a test's program is in: TARGET/PROFILE/deps/PROGRAM.
fn record_of(program: &Path) -> Option<PathBuf> {
    Some(program.ancestors().nth(3)?.join(RECORD))
}

/// A test's line, by its program and its thread, which the test harness names after the test.
fn entry(program: &Path, test: Option<&str>, reason: &str) -> String {
    let file = program.file_stem().unwrap_or_default().to_string_lossy();
    let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{name}::{}: {reason}\n", test.unwrap_or("unknown"))
}

/// Appends a line in one write, so that tests in several processes can do so.
fn append(record: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(record);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", record.display()));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn entry_has_program_test_and_reason_in_one_line() {
        let program = Path::new("/target/debug/deps/lab-0123456789abcdef");
        assert_eq!(entry(program, Some("a::b"), "no\n  such tool"), "lab::a::b: no such tool\n");
        assert_eq!(record_of(program).unwrap(), Path::new("/target").join(RECORD));
    }

    #[test]
    fn tests_report_what_they_cannot_run() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut folders = vec![crates.to_owned()];
        let silent = ["eprintln!(\"skipped", "eprintln!(\"without", "println!(\"skipped"];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() && !entry.ends_with("target") {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "rs")
                    && !entry.ends_with("testing/src/lib.rs")
                {
                    let text = fs::read_to_string(&entry).unwrap();
                    let found = silent.iter().find(|word| text.contains(**word));
                    assert_eq!(found, None, "{}: use memtide_testing::not_run", entry.display());
                }
            }
        }
    }
}
