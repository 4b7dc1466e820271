//! Nodes of the lab's guests that are not plain memory from the start.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use support::{MEMTIDE, lab_is_here};

/// Idle latency of node `cxl` of machine `ddr5-cxl` from its socket 0, in ns: what its file's source measured.
const CXL_NS: f64 = 214.0;

/// Where runs keep their files, and are found.
struct Lab {
    folder: TempDir,
}

impl Lab {
    /// Nothing if the lab's parts are not there and need not be.
    fn new() -> Option<Lab> {
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
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(says), "{arguments:?}: {told}");
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().expect("memtide runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a program in a guest.
    fn start(&self, options: &[&str], program: &[&str]) -> Guest {
        let arguments = [&["run", "--machine", "ddr5-cxl", "--vcpus", "1"], options].concat();
        let mut command = self.command(&arguments);
        command.arg("--").args(program).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("memtide runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Guest { child, lines }
    }

    fn files(&self) -> Vec<PathBuf> {
        let folders = [self.folder.path().to_owned(), self.folder.path().join("memtide")];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| !folders.contains(path)).collect()
    }
}

/// A script that runs in a guest.
struct Guest {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Guest {
    fn line(&mut self) -> String {
        self.lines.next().and_then(Result::ok).unwrap_or_default()
    }

    #[track_caller]
    fn says(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    #[track_caller]
    fn ends(self) -> String {
        let Output { status, stderr, .. } = self.child.wait_with_output().expect("memtide ends");
        let told = String::from_utf8_lossy(&stderr).into_owned();
        assert!(status.success(), "{told}");
        told
    }
}

/// Says when the guest has nodes without memory, measures the one whose memory comes, and says when it is gone.
const MEASURES: &str = r#"
there() { grep -l 'MemTotal: *524288 kB' /sys/devices/system/node/node[1-9]/meminfo; }
test "$(cat /sys/devices/system/node/online)" = 0-2 && echo absent
until file=$(there); do sleep 0.1; done
node=${file%/meminfo}
"$1" measure --nodes ${node##*node} --mib 64 --loads 100000 --rounds 1 -o csv
while there >&2; do sleep 0.1; done
echo gone
"#;

#[test]
fn memory_is_plugged_in_is_as_slow_as_its_node_and_is_unplugged() {
    let Some(lab) = Lab::new() else { return };
    let options = ["--timing", "on", "--absent", "cxl,dram1", "--file", MEMTIDE, "-o", "json"];
    let mut guest = lab.start(&options, &["busybox", "sh", "-c", MEASURES, "sh", MEMTIDE]);
    guest.says("absent");
    lab.fails(&["node", "remove", "cxl"], "its memory is not there");
    lab.fails(&["node", "add", "dram0"], "can plug in dram1, cxl alone");
    lab.fails(&["node", "add", "cxl", "--run", "1"], "no run 1 has nodes that can come and go; there are: ");
    lab.succeeds(&["node", "add", "cxl"]);
    let header = guest.line();
    let row = guest.line();
    let figure = |name: &str| {
        let column = header.split(',').position(|column| column == name).expect("a column");
        row.split(',').nth(column).and_then(|text| text.parse::<f64>().ok()).expect("a figure")
    };
    println!("{} ns, {} MB/s", figure("idle_ns"), figure("triad_mbps"));
    assert!((figure("idle_ns") / CXL_NS - 1.0).abs() < 0.02, "{header}\n{row}");
    lab.fails(&["node", "add", "cxl"], "its memory is there already");
    lab.succeeds(&["node", "remove", "cxl"]);
    guest.says("gone");
    let told = guest.ends();
    let answer: Value = serde_json::from_str(&told[told.find('{').expect("JSON")..]).expect("JSON");
    let lines = |node: &str| {
        let rows = answer["nodes"].as_array().expect("nodes");
        let row = rows.iter().find(|row| row["node"] == node).expect("the node");
        (row["allocations"].as_u64().expect("a count"), row["read_lines"].as_u64().expect("a count"))
    };
    assert!(lines("cxl").0 > 1000 && lines("cxl").1 > 100_000, "{answer:#}");
    assert_eq!(lines("dram1"), (0, 0), "{answer:#}");
    assert_eq!(lab.files(), Vec::<PathBuf>::new());
}
