//! General behaviour of the command: lists, help, output width, interrupts.

use crate::support;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::support::call::{ROWS, SMALL, json, stdout_of};

#[test]
fn placements_without_figures_run_on_any_system() {
    for placement in ["local", "interleave"] {
        let run = Command::new(support::MEMTIDE)
            .args(["run", "-p", placement, "--", "sh", "-c", "exit 7"])
            .output();
        let run = run.expect("memtide runs");
        assert_eq!(run.status.code(), Some(7), "{placement}: {}", String::from_utf8_lossy(&run.stderr));
    }
}

#[test]
fn closed_pipe_ends_every_output_quietly() {
    let folder = tempfile::tempdir().expect("a folder");
    let figures = folder.path().join("figures");
    let figures = figures.to_str().expect("a name");
    let commands: [&[&str]; 5] = [
        &["--help"],
        &["policy", "list", "-o", "json"],
        &["machine", "probe", "laptop", "--requests", "1000"],
        &["completions", "bash"],
        &["run", "-p", "local", "--figures", figures, "--", "true"],
    ];
    for command in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let error = writer.try_clone().expect("a second descriptor");
        let status = Command::new(support::MEMTIDE).args(command).stdout(writer).stderr(error).status();
        assert_eq!(status.expect("memtide runs").code(), Some(0), "{command:?}");
    }
}

#[test]
fn daemon_check_prints_monitor_or_unsupported_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("memtide.toml");
    std::fs::write(&config, "# memtide\nmonitor = 'smaps'\n").expect("a configuration");
    let output = Command::new(support::MEMTIDE).args(["daemon", "--check", "-c"]).arg(&config).output();
    let output = output.expect("memtide runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert!(stderr.contains("memory is monitored by smaps"), "{stderr}"),
        // A kernel without clear_refs.
        code => assert!(code == Some(3) && stderr.contains("memtide.toml:2: monitor: "), "{stderr}"),
    }
}

#[test]
fn lists_name_everything_showable() {
    for (kind, key) in [("machine", "machines"), ("workload", "workloads"), ("policy", "policies")] {
        let list = json(&[kind, "list"]);
        let all = list[key].as_array().unwrap();
        assert!(all.len() >= 9, "{kind}: {}", all.len());
        for entry in all {
            let shown = stdout_of(&[kind, "show", entry["name"].as_str().unwrap()]);
            assert!(shown.contains(entry["summary"].as_str().unwrap()), "{shown}");
        }
    }
    let machines = json(&["machine", "list"]);
    let laptop = machines["machines"].as_array().unwrap().iter().find(|m| m["name"] == "laptop").unwrap();
    assert_eq!(laptop["nodes"], serde_json::json!(["dram"]));
    assert_eq!(json(&["machine", "show", "hinuma"])["node"][1]["fixed"]["read_latency_ns"], 170.0);
}

#[test]
fn completions_and_man_pages_follow_cli_definition() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout_of(&["completions", shell]);
        assert!(script.contains("memtide") && script.contains("probe"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    stdout_of(&["man", folder.path().join("man1").to_str().unwrap()]);
    for (page, says) in
        [("memtide", "compare"), ("memtide-machine-probe", "reads"), ("memtide-record", "PROGRAM")]
    {
        let text = std::fs::read_to_string(folder.path().join(format!("man1/{page}.1"))).unwrap();
        assert!(text.contains(says) && text.contains("Exit codes"), "{page}");
        assert!(!text.contains("EXTRA") && text.contains(".SH \"EXIT STATUS\""), "{text}");
        let title = text.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(title.contains("\"memtide 0."), "{title}");
    }
    for (page, program) in [("record", "PROGRAM"), ("run", "PROGRAM"), ("lab-run", "PROGRAM")] {
        let text = std::fs::read_to_string(folder.path().join(format!("man1/memtide-{page}.1"))).unwrap();
        let synopsis = text.split(".SH SYNOPSIS").nth(1).unwrap().lines().nth(1).unwrap();
        assert!(synopsis.contains(&format!("\\-\\- <\\fI{program}")), "{synopsis}");
    }
}

#[test]
fn help_and_version_succeed_and_list_exit_codes() {
    for args in [&["--help"][..], &["compare", "--help"], &["machine", "probe", "--help"]] {
        assert!(stdout_of(args).contains("130 interrupted"), "{args:?}");
    }
    assert!(stdout_of(&["--version"]).starts_with("memtide 0."));
}

#[test]
fn tables_wrap_at_terminal_width_and_csv_does_not() {
    let at = |columns: &str, args: &[&str]| {
        let mut command = Command::new(support::MEMTIDE);
        let output = command.args(args).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    let calls: [&[&str]; 6] = [
        &["compare", "-m", "bmpm-2", "-w", SMALL, "-p", "local,bw-local+bw-migration"],
        &["simulate", "-m", "bmpm-2", "-w", SMALL],
        &["machine", "probe", "bmpm-2", "--load", "50%", "--requests", "1000"],
        &["machine", "show", "bmpm-2"],
        &["workload", "list"],
        &["policy", "show", "anb"],
    ];
    for args in calls {
        let (narrow, wide) = (at("80", args), stdout_of(args));
        assert!(widest(&narrow) <= 80 && widest(&wide) > 80, "{narrow}\n{wide}");
        assert_eq!(at("80", &[args, &["-o", "csv"]].concat()), stdout_of(&[args, &["-o", "csv"]].concat()));
    }
}

#[test]
fn help_names_memtide_under_any_argv0() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("file.tmp");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_memtide"), &link).unwrap();
    for args in [&["--help"][..], &["trace", "import"], &["compare", "--nonsense"]] {
        let output = Command::new(&link).args(args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains("Usage: memtide") && !text.contains("file.tmp"), "{text}");
    }
}

#[test]
fn closed_reader_is_not_an_error() {
    let mut command = Command::new(support::MEMTIDE);
    let mut child = command
        .args(["machine", "show", "hbm"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// A running command.
struct Running {
    child: Child,
    pid: Pid,
}

impl Running {
    fn start(args: &[&str]) -> Running {
        let mut command = Command::new(support::MEMTIDE);
        let child = command.args(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        Running { child, pid }
    }

    /// CPU time of all its threads, in ticks; works for a zombie too.
    fn processor_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.pid), options).unwrap().is_some()
    }

    /// Waits until it has used half a second of CPU time.
    fn wait_until_busy(&self) {
        while self.processor_ticks() < ticks_per_second() / 2 {
            assert!(!self.has_ended(), "ended before the interrupt");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Interrupts it: it must exit with code 130, after at most a second of CPU time per CPU.
    #[track_caller]
    fn interrupt(self) {
        let before = self.processor_ticks();
        kill_process(self.pid, Signal::INT).unwrap();
        waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let ticks = self.processor_ticks() - before;
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        assert!(ticks < cpus * ticks_per_second(), "ran for {ticks} ticks after the interrupt");
        let output = self.child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{error}");
        assert!(error.contains("interrupted"), "{error}");
    }
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn interrupt_exits_130_without_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html").display().to_string();
    let stream = "stream:footprint_mib=256,iterations=100";
    let run = Running::start(&["compare", "-m", "bmpm-2", "-w", stream, "--report", &report]);
    run.wait_until_busy();
    run.interrupt();
    assert!(is_empty(folder.path()), "a partial report is left");
}

#[test]
fn interrupt_stops_workload_build_and_late_probe() {
    for args in [
        &["simulate", "-m", "ddr5-cxl", "-w", "pagerank:footprint_mib=1024"][..],
        &["machine", "probe", "ddr4-2400", "--requests", "20000000", "--load", "50%"],
    ] {
        let run = Running::start(args);
        run.wait_until_busy();
        run.interrupt();
    }
}

#[test]
fn interrupt_stops_blocked_import_without_trace() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = tempfile::tempdir().unwrap();
    let (from, to) = (pipe.display().to_string(), out.path().join("trace").display().to_string());
    let run = Running::start(&["trace", "import", &from, "--format", "csv", "--to", &to]);
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    pipe.write_all(ROWS.as_bytes()).unwrap();
    while is_empty(out.path()) {
        assert!(!run.has_ended(), "ended before the interrupt");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.interrupt();
    drop(pipe);
    assert!(is_empty(out.path()), "a partial trace is left");
}
