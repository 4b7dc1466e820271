//! Imports of other tools' recordings.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use memtide_core::Access;
use memtide_trace::{ImportKind, ReplayOptions, Trace, import};
use support::{accesses, run};

fn imported(kind: ImportKind, text: &str) -> Result<Vec<Access>, String> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("input"), dir.path().join("trace"));
    fs::write(&input, text).unwrap();
    import(kind, &input, &output, &mut |_| true)
        .map_err(|error| error.to_string().replace(&dir.path().display().to_string(), ""))?;
    Ok(replayed(&output))
}

fn replayed(path: &Path) -> Vec<Access> {
    accesses(&run(&mut Trace::open(path).unwrap().program(ReplayOptions::default()).unwrap()).unwrap())
}

fn shape(access: &Access) -> (u64, u16, bool, u32) {
    (access.address.0, access.size, access.write, access.instructions)
}

#[test]
fn lackey_text_is_understood() {
    let text = "==12== Lackey\nI  0023C790,2\nI  0023C792,5\n S BE80199C,4\nI  0025747B,1\n L BE801950,4\n \
        M 0025747c,1\n==12== \n";
    let read = imported(ImportKind::Lackey, text).unwrap();
    let expected = [
        (0xbe80_199c, 4, true, 2),
        (0xbe80_1950, 4, false, 1),
        (0x25_747c, 1, false, 0),
        (0x25_747c, 1, true, 0),
    ];
    assert_eq!(read.iter().map(shape).collect::<Vec<_>>(), expected);
}

#[test]
fn csv_is_understood() {
    let text = "address,thread,write,size,instructions,producer\n0x1000,7,0,8,10,0\n8192,9,1,4,3,0\n\
        0x1008,7,true,8,15,1\n";
    let read = imported(ImportKind::Csv, text).unwrap();
    let expected = [(0x1000, 8, false, 10), (0x1008, 8, true, 5), (8192, 4, true, 3)];
    assert_eq!(read.iter().map(shape).collect::<Vec<_>>(), expected);
    assert_eq!(read[1].producer, 1);
}

#[test]
fn csv_may_have_non_temporal_stores() {
    let text = "thread,instructions,address,size,write,non_temporal\n0,1,0x1000,8,0,0\n0,2,0x1040,8,1,1\n\
        0,3,0x1080,8,1,false\n";
    let read = imported(ImportKind::Csv, text).unwrap();
    let stores: Vec<_> = read.iter().map(|access| (access.write, access.non_temporal)).collect();
    assert_eq!(stores, [(false, false), (true, true), (true, false)]);
    let error = imported(ImportKind::Csv, &text.replace("8,0,0", "8,0,1")).unwrap_err();
    assert!(error.contains("/input:2: column non_temporal: a load is never non-temporal"), "{error}");
}

#[test]
fn errors_name_their_line() {
    let head = "thread,instructions,address,size,write\n";
    for (kind, text, expected) in [
        (ImportKind::Lackey, "I  04,3\nhello\n", "/input:2: no line of lackey's"),
        (ImportKind::Lackey, " L 04,0\n", "/input:1: an access of 0 bytes"),
        (ImportKind::Lackey, "", "/input: it has no accesses"),
        (ImportKind::Csv, "", "column \"thread\" is missing"),
        (ImportKind::Csv, "thread,size,colour\n", "/input:1: unknown column \"colour\""),
        (ImportKind::Csv, "thread,thread\n", "column \"thread\" is there twice"),
        (
            ImportKind::Csv,
            &format!("{head}0,1,0x1000,8,yes\n"),
            "/input:2: column write: \"yes\" is not 0, 1",
        ),
        (ImportKind::Csv, &format!("{head}0,1,0x1000,8,1\n0,0,0,8,1\n"), "/input:3: 0 instructions after 1"),
        (ImportKind::Csv, &format!("{head}0,1,0x1000,8\n"), "/input:2:"),
        (
            ImportKind::Csv,
            &format!("{head}0,1,0xfffffffffff8,8,1\n0,2,0xfffffffffff9,8,1\n"),
            "/input:3: an access of 8 bytes at 0xfffffffffff9; user addresses end at 2^48",
        ),
        (ImportKind::Csv, &format!("{head}0,1,0xffffffffffffffff,8,1\n"), "/input:2: an access of 8 bytes"),
        (ImportKind::Lackey, " S ffffffffff600000,8\n", "/input:1: an access of 8 bytes"),
        (ImportKind::Csv, &format!("{head}-1,1,0,8,1\n"), "/input:2: column thread: \"-1\""),
        (
            ImportKind::Csv,
            "thread,instructions,address,size,write,producer\n0,1,0,8,1,1\n",
            "/input:2: producer 1",
        ),
    ] {
        let error = imported(kind, text).expect_err(text);
        assert!(error.contains(expected), "{text:?} gives {error:?}");
    }
}

#[test]
fn failed_import_leaves_no_file_and_removes_none() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    let text = "thread,instructions,address,size,write\n0,1,0x1000,8,0\n0,1,here,8,0\n";
    fs::write(&input, text).unwrap();
    let to = |output: &Path| import(ImportKind::Csv, &input, output, &mut |_| true).unwrap_err().to_string();
    assert!(to(&dir.path().join("trace")).contains("/input:3"));
    assert!(to(&input).contains("the recording itself"));
    assert!(to(dir.path()).contains("not a regular file"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something was left beside the input");
    assert_eq!(fs::read_to_string(&input).unwrap(), text);
}

/// Otherwise the whole file would be held in memory.
#[test]
fn line_without_end_is_refused() {
    let text = "7".repeat(3 << 20);
    for kind in [ImportKind::Lackey, ImportKind::Csv] {
        let error = imported(kind, &text).unwrap_err();
        assert_eq!(error, "/input: cannot read it: a line of more than 1 MiB");
    }
}

#[test]
fn pipe_or_device_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (input, device) = (dir.path().join("input"), dir.path().join("device"));
    fs::write(&input, "thread,instructions,address,size,write\n0,1,0x1000,8,0\n").unwrap();
    assert!(Command::new("mkfifo").arg(&device).status().unwrap().success());
    let error = import(ImportKind::Csv, &input, &device, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    assert!(!fs::metadata(&device).unwrap().is_file());
}

/// Many epochs and threads: order within a thread is preserved, and nothing is lost.
#[test]
fn long_csv_keeps_threads_separate() {
    let mut text = String::from("thread,instructions,address,size,write\n");
    for i in 0..200_000u64 {
        text += &format!("{},{},{},8,0\n", i % 4, i / 4 * 2, ((i % 4) << 40) + i * 64);
    }
    let read = imported(ImportKind::Csv, &text).unwrap();
    assert_eq!(read.len(), 200_000);
    assert!(read.chunks(50_000).all(|thread| thread.is_sorted_by_key(|access| access.address.0)));
}

#[test]
fn real_lackey_run_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (log, output) = (dir.path().join("log"), dir.path().join("trace"));
    let valgrind = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg("/bin/true")
        .status();
    match valgrind {
        Ok(status) if status.success() => {}
        other => {
            return memtide_testing::not_run(&format!("valgrind: {other:?}; apt-get install valgrind"));
        }
    }
    let totals = import(ImportKind::Lackey, &log, &output, &mut |_| true).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count() as u64;
    assert_eq!(totals.accesses, lines(" L") + lines(" S") + 2 * lines(" M"));
    let replayed: u64 = replayed(&output).iter().map(|access| u64::from(access.instructions)).sum();
    assert!(replayed > 50_000 && replayed <= lines("I "), "{replayed} of {} instructions", lines("I "));
}

#[test]
fn quoted_field_without_an_end_is_refused_within_1_mib() {
    let head = "thread,instructions,address,size,write\n0,1,4096,8,0\n";
    let lines = "0,2,4096,8,0\n".repeat(1 << 20);
    for (text, expected) in [
        (format!("{head}\"{lines}"), "/input:3: a record of more than 1 MiB"),
        (format!("\"{lines}"), "/input:1: a record of more than 1 MiB"),
    ] {
        let error = imported(ImportKind::Csv, &text).unwrap_err();
        assert!(error.starts_with(expected), "{error:?} instead of {expected:?}");
    }
    let quoted = format!("{head}0,2,\"8192\",8,\"1\n\"\n");
    assert_eq!(imported(ImportKind::Csv, &quoted).unwrap().len(), 2, "lines within quotes are allowed");
}
