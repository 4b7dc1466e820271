//! Errors of the system are not blamed on the trace.

mod support;

use std::fs::{self, File};

use memtide_trace::{Kind, Row, Trace, TraceError, TraceWriter};
use rustix::process::{Resource, getrlimit, setrlimit};
use support::{header, write};

/// One test for all: limits apply to the whole process.
#[test]
fn trace_is_not_damaged_where_the_system_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let access = |i: u64| Row { address: i * 64, size: 8, ..Row::event(0, Kind::Access, i) };
    write(&path, &[(0..1000).map(access).collect()]).unwrap();

    let folder = Trace::open(dir.path()).err().unwrap();
    assert!(folder.to_string().contains("a folder; give the trace's file"), "{folder}");

    let trace = Trace::open(&path).unwrap();
    let limit = getrlimit(Resource::Nofile);
    let mut all = Vec::new();
    let lowered = rustix::process::Rlimit { current: Some(64), ..limit };
    setrlimit(Resource::Nofile, lowered).unwrap();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    let full = Trace::open(&path).err().unwrap();
    let unwritable = TraceWriter::create(&dir.path().join("another"), header()).err().unwrap();
    let opened_before = trace.info(&mut |_| true);
    drop(all);
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(opened_before.unwrap().accesses, 1000);
    for error in [full, unwritable] {
        assert!(matches!(error, TraceError::Io { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("Too many open files") && error.contains("ulimit -n"), "{error}");
    }

    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let cut = trace.info(&mut |_| true).unwrap_err().to_string();
    assert!(cut.contains("the file has become shorter"), "{cut}");
}
