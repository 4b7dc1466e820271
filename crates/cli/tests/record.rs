//! `memtide record` as a shell sees it: exit codes, signals, progress.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const MEMTIDE: &str = env!("CARGO_BIN_EXE_memtide");

/// Whether programs can be recorded here; the plugin is built beside the command.
fn can_record() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        if Command::new("qemu-x86_64").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(
                std::env::var_os("CI").is_none(),
                "qemu-x86_64 is missing: sudo apt-get install qemu-user"
            );
            eprintln!("skipped: qemu-x86_64 is missing: sudo apt-get install qemu-user");
            return false;
        }
        let target = Path::new(MEMTIDE).ancestors().nth(2).unwrap();
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "memtide-recorder", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(build.unwrap().success());
        true
    })
}

/// Begins to record into a folder; the options end with `--` and the program.
fn recording(folder: &Path, options: &[&str]) -> Child {
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let mut command = Command::new(MEMTIDE);
    command.arg("record").arg("--plugin").arg(plugin).arg("-o").arg(folder.join("trace")).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap()
}

fn record(options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = recording(folder.path(), options).wait_with_output().unwrap();
    assert_eq!(left(folder.path()), ["trace"]);
    output
}

fn left(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn the_programs_own_exit_status_is_passed_on() {
    if !can_record() {
        return;
    }
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -TERM $$", 143)] {
        let output = record(&["--", "/bin/bash", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("of the program"), "{script}");
    }
}

#[test]
fn what_is_no_plugin_is_named_before_the_program_runs() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for plugin in ["/etc/passwd", "/bin/true", "/etc", "no-such-file"] {
        let trace = folder.path().join("trace");
        let output = Command::new(MEMTIDE)
            .args(["record", "--plugin", plugin, "-o"])
            .arg(&trace)
            .args(["--", "/bin/true"])
            .output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert!(error.contains(&format!("--plugin {plugin}: ")) && !error.contains("qemu"), "{error}");
    }
    assert!(left(folder.path()).is_empty());
}

/// Ends a recording and its program if the test does not, in half a minute: a program for ever would fill the disk.
fn ended_at_last(child: &Child) -> Sender<()> {
    let (guard, dropped) = channel();
    let group = format!("-{}", child.id());
    std::thread::spawn(move || {
        if dropped.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
    });
    guard
}

/// A program that waits for a signal, and what becomes of it under these traps.
#[track_caller]
fn ended_by(trap: &str, signals: &[&str], code: i32) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{trap}; echo ready; while :; do :; done");
    let mut child = recording(folder.path(), &["--limit", "1000000", "--", "/bin/bash", "-c", &script]);
    let _guard = ended_at_last(&child);
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).expect("it says that it is ready");
    for name in signals {
        signal(name, child.id());
        // Signals that come sooner after each other are one request.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None, "{trap}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{trap}: {error}");
    assert_eq!(left(folder.path()), ["trace"], "{trap}");
    let info =
        Command::new(MEMTIDE).args(["trace", "info"]).arg(folder.path().join("trace")).output().unwrap();
    assert!(info.status.success(), "{trap}");
}

#[test]
fn a_signal_to_memtide_alone_ends_the_program_and_keeps_the_trace() {
    if can_record() {
        ended_by("true", &["-INT"], 130);
        ended_by("trap 'exit 3' TERM", &["-TERM"], 3);
        ended_by("trap '' INT", &["-INT", "-INT"], 137);
    }
}

/// `timeout` sends its signal to memtide, and then to memtide and the program.
#[test]
fn what_timeout_ends_is_kept() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", "4", MEMTIDE, "record", "--plugin"]).arg(plugin);
    command.arg("-o").arg(folder.path().join("trace"));
    let output = command.args(["--", "/bin/bash", "-c", "while :; do :; done"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{error}");
    assert_eq!(left(folder.path()), ["trace"], "{error}");
    let info =
        Command::new(MEMTIDE).args(["trace", "info"]).arg(folder.path().join("trace")).output().unwrap();
    assert!(info.status.success());
}

#[test]
fn the_program_is_not_replaced_by_its_trace() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("trace");
    std::fs::copy("/bin/true", &program).unwrap();
    let before = std::fs::read(&program).unwrap();
    let output = recording(folder.path(), &["--", program.to_str().unwrap()]).wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("exists and is not a trace"), "{error}");
    assert_eq!(std::fs::read(&program).unwrap(), before);
}

#[test]
fn a_trace_without_accesses_says_why() {
    if can_record() {
        let output = record(&["--skip", "99999999999", "--", "/bin/true"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.contains("--skip 99999999999 leaves out all"), "{error}");
    }
}

#[test]
fn an_interrupt_while_the_trace_is_written_leaves_nothing() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut long = tempfile::NamedTempFile::new().unwrap();
    long.write_all(&[7; 8 << 20]).unwrap();
    let child = recording(folder.path(), &["--", "/usr/bin/sha256sum", long.path().to_str().unwrap()]);
    let begun = Instant::now();
    while !left(folder.path()).iter().any(|name| name.starts_with(".memtide-trace-")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", left(folder.path()));
        std::thread::sleep(Duration::from_millis(5));
    }
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(left(folder.path()).is_empty());
}

#[test]
fn a_terminal_is_told_how_far_the_recording_is() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let line = format!(
        "{MEMTIDE} record --plugin {} -o {}/trace -- /bin/sleep 3",
        plugin.display(),
        folder.path().display()
    );
    let output =
        Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let news: Vec<&str> = shown.lines().filter(|line| line.contains("accesses so far")).collect();
    assert!(output.status.success() && (1..=3).contains(&news.len()), "{shown}");
    assert!(news[0].contains("kB on disk, 1 s") || news[0].contains("MB on disk, 1 s"), "{shown}");
}

fn streams_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let entries: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
    let size = |entry: &std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => streams_bytes(&entry.path()),
        false if entry.file_name().to_string_lossy().starts_with("stream-") => {
            entry.metadata().unwrap().len()
        }
        false => 0,
    };
    entries.iter().map(size).sum()
}

fn wait_until(what: &str, happened: impl Fn() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < Duration::from_secs(300), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn program_of_a_killed_recorder_runs_on_unrecorded() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| folder.path().join(name));
    let script = format!(
        "while [ ! -e {go} ]; do :; done; for ((i = 0; i < 3000; i++)); do :; done; : > {done}",
        go = go.display(),
        done = done.display()
    );
    let mut killed = recording(folder.path(), &["--", "/bin/bash", "-c", &script]);
    const WINDOW: u64 = 1 << 18;
    wait_until("the program is recorded", || streams_bytes(folder.path()) > 2 * WINDOW);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = streams_bytes(folder.path());
    std::fs::write(&go, "").unwrap();
    wait_until("the program ends", || done.exists());
    let more = streams_bytes(folder.path()) - before;
    assert!(more <= WINDOW, "{more} B were recorded after the recorder was killed");
    let output = recording(folder.path(), &["--", "/bin/true"]).wait_with_output().unwrap();
    assert!(output.status.success());
    let mut left = left(folder.path());
    left.sort();
    assert_eq!(left, ["done", "go", "trace"]);
}
