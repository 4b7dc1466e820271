//! `--figures FILE`: a run's figures are separate from its program's output.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::MEMTIDE;
use crate::support::call::memtide;

#[test]
fn run_figures_go_to_file_in_requested_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("figures");
    let name = file.to_str().expect("a name");
    let script = "echo out; echo program >&2; exit 3";
    for format in ["json", "csv", "table"] {
        let output =
            memtide(&["run", "-p", "local", "--figures", name, "-o", format, "--", "sh", "-c", script]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"out\n"[..]), "{stderr}");
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("memtide: ")).collect();
        assert_eq!(lines, ["program"], "figures are separate from the program's lines");
        let figures = fs::read_to_string(&file).expect("figures");
        match format {
            "json" => {
                let figures: Value = serde_json::from_str(&figures).expect("one JSON value");
                assert_eq!(figures["program_status"], "exit status: 3");
                assert_eq!(figures["placement"], "local");
            }
            "csv" => assert!(figures.starts_with("placement,machine,"), "{figures}"),
            _ => assert!(figures.contains("placement local"), "{figures}"),
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "no other file is left");
}

#[test]
fn unwritable_figures_file_is_refused_before_program_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name").to_owned();
    let (marker, script) = (path("marker"), path("script"));
    fs::write(&script, format!("echo ran > {marker}\n")).expect("a script");
    let fifo = path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let cases = [
        (path("none/figures"), 125, "make it first"),
        (folder.path().display().to_string(), 125, "is a folder"),
        (fifo, 125, "is not a regular file"),
        (script.clone(), 2, "name another one"),
    ];
    for (figures, code, says) in cases {
        let runs: [&[&str]; 2] = [&["run", "-p", "local"], &["record", "-o", &path("trace")]];
        for run in runs {
            let mut command = Command::new(MEMTIDE);
            let output = command.args(run).args(["--figures", &figures, "--", "sh", &script]).output();
            let output = output.expect("memtide runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{figures}: {stderr}");
            assert!(stderr.contains(&format!("--figures {figures}: ")) && stderr.contains(says), "{stderr}");
        }
    }
    assert!(!folder.path().join("marker").exists(), "no program ran");
    assert_eq!(fs::read_to_string(&script).expect("the script"), format!("echo ran > {marker}\n"));
}

#[test]
fn figures_do_not_overwrite_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace").display().to_string();
    let output = memtide(&["record", "-o", &trace, "--figures", &trace, "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn run_output_format_needs_figures_file() {
    let output = memtide(&["run", "-p", "local", "-o", "json", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--figures"));
}
