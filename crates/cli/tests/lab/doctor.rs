//! `memtide doctor` in guests of known state: as root, as another user, and with obstacles.

use std::fs;
use std::process::Command;

use memtide_testing::not_run_in_part;

use crate::support::{MEMTIDE, lab_is_here};
use serde_json::Value;

/// Runs doctor as root, as an unprivileged user, with DAMON in use, with the kernel's DAMON module enabled if
/// present, and in a cpuset of one node.
const SCRIPT: &str = r#"
echo 1 > /proc/sys/kernel/numa_balancing
stat=/sys/module/damon_stat/parameters/enabled
[ -e $stat ] && echo N > $stat
doctor() { echo "== $1"; shift; "$@" doctor -o json; echo "== code $?"; }
user() { perl -e '$) = "65534 65534"; $( = 65534; $< = $> = 65534; exec @ARGV' "$@"; }
doctor root memtide
doctor user user memtide
cd /sys/kernel/mm/damon/admin/kdamonds
echo 1 > nr_kdamonds
echo 1 > 0/contexts/nr_contexts
echo vaddr > 0/contexts/0/operations
echo 1 > 0/contexts/0/targets/nr_targets
echo $$ > 0/contexts/0/targets/0/pid_target
echo on > 0/state
doctor kdamond memtide
read state < 0/state; [ "$state" = on ] || exit 9
echo off > 0/state
cd /
[ -e $stat ] && echo Y > $stat && doctor damon_stat memtide
[ -e $stat ] && echo N > $stat
busybox mkdir -p /cg && busybox mount -t cgroup2 none /cg
echo +cpuset > /cg/cgroup.subtree_control && busybox mkdir /cg/one
echo 1 > /cg/one/cpuset.mems && echo $$ > /cg/one/cgroup.procs
doctor cpuset memtide
"#;

/// An output and its exit code.
struct Diagnosis {
    parsed: Value,
    code: String,
}

impl Diagnosis {
    fn finding(&self, subject: &str) -> &Value {
        let findings = self.parsed["findings"].as_array().expect("findings");
        findings.iter().find(|finding| finding["subject"] == subject).expect(subject)
    }

    fn state(&self, subject: &str) -> &str {
        self.finding(subject)["state"].as_str().expect("a state")
    }

    fn sensor(&self, name: &str) -> String {
        let sensors = self.parsed["sensors"].as_array().expect("sensors");
        let row = sensors.iter().find(|row| row["sensor"] == name).expect(name);
        let word = |key: &str| row[key].as_str().expect("a word");
        format!("{}: {}", word("answer"), word("how"))
    }

    fn works(&self, command: &str) -> bool {
        let commands = self.parsed["commands"].as_array().expect("commands");
        let row = commands.iter().find(|row| row["command"].as_str().is_some_and(|name| name == command));
        row.expect(command)["works"] == true
    }
}

/// All outputs by name; empty without such a kernel.
fn diagnoses(kernel: &[&str]) -> Vec<(String, Diagnosis)> {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    fs::write(&script, SCRIPT).expect("a script");
    let script = script.to_str().expect("a name");
    let mut command = Command::new(MEMTIDE);
    command.args(["lab", "run", "--machine", "ddr5-cxl", "--vcpus", "1", "--timing", "off"]).args(kernel);
    for file in [&format!("{MEMTIDE}:/bin/memtide"), "/usr/bin/perl", "/usr/bin/busybox", script] {
        command.args(["--file", file]);
    }
    let run = command.args(["--", "sh", script]).output().expect("memtide runs");
    let (out, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    if !kernel.is_empty() && stderr.contains("lab setup --kernel") {
        not_run_in_part(&stderr);
        return Vec::new();
    }
    let mut parts = out.split("== ").skip(1);
    let mut all = Vec::new();
    while let (Some(part), Some(code)) = (parts.next(), parts.next()) {
        let (name, parsed) = part.split_once('\n').expect("a name");
        let parsed = serde_json::from_str(parsed).unwrap_or_else(|_| panic!("{out}\n{stderr}"));
        all.push((name.to_owned(), Diagnosis { parsed, code: code.trim().to_owned() }));
    }
    assert!(run.status.success() && all.len() >= 4, "{out}\n{stderr}");
    all
}

fn check_findings(kernel: &[&str]) {
    for (name, diagnosis) in diagnoses(kernel) {
        println!("{kernel:?} {name}: {:?} {:#}", diagnosis.code, diagnosis.parsed["commands"]);
        assert!(
            diagnosis.works("topo, measure") && diagnosis.works("run: local, fast-only, interleave"),
            "{name}"
        );
        assert!(diagnosis.works("daemon"), "{name}");
        let exact = diagnosis.works("run: all placements, by page fault (--exact)");
        assert_eq!(exact, name != "user" && name != "cpuset", "{name}");
        assert_eq!(diagnosis.code, if exact { "code 0" } else { "code 4" }, "{name}");
        let balancing = diagnosis.finding("kernel.numa_balancing");
        assert_eq!(balancing["found"], "1");
        assert_eq!(
            (&balancing["state"], &balancing["mend"]),
            (&Value::from("warning"), &Value::from("sysctl kernel.numa_balancing=0"),)
        );
        assert_eq!(diagnosis.state("latency and bandwidth"), "good");
        assert_eq!(diagnosis.sensor("watermarks"), "observed: /proc/zoneinfo");
        assert!(diagnosis.sensor("messages").starts_with("refused: "), "{}", diagnosis.parsed);
        let regions = if name == "root" || name == "cpuset" { "observed: damon" } else { "inferred: smaps" };
        assert!(diagnosis.sensor("regions").starts_with(regions), "{name}: {}", diagnosis.sensor("regions"));
        assert!(diagnosis.sensor("hint-faults").starts_with("inferred: "), "{name}");
        match name.as_str() {
            "root" => assert_eq!(diagnosis.state("DAMON"), "good"),
            "user" => {
                assert_eq!(diagnosis.state("DAMON"), "warning");
                for subject in ["weighted interleave", "CAP_PERFMON", "userfaultfd"] {
                    assert_eq!(diagnosis.state(subject), "missing", "{subject}: {}", diagnosis.parsed);
                }
                assert_eq!(diagnosis.state("CAP_SYS_NICE"), "warning");
            }
            "cpuset" => {
                let found = diagnosis.finding("allowed nodes")["found"].as_str().expect("text");
                assert_eq!(found, "a cpuset forbids node 0, 2");
            }
            other => {
                let damon = diagnosis.finding("DAMON");
                let mend = damon["mend"].as_str().expect("a remedy");
                let file =
                    if other == "kdamond" { "kdamonds/0/state" } else { "damon_stat/parameters/enabled" };
                assert!(damon["state"] == "warning" && mend.ends_with(file), "{damon}");
                assert!(mend.starts_with("nothing, ") && mend.contains("this stops "), "{damon}");
            }
        }
    }
}

#[test]
fn doctor_finds_obstacles() {
    if lab_is_here() {
        check_findings(&[]);
    }
}

#[test]
fn doctor_finds_obstacles_on_linux_7() {
    if lab_is_here() {
        check_findings(&["--kernel", "linux-image-7"]);
    }
}
