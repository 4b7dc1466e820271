//! Every way for a program in the lab to end is reported correctly and leaves no processes or files.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use support::{MEMTIDE, has_program, lab_is_here};

/// Folder of a run's files.
struct Lab {
    folder: TempDir,
}

impl Lab {
    /// `None` if the lab's parts are missing and optional.
    fn new() -> Option<Lab> {
        lab_is_here().then(|| Lab { folder: tempfile::tempdir().expect("a folder") })
    }

    fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(MEMTIDE);
        command.env("TMPDIR", self.folder.path());
        command.args(["lab", "run", "--machine", "hinuma", "--vcpus", "1", "--timing", "off"]);
        command.args(options).arg("--").args(program).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, options: &[&str], program: &[&str]) -> (Output, String) {
        let output = self.command(options, program).output().expect("memtide runs");
        self.assert_clean();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, stderr)
    }

    /// A script for the shell.
    #[track_caller]
    fn script(&self, options: &[&str], script: &str) -> (Output, String) {
        self.run(options, &["sh", "-c", script])
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).expect("the folder of a run");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Processes that run in the folder.
    fn processes(&self) -> Vec<PathBuf> {
        let processes =
            fs::read_dir("/proc").expect("processes").filter_map(|entry| Some(entry.ok()?.path()));
        let here = |process: &PathBuf| {
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder.path()))
        };
        processes.filter(here).collect()
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        assert_eq!(self.processes(), Vec::<PathBuf>::new());
    }

    /// Starts a run and waits for its virtual machine.
    fn started(&self, program: &[&str]) -> Child {
        let mut command = self.command(&[], program);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("memtide runs");
        let started = Instant::now();
        while self.processes().is_empty() {
            assert!(started.elapsed() < HANG_TIMEOUT, "QEMU does not start");
            thread::sleep(Duration::from_millis(10));
        }
        child
    }
}

/// Time after which a process counts as hanging, on any host.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

const ENDLESS: &str = "while :; do :; done";

#[test]
fn stdout_stderr_and_status_are_separate() {
    let Some(lab) = Lab::new() else { return };
    let (output, stderr) = lab.script(&["--env", "WORD=b"], r"printf 'a\0\377%s' $WORD; echo c >&2; exit 7");
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert_eq!(output.stdout, b"a\0\xffb");
    assert!(stderr.starts_with("c\nmachine hinuma"), "{stderr}");
}

#[test]
fn figures_go_to_file_without_program_output() {
    let Some(lab) = Lab::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures");
    let figures = ["--figures", file.to_str().expect("a name"), "-o", "json"];
    let (output, stderr) = lab.script(&figures, "echo out; echo program >&2; exit 3");
    assert_eq!(
        (output.status.code(), &output.stdout[..], &stderr[..]),
        (Some(3), &b"out\n"[..], "program\n")
    );
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(&file).expect("figures")).expect("one JSON value");
    assert_eq!(figures["status"], 3);
    assert!(figures["run"][0]["guest_ns"].as_u64().is_some_and(|ns| ns > 0), "{figures}");
}

#[test]
fn script_gets_interpreter_and_files() {
    let Some(lab) = Lab::new() else { return };
    let files = tempfile::tempdir().expect("a folder");
    let (script, data) = (files.path().join("script"), files.path().join("data"));
    fs::write(&script, "#!/usr/bin/env sh\nread -r line < data && echo \"$1 $line\"\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a program");
    fs::write(&data, "words\n").expect("data");
    let output = lab.command(&["--file", "data"], &["./script", "some"]).current_dir(files.path()).output();
    let output = output.expect("memtide runs");
    assert_eq!(output.stdout, b"some words\n", "{}", String::from_utf8_lossy(&output.stderr));
    lab.assert_clean();
}

/// The host's environment does not change a run's time.
#[test]
fn host_environment_does_not_reach_guest() {
    let Some(lab) = Lab::new() else { return };
    let mut command = lab.command(&[], &["sh", "-c", "echo \"<$LD_LIBRARY_PATH$SOME>\""]);
    let output = command.env("LD_LIBRARY_PATH", "/no/such:/tmp").env("SOME", "thing").output();
    let output = output.expect("memtide runs");
    assert_eq!(output.stdout, b"<>\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn guest_has_common_programs() {
    let Some(lab) = Lab::new() else { return };
    if !has_program("busybox", &["true"], "busybox-static") {
        return;
    }
    let script = "sleep 0 && ls / | sed -n s/init/found/p && cat /etc/hostname | tr a-z A-Z";
    let (output, stderr) = lab.script(&[], script);
    assert_eq!(output.stdout, b"found\nLAB\n", "{stderr}");
}

#[test]
fn fatal_signal_is_reported() {
    let Some(lab) = Lab::new() else { return };
    let (output, stderr) = lab.script(&[], "kill -SEGV $$");
    assert_eq!(output.status.code(), Some(128 + 11), "{stderr}");
    assert!(stderr.contains("signal 11 ended the program"), "{stderr}");
}

#[test]
fn hanging_program_times_out() {
    let Some(lab) = Lab::new() else { return };
    // Enough for the boot of any host that runs these tests.
    let (output, stderr) = lab.script(&["--timeout", "40"], &format!("echo started; {ENDLESS}"));
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert_eq!(output.stdout, b"started\n");
    assert!(stderr.contains("timed out after 40 s, of which the boot took"), "{stderr}");
}

#[test]
fn time_limit_includes_boot() {
    let Some(lab) = Lab::new() else { return };
    let (output, stderr) = lab.script(&["--timeout", "0.01"], "echo started");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(125), &b""[..]), "{stderr}");
    assert!(stderr.contains("timed out after 0.01 s, before the guest had booted"), "{stderr}");
}

#[test]
fn out_of_memory_kill_is_reported() {
    let Some(lab) = Lab::new() else { return };
    // tail buffers an endless last line.
    let (output, stderr) = lab.run(&[], &["tail", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{stderr}");
    assert!(stderr.contains("ran out of memory"), "{stderr}");
}

#[test]
fn long_output_streams_in_constant_memory() {
    let Some(lab) = Lab::new() else { return };
    const BYTES: u64 = 500_000_000;
    let mut child = lab.started(&["head", "-c", &BYTES.to_string(), "/dev/zero"]);
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut out = child.stdout.take().expect("a pipe");
    let (mut bytes, mut peak_kib, mut buffer) = (0, 0, vec![0; 1 << 20]);
    loop {
        let length = out.read(&mut buffer).expect("output");
        if length == 0 {
            break;
        }
        bytes += length as u64;
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
    }
    let output = child.wait_with_output().expect("memtide ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bytes, BYTES);
    assert!((1..200 << 10).contains(&peak_kib), "memtide used {peak_kib} KiB");
    lab.assert_clean();
}

#[test]
fn closed_output_ends_run() {
    let Some(lab) = Lab::new() else { return };
    let mut child = lab.started(&["yes"]);
    let mut start = [0; 2];
    child.stdout.take().expect("a pipe").read_exact(&mut start).expect("output");
    assert_eq!(&start, b"y\n");
    assert!(child.wait().expect("memtide ends").success(), "a closed reader is not an error");
    lab.assert_clean();
}

#[test]
fn signal_to_memtide_stops_vm() {
    let Some(lab) = Lab::new() else { return };
    for (signal, code) in [("INT", 130), ("TERM", 130)] {
        let mut child = lab.started(&["sh", "-c", ENDLESS]);
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        assert_eq!(child.wait().expect("memtide ends").code(), Some(code));
        lab.assert_clean();
    }
    let mut child = lab.started(&["sh", "-c", ENDLESS]);
    child.kill().expect("memtide is killed");
    assert_eq!(child.wait().expect("memtide ends").signal(), Some(9));
    let killed = Instant::now();
    while !lab.processes().is_empty() {
        assert!(killed.elapsed() < HANG_TIMEOUT, "QEMU outlives memtide");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lab.files().len(), 1, "its folder remains");
    // The next run removes it.
    lab.run(&[], &["true"]);
}

#[test]
fn unbootable_kernel_is_reported() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.folder.path().with_extension("kernel");
    fs::write(&file, broken_kernel()).expect("a kernel");
    let kernel = file.to_str().expect("a name");
    let (output, stderr) = lab.run(&["--kernel", kernel], &["true"]);
    fs::remove_file(&file).expect("the kernel's file");
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains(kernel) && stderr.contains("did not boot"), "{stderr}");
}

/// A file that looks like a kernel (Linux's boot protocol) and triple-faults: an interrupt without an IDT.
fn broken_kernel() -> Vec<u8> {
    let mut image = vec![0; 64 << 10];
    image[0x1f1] = 4; // sectors of setup
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x200..0x202].copy_from_slice(&[0xeb, 0x66]); // jmp 0x268
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    image[0x211] = 1; // loaded high
    image[0x22c..0x230].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    image[0x268..0x26e].copy_from_slice(&[0x0f, 0x01, 0x1e, 0x00, 0x00, 0xcc]); // lidt [0]; int3
    image
}

#[test]
fn full_disk_is_reported() {
    let Some(lab) = Lab::new() else { return };
    // A file size limit in blocks of 512 bytes acts like a full disk.
    let script = "ulimit -f 100; trap '' XFSZ; exec \"$@\"";
    let run = lab.command(&[], &["true"]);
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(run.get_program())
        .args(run.get_args())
        .env("TMPDIR", lab.folder.path())
        .output()
        .expect("sh runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("cannot write the guest's file system to it"), "{stderr}");
    lab.assert_clean();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let output = lab.command(&[], &["echo", "words"]).stdout(full).output().expect("memtide runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("the program's output: cannot be written"), "{stderr}");
    lab.assert_clean();
}

#[test]
fn files_up_to_limit_fit_and_larger_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let data = lab.folder.path().with_extension("large");
    let name = data.to_str().expect("a name");
    let sized = |mib: u64| fs::File::create(&data).and_then(|file| file.set_len(mib << 20)).expect("a file");
    // The guest has 512 MiB, less agent and shell: the lab checks free memory.
    for (mib, fits) in [(132, true), (146, false)] {
        sized(mib);
        let (output, stderr) = lab.run(&["--file", name], &["sh", "-c", "test -s \"$0\"", name]);
        assert_eq!(output.status.code(), Some(if fits { 0 } else { 125 }), "{mib} MiB: {stderr}");
        assert!(fits || stderr.contains("more than fits into 512 MiB of memory"), "{stderr}");
    }
    fs::remove_file(&data).expect("the file");
}

#[test]
fn file_times_match_guest_clock() {
    let Some(lab) = Lab::new() else { return };
    let data = lab.folder.path().with_extension("words");
    fs::write(&data, "words").expect("data");
    let name = data.to_str().expect("a name");
    // gzip warns about a file without a modification time.
    let (output, stderr) = lab.run(&["--file", name], &["gzip", "-c", name]);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    fs::remove_file(&data).expect("the file");
}

/// A `PATH` whose QEMU creates a file when it starts a virtual machine, and that file.
fn detect_boots(folder: &Path) -> (String, PathBuf) {
    const QEMU: &str = "qemu-system-x86_64";
    let path = std::env::var("PATH").expect("a PATH");
    let real = std::env::split_paths(&path).map(|place| place.join(QEMU)).find(|file| file.is_file());
    let (real, booted, wrapper) = (real.expect("QEMU"), folder.join("booted"), folder.join(QEMU));
    let script = format!(
        "#!/bin/sh\ncase $* in *-nodefaults*) : > {} ;; esac\nexec {} \"$@\"\n",
        booted.display(),
        real.display()
    );
    fs::write(&wrapper, script).expect("a script");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("a program");
    (format!("{}:{path}", folder.display()), booted)
}

#[test]
fn unrunnable_program_is_refused_before_boot() {
    let Some(lab) = Lab::new() else { return };
    let data = lab.folder.path().with_extension("data");
    fs::write(&data, "words").expect("data");
    let name = data.to_str().expect("a name");
    let tools = tempfile::tempdir().expect("a folder");
    let (path, booted) = detect_boots(tools.path());
    for (options, program, code, says) in [
        (&[][..], "no-such-program", 127, "program not found"),
        (&[], name, 126, "neither an executable nor a script"),
        (&["--file", "/no/such/file"], "true", 125, "/no/such/file"),
        (&["--file", "/dev/zero"], "true", 125, "/dev/zero: is neither a regular file nor a folder"),
        (&["--kernel", name, "--file", name], "true", 125, "not an x86 Linux kernel"),
        (&["--kernel", "linux-image-0"], "true", 2, "lab setup --kernel linux-image-0"),
    ] {
        let output = lab.command(options, &[program]).env("PATH", &path).output().expect("memtide runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(says) && output.stdout.is_empty(), "{stderr}");
        lab.assert_clean();
        assert!(!booted.exists(), "a virtual machine booted: {stderr}");
    }
    let output = lab.command(&[], &["true"]).env("PATH", &path).output().expect("memtide runs");
    assert!(output.status.success() && booted.exists(), "a boot is detected: {output:?}");
    fs::remove_file(&data).expect("the file");
}

#[test]
fn agent_of_other_build_is_refused_with_versions() {
    let Some(lab) = Lab::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let memtide = folder.path().join("memtide");
    fs::copy(MEMTIDE, &memtide).expect("the command");
    let agent = Path::new(MEMTIDE).with_file_name("memtide-guest");
    let version = Command::new(&agent).arg("--version").output().expect("the agent runs").stdout;
    let ours = String::from_utf8(version).expect("text");
    for (script, theirs) in
        [("echo '0.0.9 (protocol 12)'", "0.0.9 (protocol 12)"), ("exit 2", "an unknown version")]
    {
        let other = folder.path().join("memtide-guest");
        fs::write(&other, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("an executable");
        let mut command = Command::new(&memtide);
        command.env("TMPDIR", lab.folder.path());
        let output = command.args(["lab", "run", "--machine", "hinuma", "--", "true"]).output();
        let stderr = String::from_utf8_lossy(&output.expect("memtide runs").stderr).into_owned();
        assert!(stderr.contains(&format!("is {theirs}, and memtide is {}", ours.trim())), "{stderr}");
    }
    lab.assert_clean();
}
