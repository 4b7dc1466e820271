//! Recordings: traces, imports, the recorder's streams, and machine code.

use std::fs::{self, File};
use std::path::Path;

use memtide_core::{Batch, Program, Then, ThreadId};
use memtide_recording::stream::{Buffer, WINDOW_BYTES};
use memtide_recording::{Decoder, Encoder, control, stream_file};
use memtide_trace::{
    Header, ImportKind, Kind, Replay, ReplayOptions, Row, Totals, Trace, TraceWriter, convert_recording,
    import,
};

use crate::files::{MemoryFile, with_folder};

/// Maximum batches of a replay of a small trace.
const BATCHES_MAX: u64 = 1 << 20;

/// A trace: any file.
pub fn trace(data: &[u8]) {
    let file = MemoryFile::new(data);
    let Ok(trace) = Trace::open(&file.path()) else { return };
    let Ok(info) = trace.info(&mut |_| true) else { return };
    assert_eq!(info.accesses, trace.totals().accesses);
    assert_eq!(info.regions, trace.totals().regions);
    replay(trace);
}

/// A trace of any rows that the writer accepts: the reader accepts it, too.
pub fn trace_rows(data: &[u8]) {
    with_folder(|folder| {
        let output = folder.join("trace");
        // There is none before the first input.
        let _ = fs::remove_file(&output);
        let Ok(mut writer) = TraceWriter::create(&output, header()) else { return };
        let mut rest = data;
        while let Some((&[operation, thread], _)) = rest.split_first_chunk::<2>() {
            rest = &rest[2..];
            if operation % 10 == 8 {
                writer.end_epoch().expect("disk space");
                continue;
            }
            // Refused input leaves no file.
            let _ = writer.push(&row(operation, thread, &mut rest));
        }
        if let Ok(totals) = writer.finish() {
            read_back(&output, totals);
        }
    });
}

fn header() -> Header {
    let (program, arch, recorder) = ("program".to_owned(), "x86_64".to_owned(), "fuzz".to_owned());
    Header { program, arch, recorder, epoch_instructions: 1000 }
}

fn row(operation: u8, thread: u8, rest: &mut &[u8]) -> Row {
    let kind = match operation % 40 {
        9 | 19 | 29 | 39 => Kind::Mark as u8,
        30 => Kind::NonTemporalStore as u8,
        other => other % 10 % 8,
    };
    let kind = Kind::from_number(kind.into()).expect("one of ten kinds");
    let wide = operation >= 200;
    let mut number = || {
        let bytes = if wide { 8 } else { 2 }.min(rest.len());
        let (number, after) = rest.split_at(bytes);
        *rest = after;
        number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let (instructions, address, size) = (number(), number(), number());
    // Three of four are marks.
    let address = if kind == Kind::Mark { 1 << (address % 4) } else { address };
    Row {
        address,
        size,
        write: operation.is_multiple_of(2),
        pc: address,
        producer: size as u32,
        name: (kind == Kind::Map).then(|| format!("{address:x}")),
        ..Row::event(thread.into(), kind, instructions)
    }
}

/// Reads, sums up and replays a trace written by memtide.
fn read_back(path: &Path, totals: Totals) {
    let trace = Trace::open(path).expect("what was written can be opened");
    assert_eq!(trace.totals(), totals);
    let info = trace.info(&mut |_| true).expect("what was written can be read");
    assert_eq!((info.accesses, info.non_temporal_writes), (totals.accesses, totals.non_temporal_stores));
    replay(trace);
}

/// Replays a trace to its end or first error, as a machine would.
fn replay(trace: Trace) {
    let totals = trace.totals();
    let Ok(mut replay) = trace.program(ReplayOptions::default()) else { return };
    if let Some((replayed, marks)) = run(&mut replay) {
        assert!(replayed <= totals.accesses && marks <= totals.marks);
    }
}

/// Numbers of accesses and marks; `None` if the trace is invalid.
fn run(replay: &mut Replay) -> Option<(u64, u64)> {
    let (mut accesses, mut marks) = (0, 0);
    let mut batches = 0;
    let (mut ready, mut waiting) = (vec![ThreadId(0)], Vec::new());
    let mut batch = Batch::default();
    while let Some(thread) = ready.pop() {
        loop {
            batches += 1;
            assert!(batches <= BATCHES_MAX, "a small trace has no end");
            replay.next(thread, &mut batch).ok()?;
            accesses += batch.accesses.len() as u64;
            match batch.then {
                Then::Spawn(started) | Then::Fork(started) => ready.push(started),
                Then::Barrier => waiting.push(thread),
                Then::Mark(_) => marks += 1,
                _ => {}
            }
            if matches!(batch.then, Then::Barrier | Then::End) {
                break;
            }
        }
        if ready.is_empty() {
            std::mem::swap(&mut ready, &mut waiting);
        }
    }
    Some((accesses, marks))
}

/// Text of valgrind's lackey.
pub fn lackey(data: &[u8]) {
    imported(ImportKind::Lackey, data);
}

/// Comma-separated values.
pub fn csv(data: &[u8]) {
    imported(ImportKind::Csv, data);
}

fn imported(kind: ImportKind, data: &[u8]) {
    with_folder(|folder| {
        let output = folder.join("trace");
        // There is none before the first input.
        let _ = fs::remove_file(&output);
        let input = MemoryFile::new(data);
        match import(kind, &input.path(), &output, &mut |_| true) {
            Ok(totals) => read_back(&output, totals),
            Err(_) => assert!(!output.exists(), "a refused import leaves a trace"),
        }
    });
}

/// A window of a recorder's stream, and the control page.
pub fn stream(data: &[u8]) {
    let word = control::read(data, control::Word::Streams);
    assert!(word == 0 || data.len() > 8);
    let (mut decoder, mut again) = (Decoder::default(), Decoder::default());
    let mut encoder = Encoder::default();
    let mut window = data;
    while let Ok(Some(record)) = decoder.next(&mut window) {
        let mut buffer = Buffer::default();
        encoder.record(&record, &mut buffer);
        let mut bytes = buffer.as_bytes();
        assert_eq!(again.next(&mut bytes), Ok(Some(record)));
        assert!(bytes.is_empty());
    }
}

/// A recording of up to four threads, each of one or two windows: the first byte of a piece selects its
/// thread.
pub fn recording(data: &[u8]) {
    with_folder(|folder| {
        let folder = folder.join("recording");
        // There is none before the first input.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        for (number, piece) in data.split(|&byte| byte == 0xff).take(4).enumerate() {
            let path = folder.join(stream_file(number as u64));
            fs::write(&path, piece).expect("disk space");
            let windows = piece.len().div_ceil(WINDOW_BYTES).max(1);
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_len((windows * WINDOW_BYTES) as u64).expect("disk space");
        }
        let output = folder.join("trace");
        match convert_recording(&folder, &output, header(), &mut |_| true) {
            Ok(totals) => read_back(&output, totals),
            Err(_) => assert!(!output.exists(), "a refused recording leaves a trace"),
        }
    });
}

/// Machine code of a recorded program: instructions of up to 15 bytes, each after its length.
pub fn code(data: &[u8]) {
    let mut rest = data;
    let mut instructions = Vec::new();
    while let Some((&length, after)) = rest.split_first() {
        let (bytes, after) = after.split_at(usize::from(length % 16).min(after.len()));
        instructions.push((0x40_0000 + 16 * instructions.len() as u64, bytes));
        rest = after;
    }
    let marks = memtide_dataflow::marks(instructions.iter().copied());
    assert!(marks.iter().all(|&(position, _)| instructions[position].1 == [0x66, 0x87, 0xdb]));
    let (block, ops) = memtide_dataflow::analyse(instructions.iter().copied());
    assert_eq!(block.instructions as usize, instructions.len());
    assert_eq!(ops.len(), instructions.len());
    let lists = ops.iter().flatten().map(|op| &op.before).chain([&block.tail]);
    for transfer in lists.flat_map(|list| list.iter()) {
        let all =
            memtide_dataflow::bits(transfer.from).all(|register| register < memtide_dataflow::REGISTERS);
        assert!(all && usize::from(transfer.to) < memtide_dataflow::REGISTERS, "{transfer:?}");
    }
}
