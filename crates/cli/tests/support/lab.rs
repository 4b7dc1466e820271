//! Scripts in a guest.

use std::env;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::MEMTIDE;

/// Standard output and standard error of a script in a guest with `memtide` and these files. It must succeed.
#[track_caller]
pub fn script(options: &[&str], files: &[&str], script: &str) -> (String, String) {
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "--file", &format!("{MEMTIDE}:/bin/memtide")]).args(options);
    files.iter().for_each(|file| _ = command.args(["--file", file]));
    let run = command.args(["--", "sh", "-c", script]).output().expect("memtide runs");
    let [out, stderr] = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{out}\n{stderr}");
    assert!(run.status.success(), "{out}\n{stderr}\n{}", panics(&stderr));
    (out, stderr)
}

/// The panic messages of a test in the guest, for the end of a long output.
fn panics(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    let panics = lines.windows(3).filter(|part| part[0].contains(" panicked at "));
    panics.flatten().copied().collect::<Vec<_>>().join("\n")
}

/// The running test binary, to run it in a guest.
pub fn this_test() -> String {
    env::current_exe().expect("this test's file").display().to_string()
}

/// Set where the running test runs in a guest.
pub const IN_GUEST: &str = "MEMTIDE_TEST_IN_GUEST";

/// Share of a subject's traffic on the first of two nodes, in the JSON of `lab compare`.
pub fn traffic_share(compared: &Value, row: usize, nodes: [&str; 2]) -> f64 {
    let traffic = |node| compared["subjects"][row][format!("{node}_traffic_mb")].as_f64().expect("a figure");
    let [of, other] = nodes.map(traffic);
    of / (of + other)
}

/// Compiles a C program of this folder.
#[track_caller]
pub fn compile(folder: &Path, name: &str) -> String {
    let source = format!("{}/tests/support/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(name).to_str().expect("a name").to_owned();
    let cc = ["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-O2", "-static", "-pthread", &source, "-o"];
    assert!(Command::new("cc").args(cc).arg(&program).status().expect("a C compiler").success());
    program
}

/// Flushes the emulated CPU's TLB: without the model it never evicts translations, and pages would look idle.
/// Unmapping memory flushes it.
pub fn flush_tlb() {
    let mut memory = vec![0u8; 64 << 20];
    memory.iter_mut().step_by(4096).take(64).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
