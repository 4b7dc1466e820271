//! Hotplugged and shared nodes of the lab's guests.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId};
use memtide_lab_model::prepare;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::closed_form;
use crate::support::{MEMTIDE, lab_is_here};

/// Folder of the runs' files and registry.
pub struct Lab {
    folder: TempDir,
}

impl Lab {
    /// `None` if the lab's parts are missing and optional.
    pub fn new() -> Option<Lab> {
        lab_is_here().then(|| Lab { folder: tempfile::tempdir().expect("a folder") })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(MEMTIDE);
        command.env("TMPDIR", self.folder.path()).env("XDG_RUNTIME_DIR", self.folder.path());
        command.arg("lab").args(arguments).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], says: &str) {
        let output = self.command(arguments).output().expect("memtide runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(says), "{arguments:?}: {stderr}");
    }

    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().expect("memtide runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a program in a guest.
    pub fn start(&self, options: &[&str], program: &[&str]) -> Guest {
        let arguments = [&["run", "--machine", "ddr5-cxl", "--vcpus", "1"], options].concat();
        let mut command = self.command(&arguments);
        command.arg("--").args(program).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("memtide runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Guest { child: Some(child), lines }
    }

    fn files(&self) -> Vec<PathBuf> {
        let folders = [self.folder.path().to_owned(), self.folder.path().join("memtide")];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| !folders.contains(path)).collect()
    }
}

/// A script that runs in a guest.
pub struct Guest {
    child: Option<Child>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Guest {
    fn line(&mut self) -> String {
        self.lines.next().and_then(Result::ok).unwrap_or_default()
    }

    #[track_caller]
    fn expect_line(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Reads up to a line.
    #[track_caller]
    pub fn wait_for_line(&mut self, line: &str) {
        let mut lines = Vec::new();
        while let Some(Ok(other)) = self.lines.next() {
            if other == line {
                return;
            }
            lines.push(other);
        }
        panic!("no '{line}' in {lines:#?}");
    }

    #[track_caller]
    pub fn finish(mut self) -> String {
        let child = self.child.take().expect("the guest");
        let Output { status, stderr, .. } = child.wait_with_output().expect("memtide ends");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "{stderr}");
        stderr
    }
}

/// A test that fails leaves no virtual machine.
impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// Latency of a chase in base pages on a node from a machine's first initiator, in ns: a guest with little
/// memory at boot has no huge pages.
fn idle_ns(machine: &str, node: &str) -> f64 {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{machine}.toml"));
    let text = fs::read_to_string(file).expect("a machine file");
    let machine = prepare(&Machine::parse(machine, &text).expect("a checked machine"), 1).machine;
    let number = machine.nodes.iter().position(|known| known.name == node).expect("the node");
    let idle = machine.idle_latency(InitiatorId::from(0usize), NodeId::from(number));
    idle.as_ns() + closed_form::translation_ns(&machine, 64.0)
}

/// Reports absent nodes, measures the hotplugged one, and reports each time that it goes offline or online.
const MEASURES: &str = r#"
online() { grep -l 'MemTotal: *524288 kB' /sys/devices/system/node/node[1-9]/meminfo; }
test "$(cat /sys/devices/system/node/online)" = 0-2 && echo absent
until file=$(online); do sleep 0.1; done
node=${file%/meminfo}
"$1" measure --nodes ${node##*node} --mib 64 --loads 100000 --rounds 1 --reads 100% -o csv
while online >&2; do sleep 0.1; done
echo offline
until online >&2; do sleep 0.1; done
echo online
while online >&2; do sleep 0.1; done
echo offline
"#;

#[test]
fn hotplugged_memory_has_node_latency_and_unplugs() {
    let Some(lab) = Lab::new() else { return };
    let options = ["--timing", "on", "--absent", "cxl,dram1", "--file", MEMTIDE, "-o", "json"];
    let mut guest = lab.start(&options, &["busybox", "sh", "-c", MEASURES, "sh", MEMTIDE]);
    guest.expect_line("absent");
    lab.fails(&["node", "remove", "cxl"], "its memory is not plugged in");
    lab.fails(&["node", "add", "dram0"], "can only plug in dram1, cxl");
    lab.fails(&["node", "add", "cxl", "--run", "1"], "no run 1 with hotpluggable nodes; running: ");
    lab.succeeds(&["node", "add", "cxl"]);
    let header = guest.line();
    let row = guest.line();
    let figure = |name: &str| {
        let column = header.split(',').position(|column| column == name).expect("a column");
        row.split(',').nth(column).and_then(|text| text.parse::<f64>().ok()).expect("a figure")
    };
    let expected = idle_ns("ddr5-cxl", "cxl");
    println!("{} ns, expected {expected}; {} MB/s", figure("idle_ns"), figure("triad_mbps"));
    assert!((figure("idle_ns") / expected - 1.0).abs() < 0.02, "{header}\n{row}");
    lab.fails(&["node", "add", "cxl"], "its memory is already plugged in");
    // A limit that has passed before memtide looks; the guest offlines the memory later.
    let limit = "0.000000001";
    let late = format!("has not offlined its memory within {limit} s");
    lab.fails(&["node", "remove", "cxl", "--timeout", limit], &late);
    guest.expect_line("offline");
    lab.succeeds(&["node", "add", "cxl"]);
    guest.expect_line("online");
    lab.succeeds(&["node", "remove", "cxl"]);
    guest.expect_line("offline");
    let stderr = guest.finish();
    let parsed: Value = serde_json::from_str(&stderr[stderr.find('{').expect("JSON")..]).expect("JSON");
    let used = |node: &str| {
        let rows = parsed["nodes"].as_array().expect("nodes");
        let row = rows.iter().find(|row| row["node"] == node).expect("the node");
        (row["peak_mib"].as_f64().expect("a size"), row["read_lines"].as_u64().expect("a count"))
    };
    assert!(used("cxl").0 >= 64.0 && used("cxl").1 > 100_000, "{parsed:#}");
    assert_eq!(used("dram1"), (0.0, 0), "{parsed:#}");
    assert_eq!(lab.files(), Vec::<PathBuf>::new());
}

#[test]
fn node_is_added_once_the_guest_has_booted() {
    let Some(lab) = Lab::new() else { return };
    const WAIT: &str = r"until grep -q 'MemTotal: *524288 kB' /sys/devices/system/node/node[1-9]/meminfo
        do sleep 0.1; done; echo online";
    let options = ["--timing", "off", "--absent", "cxl"];
    let mut guest = lab.start(&options, &["busybox", "sh", "-c", WAIT]);
    // As soon as the run is known: its guest takes seconds to boot.
    let mut tries = (0..3000).map(|_| {
        thread::sleep(Duration::from_millis(10));
        let output = lab.command(&["node", "add", "cxl"]).output().expect("memtide runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    assert_eq!(tries.find(|stderr| !stderr.contains("no virtual machine with")).as_deref(), Some(""));
    guest.expect_line("online");
    guest.finish();
}

/// The shared node's memory.
const SHARED_BYTES: usize = 512 << 20;

#[test]
fn concurrent_guests_share_memory() {
    let Some(lab) = Lab::new() else { return };
    let programs = tempfile::tempdir().expect("a folder");
    let program = programs.path().join("shared");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/shared.c");
    let cc = ["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-O2", source, "-o"];
    assert!(Command::new("cc").args(cc).arg(&program).status().expect("a C compiler").success());
    let program = program.to_str().expect("a name");
    // QEMU's option syntax treats commas specially.
    let pool = programs.path().join("pool, shared");
    let shared = format!("cxl={}", pool.display());
    let bytes = SHARED_BYTES.to_string();
    let start = |who: &str, timing: &str| {
        let options = ["--timing", timing, "--shared", &shared, "-o", "json"];
        lab.start(&options, &[program, "/dev/memtide/cxl", &bytes, who])
    };
    // The first is modelled: its reads must come from the node.
    let (mut first, mut second) = (start("first", "on"), start("second", "off"));
    first.expect_line("received 43, sum 0");
    second.expect_line("received 42, sum 0");
    let stderr = first.finish();
    second.finish();
    let parsed: Value = serde_json::from_str(&stderr[stderr.find('{').expect("JSON")..]).expect("JSON");
    let node = &parsed["nodes"][2];
    let lines = ["read_lines", "prefetched_lines"].map(|key| node[key].as_u64().expect("a count"));
    assert!(lines[0] + lines[1] >= (4 << 20) / 64, "{parsed:#}");
    let content = fs::read(&pool).expect("the file");
    assert_eq!((content.len(), content[0], content[SHARED_BYTES - 8]), (SHARED_BYTES, 2, 43));
    assert_eq!(lab.files(), Vec::<PathBuf>::new());
}

#[test]
fn invalid_memory_options_are_refused_before_boot() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.folder.path().with_extension("short");
    fs::write(&file, "words").expect("a file");
    let shared = format!("cxl={}", file.display());
    for (options, says) in [
        (&["--absent", "pool"][..], "node 'pool': no such node; the machine has dram0, dram1, cxl"),
        (&["--absent", "dram0"], "node 'dram0': it has the kernel or virtual CPUs"),
        (&["--absent", "cxl,cxl"], "node 'cxl': it is named twice"),
        (&["--absent", "cxl", "--shared", &shared], "node 'cxl': it is named twice"),
        (&["--shared", &shared], "it is not a regular file of 536870912 bytes"),
        (&["--shared", "cxl=/no/such/folder/file"], "/no/such/folder/file: cannot share it"),
        (&["--shared", "cxl"], "give NODE=FILE"),
    ] {
        let all = [&["run", "--machine", "ddr5-cxl", "--vcpus", "1"], options, &["--", "true"]].concat();
        lab.fails(&all, says);
    }
    fs::remove_file(&file).expect("the file");
    lab.fails(&["node", "add", "cxl"], "no virtual machine with hotpluggable nodes is running");
    assert_eq!(lab.files(), Vec::<PathBuf>::new());
}

/// Unresponsive guests: one has exited when queried, one keeps running.
#[test]
fn guest_list_includes_unresponsive_guests() {
    let lab = Lab { folder: tempfile::tempdir().expect("a folder") };
    let entries = lab.folder.path().join("memtide");
    fs::DirBuilder::new().mode(0o700).create(&entries).expect("a folder");
    let enter = |run: u32| {
        let folder = lab.folder.path().join(run.to_string());
        fs::create_dir(&folder).expect("a folder");
        let node = json!({"name": "cxl", "mib": 512, "number": 2, "start": 1_u64 << 32});
        let entry = json!({"run": run, "machine": "m", "program": "p", "nodes": [node], "folder": folder});
        let path = entries.join(format!("{run}.json"));
        fs::write(&path, entry.to_string()).expect("an entry");
        let lock = File::open(&path).expect("the entry");
        flock(&lock, FlockOperation::LockExclusive).expect("a free lock");
        (UnixListener::bind(folder.join("monitor")).expect("a socket"), lock)
    };
    let (ending, lock) = enter(7);
    let (silent, _lock) = enter(8);
    let ends = thread::spawn(move || {
        let query = ending.accept();
        drop(lock);
        drop(query);
    });
    let stays = thread::spawn(move || drop(silent.accept()));
    let output = lab.command(&["node", "list", "-o", "json"]).output().expect("memtide runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let parsed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = parsed["nodes"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["run"], &rows[0]["is_in"]), (1, &json!(8), &Value::Null), "{parsed}");
    assert!(stderr.contains("run 8: it has ended"), "{stderr}");
    ends.join().expect("it was queried");
    stays.join().expect("it was queried");
}

#[test]
fn parallel_vcpus_are_counted_and_reported() {
    let Some(lab) = Lab::new() else { return };
    let program = Path::new(MEMTIDE).with_file_name("memtide-workload").display().to_string();
    let workload = "stream:threads=2,footprint_mib=24,iterations=2";
    let counted = |parallel: &[&str]| {
        let options = ["run", "--machine", "bmpm-2", "--vcpus", "2", "--timing", "on", "-o", "json"];
        let rest = ["--region", "marks", "--", &program, workload];
        let all = [&options, parallel, &rest].concat();
        let output = lab.command(&all).output().expect("memtide runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let parsed: Value = serde_json::from_str(&stderr[stderr.find('{').expect("JSON")..]).expect("JSON");
        let figure = |key: &str| parsed["run"][0][key].as_f64().expect("a count");
        let how = ["timing", "mode"].map(|key| parsed[key].as_str().expect("a word").to_owned());
        let kernel = figure("outside_instructions");
        ([figure("instructions") - kernel, figure("accesses"), figure("llc_misses"), kernel], how)
    };
    let (exact, how) = counted(&[]);
    assert_eq!(how, ["on", "deterministic"]);
    let (parallel, how) = counted(&["--parallel"]);
    assert_eq!(how, ["counted", "parallel"]);
    println!("{exact:?}, in parallel {parallel:?}");
    assert!(
        (parallel[0] / exact[0] - 1.0).abs() < 0.01,
        "the program's own instructions: {parallel:?}, expected {exact:?}"
    );
    // On the host's clock the same work takes more timer ticks, the more the slower the host. Their kernel
    // code counts too, with an access an instruction at most, of which few miss.
    for (index, per_instruction) in [(1, 1.0), (2, 0.05)] {
        let (least, most) = (0.95 * exact[index], 1.05 * exact[index] + per_instruction * parallel[3]);
        assert!((least..most).contains(&parallel[index]), "{parallel:?}, expected {least} to {most}");
    }
}
