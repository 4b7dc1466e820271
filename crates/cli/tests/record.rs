//! `memtide record` in a shell: exit codes, signals, progress.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::support::{MEMTIDE, has_program};

/// Whether programs can be recorded here; if not, the test is recorded as not run. The plugin is built beside
/// the command.
fn can_record() -> bool {
    if !has_program("qemu-x86_64", &["--version"], "qemu-user") {
        return false;
    }
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let target = Path::new(MEMTIDE).ancestors().nth(2).unwrap();
        let build = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "memtide-recorder", "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(build.unwrap().success());
    });
    true
}

/// Starts recording into a folder; the options end with `--` and the program.
fn recording(folder: &Path, options: &[&str]) -> Child {
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let mut command = Command::new(MEMTIDE);
    command.arg("record").arg("--plugin").arg(plugin).arg("-o").arg(folder.join("trace")).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap()
}

fn record(options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output = recording(folder.path(), options).wait_with_output().unwrap();
    assert_eq!(files(folder.path()), ["trace"]);
    output
}

fn files(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn exit_status_of_program_is_passed_on() {
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
fn invalid_plugin_is_refused_before_program_runs() {
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
    assert!(files(folder.path()).is_empty());
}

/// Time after which a program counts as hanging, on any host.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

/// Kills a hanging recording and its program, as an endless one would fill the disk; dropping the sender
/// cancels.
fn kill_if_hanging(child: &Child) -> Sender<()> {
    let (guard, dropped) = channel();
    let group = format!("-{}", child.id());
    std::thread::spawn(move || {
        if dropped.recv_timeout(HANG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
    });
    guard
}

fn has_children(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let children = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    threads.flatten().any(|thread| children(thread).is_ok_and(|children| !children.trim().is_empty()))
}

/// Checks the exit code of a recording whose program has a trap, after a signal to memtide and, with `next`,
/// further ones.
#[track_caller]
fn assert_exit_after_signal(trap: &str, first: &str, next: Option<&str>, code: i32) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{trap}; echo ready; while :; do :; done");
    let mut child = recording(folder.path(), &["--limit", "1000000", "--", "/bin/bash", "-c", &script]);
    let _guard = kill_if_hanging(&child);
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).expect("the program is ready");
    signal(first, child.id());
    if let Some(next) = next {
        // Signals within a second are one request, and the first may arrive late: repeat until the program
        // has ended.
        std::thread::sleep(Duration::from_millis(1100));
        while has_children(child.id()) {
            signal(next, child.id());
            let again = Instant::now() + Duration::from_secs(10);
            while has_children(child.id()) && Instant::now() < again {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), None, "{trap}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{trap}: {error}");
    assert_eq!(files(folder.path()), ["trace"], "{trap}");
    let info =
        Command::new(MEMTIDE).args(["trace", "info"]).arg(folder.path().join("trace")).output().unwrap();
    assert!(info.status.success(), "{trap}");
}

#[test]
fn signal_to_memtide_stops_program_and_keeps_trace() {
    if can_record() {
        assert_exit_after_signal("true", "-INT", None, 130);
        assert_exit_after_signal("trap 'exit 3' TERM", "-TERM", None, 3);
        assert_exit_after_signal("trap '' INT", "-INT", Some("-INT"), 137);
    }
}

/// `timeout` signals memtide, and then memtide and the program. SIGALRM triggers its timeout.
#[test]
fn timeout_keeps_trace() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", "3600", MEMTIDE, "record", "--plugin"]).arg(plugin);
    command.arg("-o").arg(folder.path().join("trace"));
    command.args(["--", "/bin/bash", "-c", "echo ready; while :; do :; done"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _guard = kill_if_hanging(&child);
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).expect("the program is ready");
    signal("-ALRM", child.id());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{error}");
    assert_eq!(files(folder.path()), ["trace"], "{error}");
    let info =
        Command::new(MEMTIDE).args(["trace", "info"]).arg(folder.path().join("trace")).output().unwrap();
    assert!(info.status.success());
}

#[test]
fn figures_go_to_file() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (trace, figures) = (folder.path(), tempfile::tempdir().unwrap());
    let file = figures.path().join("figures");
    let name = file.to_str().unwrap();
    let options = ["--figures", name, "--output", "json", "--", "/bin/sh", "-c", "echo program >&2; exit 3"];
    let output = recording(trace, &options).wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(3), &b"program\n"[..]));
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(figures["recorded"][0]["program_status"], "exit status: 3");
}

#[test]
fn trace_does_not_overwrite_program() {
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
fn recording_without_accesses_fails_and_keeps_earlier_trace() {
    if can_record() {
        let folder = tempfile::tempdir().unwrap();
        let first = recording(folder.path(), &["--", "/bin/true"]).wait_with_output().unwrap();
        assert!(first.status.success(), "{first:?}");
        let earlier = std::fs::read(folder.path().join("trace")).unwrap();
        let skip = ["--skip", "99999999999", "--", "/bin/true"];
        let output = recording(folder.path(), &skip).wait_with_output().unwrap();
        assert_eq!(std::fs::read(folder.path().join("trace")).unwrap(), earlier);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(125) && error.contains("--skip 99999999999 omits all"),
            "{error}"
        );
    }
}

#[test]
fn interrupt_during_trace_write_leaves_no_file() {
    if !can_record() {
        return;
    }
    // Longer runs have longer trace writes: on any host, one of them is interrupted during the write.
    for mib in [8, 16, 32, 64] {
        let folder = tempfile::tempdir().unwrap();
        let mut input = tempfile::NamedTempFile::new().unwrap();
        input.write_all(&vec![7; mib << 20]).unwrap();
        let child = recording(folder.path(), &["--", "/usr/bin/sha256sum", input.path().to_str().unwrap()]);
        wait_until("the trace is written", || {
            files(folder.path()).iter().any(|name| name.starts_with(".memtide-trace-"))
        });
        signal("-INT", child.id());
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            continue;
        }
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(files(folder.path()).is_empty());
        return;
    }
    panic!("every trace was written before the interrupt");
}

#[test]
fn recording_on_terminal_prints_progress() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plugin = Path::new(MEMTIDE).ancestors().nth(2).unwrap().join("debug/libmemtide_recorder.so");
    let go = folder.path().join("go");
    let program = format!("until [ -e {} ]; do :; done", go.display());
    let line = format!(
        "{MEMTIDE} record --limit 1000000 --plugin {} -o {}/trace -- /bin/bash -c '{program}'",
        plugin.display(),
        folder.path().display()
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let shown = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut progress = shown.filter(|line| line.contains("accesses so far"));
    let [first, second] = [(); 2].map(|()| progress.next().expect("progress every second"));
    std::fs::write(&go, "").unwrap();
    progress.for_each(drop);
    assert!(child.wait().unwrap().success());
    assert!(first.contains("kB on disk, ") || first.contains("MB on disk, "), "{first}");
    let seconds = |line: &str| -> u64 {
        let time = line.rsplit_once(" on disk, ").unwrap().1;
        time.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("no seconds in {line}"))
    };
    assert!(1 <= seconds(&first) && seconds(&first) < seconds(&second), "{first}\n{second}");
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

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < HANG_TIMEOUT, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn program_survives_killed_recorder_unrecorded() {
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
    let mut files = files(folder.path());
    files.sort();
    assert_eq!(files, ["done", "go", "trace"]);
}
