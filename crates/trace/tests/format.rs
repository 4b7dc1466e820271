//! Traces are read as written; damaged ones are refused.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use memtide_core::{Access, Mapping, Mark, PageSize, Program, Then, ThreadId, VirtAddr};
use memtide_trace::{Foreign, Kind, ReplayOptions, Row, Trace, TraceError, TraceWriter};
use proptest::prelude::*;
use support::{Step, accesses, header, run, write};

/// An operation of one of three threads: thread, instructions, address, size, write, producer, event.
type Operation = (u32, u64, u64, u16, bool, u32, u8);

fn operation() -> impl Strategy<Value = Operation> {
    (0..3u32, 0..100_000u64, any::<u64>(), 1..=u16::MAX, any::<bool>(), 0..50u32, 0..20u8)
}

/// Rows of these operations, and what a replay must return for each thread.
fn program(epochs: Vec<Vec<Operation>>) -> (Vec<Vec<Row>>, BTreeMap<u32, Vec<Step>>) {
    let mut expected: BTreeMap<u32, Vec<Step>> = (0..3).map(|thread| (thread, Vec::new())).collect();
    let mut made = [0u32; 3];
    let mut retired = [0u64; 3];
    let mut rows = vec![vec![spawn(1), spawn(2)]];
    for thread in [1, 2] {
        expected.get_mut(&0).unwrap().push(Step::Then(Then::Spawn(ThreadId(thread))));
    }
    for mut operations in epochs {
        operations.sort_by_key(|operation| operation.0);
        let mut epoch = Vec::new();
        for (thread, instructions, address, size, write, producer, event) in operations {
            let index = thread as usize;
            let steps = expected.get_mut(&thread).unwrap();
            if event == 0 {
                let (start, bytes, name) = (address / 2, u64::from(size), format!("map {address}"));
                let row = Row::event(thread, Kind::Map, retired[index]);
                epoch.push(Row { address: start, size: bytes, name: Some(name.clone()), ..row });
                let page = PageSize::Base;
                steps.push(Step::Then(Then::Map(Mapping { start: VirtAddr(start), bytes, page, name })));
                continue;
            }
            if event == 1 {
                let (number, mark) = MARKS[address as usize % MARKS.len()];
                epoch.push(Row { address: number, ..Row::event(thread, Kind::Mark, retired[index]) });
                steps.push(Step::Then(Then::Mark(mark)));
                continue;
            }
            retired[index] += instructions;
            let producer = if producer <= made[index] { producer } else { 0 };
            made[index] += 1;
            let non_temporal = write && event == 2;
            let kind = if non_temporal { Kind::NonTemporalStore } else { Kind::Access };
            let row = Row::event(thread, kind, retired[index]);
            epoch.push(Row { address, size: size.into(), write, pc: address ^ 1, producer, ..row });
            let address = VirtAddr(address);
            let instructions = instructions as u32;
            steps.push(Step::Access(Access { address, instructions, producer, size, write, non_temporal }));
        }
        rows.push(epoch);
    }
    (rows, expected)
}

const MARKS: [(u64, Mark); 3] = [(1, Mark::Begin), (2, Mark::End), (4, Mark::WarmUp)];

fn spawn(thread: u64) -> Row {
    Row { address: thread, ..Row::event(0, Kind::Spawn, 0) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn rows_replay_as_written(
        epochs in prop::collection::vec(prop::collection::vec(operation(), 0..200), 0..8)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let (rows, expected) = program(epochs);
        let totals = write(&path, &rows).unwrap();
        let trace = Trace::open(&path).unwrap();
        prop_assert_eq!(trace.header(), &header());
        prop_assert_eq!(trace.totals(), totals);
        let info = trace.info(&mut |_| true).unwrap();
        let all = accesses(&expected);
        prop_assert_eq!(info.accesses, all.len() as u64);
        prop_assert_eq!(info.writes, all.iter().filter(|access| access.write).count() as u64);
        let past = all.iter().filter(|access| access.non_temporal).count() as u64;
        prop_assert_eq!((info.non_temporal_writes, totals.non_temporal_stores), (past, past));
        let dependent = all.iter().filter(|access| access.producer > 0).count() as u64;
        prop_assert_eq!(info.dependent_accesses, dependent);
        let instructions: u64 = all.iter().map(|access| u64::from(access.instructions)).sum();
        prop_assert_eq!(info.instructions, instructions);
        let marks = expected.values().flatten().filter(|step| **step == Step::Then(Then::Mark(Mark::Begin)));
        prop_assert_eq!(info.regions, marks.count() as u64);
        let mut replay = trace.program(ReplayOptions::default()).unwrap();
        prop_assert_eq!(replay.threads(), 3);
        prop_assert_eq!(replay.has_region(), info.regions > 0);
        prop_assert_eq!(run(&mut replay).unwrap(), expected);
        prop_assert_eq!(replay.progress(), Some(1.0));
    }

    /// A part is the whole without its ends, and no producer refers to accesses before the part.
    #[test]
    fn skip_and_limit_select_a_part(
        epochs in prop::collection::vec(prop::collection::vec(operation(), 1..100), 1..5),
        skip in 0..300u64,
        limit in 0..300u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut epochs = epochs;
        epochs.iter_mut().flatten().for_each(|operation| operation.0 = 0);
        let (rows, expected) = program(epochs);
        write(&path, &rows).unwrap();
        let options = ReplayOptions { skip, limit, ..ReplayOptions::default() };
        let part = accesses(&run(&mut Trace::open(&path).unwrap().program(options).unwrap()).unwrap());
        let whole = accesses(&expected);
        let kept: Vec<&Access> = whole.iter().skip(skip as usize).take(limit as usize).collect();
        prop_assert_eq!(part.len(), kept.len());
        for (at, (part, kept)) in part.iter().zip(kept).enumerate() {
            let producer = if kept.producer as usize <= at { kept.producer } else { 0 };
            prop_assert_eq!(part, &Access { producer, instructions: part.instructions, ..*kept });
            prop_assert_eq!(part.instructions, kept.instructions);
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        let bytes = if magic { [b"PAR1", bytes.as_slice(), b"PAR1"].concat() } else { bytes };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        fs::write(&path, bytes).unwrap();
        prop_assert!(Trace::open(&path).is_err());
    }
}

/// A small trace with features of several row groups.
fn sample(path: &Path) -> BTreeMap<u32, Vec<Step>> {
    let operations = |seed: u64| {
        let number = move |i: u64| (i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..40).map(move |i| {
            let n = number(i);
            ((i % 3) as u32, n % 50, n, 8, n % 3 == 0, (n % 4) as u32, (n % 20) as u8)
        })
    };
    let (rows, expected) =
        program(vec![operations(1).collect(), operations(2).collect(), operations(3).collect()]);
    write(path, &rows).unwrap();
    expected
}

/// Everything that can be read from a file.
fn all(path: &Path) -> Result<BTreeMap<u32, Vec<Step>>, String> {
    let open = || Trace::open(path).map_err(|error| error.to_string());
    let trace = open()?;
    assert_eq!(trace.header(), &header(), "a wrong header");
    trace.info(&mut |_| true).map_err(|error| error.to_string())?;
    run(&mut open()?.program(ReplayOptions::default()).map_err(|error| error.to_string())?)
}

#[test]
fn truncated_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    sample(&path);
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = Trace::open(&path).err().unwrap_or_else(|| panic!("cut to {length} bytes it opens"));
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}

#[test]
fn flipped_byte_is_detected_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let expected = sample(&path);
    let bytes = fs::read(&path).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() {
        let flip = [0x01, 0x80, 0xff][at % 3];
        let mut bytes = bytes.clone();
        bytes[at] ^= flip;
        fs::write(&path, bytes).unwrap();
        match all(&path) {
            Ok(read) => assert!(read == expected, "byte {at} flipped by {flip:#x} gives another program"),
            Err(_) => found += 1,
        }
    }
    assert!(found > bytes.len() / 2, "of {} flips {found} were found", bytes.len());
}

#[test]
fn errors_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Trace::open(&path).err().unwrap().to_string()
    };
    assert!(message(b"").contains("an empty file"));
    assert!(message(b"I  04000000,3\n").contains("not a Parquet file"));
    let foreign = Trace::open(&path).err().unwrap();
    assert!(matches!(foreign, TraceError::Foreign { found: Foreign::NotParquet, .. }), "{foreign:?}");
    assert!(message(b"PAR1 and then nothing").contains("cut short"));
    sample(&path);
    let bytes = fs::read(&path).unwrap();
    let key = b"memtide.version";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len();
    let digit = at + bytes[at..].iter().position(|&byte| byte == b'2').unwrap();
    let mut newer = bytes.clone();
    newer[digit] = b'7';
    assert!(message(&newer).contains("format version \"7\"; this memtide reads versions 1 to 2"));
    let missing = Trace::open(&dir.path().join("none")).err().unwrap();
    assert!(matches!(missing, TraceError::Io { .. }), "{missing}");
}

#[test]
fn writer_refuses_unreadable_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let access = Row { size: 8, ..Row::event(0, Kind::Access, 5) };
    for wrong in [
        Row { size: 0, ..access.clone() },
        Row { size: 65_536, ..access.clone() },
        Row { thread: u32::MAX, ..access.clone() },
        Row { instructions: 4, ..access.clone() },
        Row { producer: u32::MAX, ..access.clone() },
        Row { kind: Kind::NonTemporalStore, ..access.clone() },
        Row { kind: Kind::NonTemporalStore, write: true, size: 0, ..access.clone() },
    ] {
        let mut writer = TraceWriter::create(&path, header()).unwrap();
        writer.push(&access).unwrap();
        assert!(writer.push(&wrong).is_err(), "{wrong:?}");
    }
    assert!(!path.exists(), "a trace that was not finished has no name");
}

#[test]
fn instructions_without_access_are_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let access = |instructions| Row { size: 8, ..Row::event(0, Kind::Access, instructions) };
    write(&path, &[vec![access(1), access(10_000_000_000)]]).unwrap();
    let steps =
        &run(&mut Trace::open(&path).unwrap().program(ReplayOptions::default()).unwrap()).unwrap()[&0];
    assert_eq!(steps[1], Step::Then(Then::Work(9_999_999_998)));
    assert!(matches!(steps[2], Step::Access(Access { instructions: 1, .. })));
}

/// 900,000 accesses, one line after another, in more than one row group.
fn write_several_row_groups(path: &Path) {
    let access = |i: u64| Row { address: i * 64, size: 8, ..Row::event(0, Kind::Access, i) };
    let epochs: Vec<Vec<Row>> =
        (0..6).map(|e| (e * 150_000..(e + 1) * 150_000).map(access).collect()).collect();
    write(path, &epochs).unwrap();
}

#[test]
fn trace_reads_one_row_group_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write_several_row_groups(&path);
    let steps =
        &run(&mut Trace::open(&path).unwrap().program(ReplayOptions::default()).unwrap()).unwrap()[&0];
    assert_eq!(steps.len(), 900_000);
    let address = |step: &Step| match step {
        Step::Access(access) => access.address.0,
        Step::Then(then) => panic!("{then:?}"),
    };
    assert!(steps.iter().enumerate().all(|(i, step)| address(step) == i as u64 * 64));
}

#[test]
fn clones_that_are_at_different_places_replay_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write_several_row_groups(&path);
    let first = Trace::open(&path).unwrap().program(ReplayOptions::default()).unwrap();
    let mut clones = [first.clone(), first.clone(), first];
    let mut addresses = [(); 3].map(|()| Vec::new());
    // The second is a row group and more behind the first at times, and each goes on when others have ended.
    for (turn, clone) in [(100, 0), (30, 1), (60, 2), (120, 1), (1000, 2), (1000, 0), (1000, 1)] {
        let mut batch = memtide_core::Batch::default();
        for _ in 0..turn {
            clones[clone].next(ThreadId(0), &mut batch).unwrap();
            addresses[clone].extend(batch.accesses.iter().map(|access| access.address.0 / 64));
        }
    }
    for addresses in addresses {
        assert!(addresses.into_iter().eq(0..900_000));
    }
}

#[test]
fn part_is_the_region_after_its_warm_up_and_marks_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let access = |thread, i: u64| Row { address: i * 64, size: 8, ..Row::event(thread, Kind::Access, i) };
    let begin = Row { address: 1, ..Row::event(0, Kind::Mark, 50) };
    let first: Vec<Row> = [spawn(1)].into_iter().chain((1..=50).map(|i| access(0, i))).collect();
    let second: Vec<Row> = (1..=50).map(|i| access(1, i)).collect();
    let third = (51..=100).map(|i| access(0, i)).collect();
    write(&path, &[[first, vec![begin], second].concat(), third]).unwrap();
    let marks = |skip, limit, warm_up| {
        let options = ReplayOptions { skip, limit, warm_up, cpus: false };
        let mut replay = Trace::open(&path).unwrap().program(options).unwrap();
        let done = run(&mut replay).unwrap();
        let mut marks = Vec::new();
        for (thread, steps) in &done {
            let mut made = 0;
            for step in steps {
                match step {
                    Step::Access(_) => made += 1,
                    Step::Then(Then::Mark(mark)) => marks.push((*thread, made, *mark)),
                    Step::Then(_) => {}
                }
            }
        }
        (replay.has_region(), accesses(&done).len(), marks)
    };
    assert_eq!(marks(0, u64::MAX, 0), (true, 150, vec![(0, 50, Mark::Begin)]));
    assert_eq!(marks(20, u64::MAX, 0), (false, 130, vec![]));
    assert_eq!(marks(0, 70, 0), (false, 70, vec![]));
    // Access 80 is the 31st of thread 1, which comes after 50 of thread 0.
    for (skip, warm_up, begin) in [(20, 60, (1, 30)), (20, 10, (0, 10)), (0, 100, (0, 50)), (0, 149, (0, 99))]
    {
        let expected = vec![(0, 0, Mark::WarmUp), (begin.0, begin.1, Mark::Begin)];
        let found = marks(skip, u64::MAX, warm_up);
        let mut expected = expected;
        expected.sort_by_key(|mark| mark.0);
        assert_eq!(found, (true, 150 - skip as usize, expected), "{skip} and {warm_up}");
    }
}
