//! A small file takes little memory, whatever its content.

mod support;

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use memtide_trace::{Kind, ReplayOptions, Row, Trace};
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use peak_alloc::PeakAlloc;
use support::{header, write};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// One measurement at a time.
static MEASURING: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

/// Peak of bytes allocated while a trace is opened, checked and replayed, and the result.
fn peak_of_reading(path: &Path) -> (usize, Result<(), String>) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let read = Trace::open(path)
        .and_then(|trace| trace.info(&mut |_| true).map(|_| trace))
        .and_then(|trace| trace.program(ReplayOptions::default()).map(|_| ()))
        .map_err(|error| error.to_string());
    (ALLOCATED.peak_usage() - before, read)
}

fn map(name: &str) -> Row {
    Row { address: 4096, size: 4096, name: Some(name.to_owned()), ..Row::event(0, Kind::Map, 0) }
}

/// A trace with this many mappings, whose names are replaced by this one.
fn forged(path: &Path, rows: usize, name: &str, properties: WriterPropertiesBuilder) {
    write(path, &[vec![map("x"); rows]]).unwrap();
    let valid = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let footer = valid.metadata().file_metadata().clone();
    let properties = properties
        .set_compression(Compression::ZSTD(Default::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(footer.key_value_metadata().cloned());
    let schema = footer.schema_descr().root_schema_ptr();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties.build().into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let name = ByteArray::from(name);
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::Int32ColumnWriter(to) => to.write_batch(&vec![1; rows], None, None),
            ColumnWriter::Int64ColumnWriter(to) => to.write_batch(&vec![1; rows], None, None),
            ColumnWriter::BoolColumnWriter(to) => to.write_batch(&vec![false; rows], None, None),
            ColumnWriter::ByteArrayColumnWriter(to) => {
                to.write_batch(&vec![name.clone(); rows], Some(&vec![1; rows]), None)
            }
            _ => unreachable!("a trace has no other columns"),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn name_too_long_is_refused_before_it_is_copied() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    forged(&path, 1000, &"n".repeat(MIB / 2), WriterProperties::builder());
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 8192, "{bytes} B");
    let (peak, read) = peak_of_reading(&path);
    let error = read.unwrap_err();
    assert!(error.contains("column name: ") && error.contains("more than 255 bytes"), "{error}");
    assert!(peak < 16 * MIB, "{peak} B");
}

#[test]
fn names_that_grow_from_each_other_are_refused() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let delta = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("name".into(), Encoding::DELTA_BYTE_ARRAY);
    forged(&path, 1000, &"n".repeat(MIB), delta);
    let (peak, read) = peak_of_reading(&path);
    assert!(read.unwrap_err().contains("encoding 7, which memtide does not write"));
    assert!(peak < 16 * MIB, "{peak} B");
}

#[test]
fn name_of_every_row_is_kept_once() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let rows = 1 << 20;
    write(&path, &[vec![map(&"n".repeat(255)); rows]]).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 64 << 10);
    let (peak, read) = peak_of_reading(&path);
    read.unwrap();
    // Per row 51 bytes in columns and 8 for its name, plus the largest page.
    assert!(peak < rows * 100, "{peak} B");
    assert_eq!(Trace::open(&path).unwrap().header(), &header());
}

#[test]
fn page_of_an_access_takes_a_bit() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let rows = 1 << 17;
    let access = |i: u64| Row { address: i << 16, size: 65_535, ..Row::event(0, Kind::Access, i) };
    write(&path, &[(0..rows).map(access).collect()]).unwrap();
    let (peak, read) = peak_of_reading(&path);
    read.unwrap();
    let info = Trace::open(&path).unwrap().info(&mut |_| true).unwrap();
    assert_eq!((info.footprint_pages, info.written_pages), (rows << 4, 0));
    assert!(peak < 32 * MIB, "{peak} B");
}

#[test]
fn writer_refuses_more_names_than_a_reader_takes() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut writer = memtide_trace::TraceWriter::create(&path, header()).unwrap();
    let refused = (0..1 << 17).find_map(|number| writer.push(&map(&format!("{number:0255}"))).err());
    assert!(refused.unwrap().to_string().contains("more than 16 MiB of different names"));
}

/// More names than fit into a dictionary, so that some are written plainly.
#[test]
fn many_names_are_read_back() {
    let _alone = MEASURING.lock();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    write(&path, &[(0..20_000).map(|number| map(&format!("{number:0200}"))).collect()]).unwrap();
    assert!(Trace::open(&path).unwrap().info(&mut |_| true).is_ok());
}
