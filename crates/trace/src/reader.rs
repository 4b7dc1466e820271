//! Opening a trace and loading its row groups.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::columns::{Columns, Kind, MAX_GROUP_ROWS, MAX_NAME_BYTES, schema};
use crate::metadata::{Group, Header, Metadata, MetadataError, Totals};
use crate::pages;
use crate::{Foreign, TraceError};

/// A recorded program in a file.
pub struct Trace {
    path: PathBuf,
    file: SerializedFileReader<File>,
    bytes: u64,
    metadata: Metadata,
}

impl Trace {
    /// Opens a trace and checks all that can be checked without decoding it; the rest is checked as it is read.
    ///
    /// # Errors
    /// If the file cannot be read, is no trace, is one of another version, or is damaged.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let file = File::open(path).map_err(TraceError::io(path, "read it"))?;
        let bytes = file.metadata().map_err(TraceError::io(path, "read it"))?.len();
        let file =
            guarded(|| SerializedFileReader::new(file)).map_err(|what| no_parquet(path, bytes, &what))?;
        let footer = file.metadata().file_metadata();
        let metadata =
            Metadata::from_key_values(footer.key_value_metadata()).map_err(|fault| match fault {
                MetadataError::Foreign => {
                    TraceError::Foreign { path: path.to_owned(), found: Foreign::Parquet }
                }
                MetadataError::Version(what) => TraceError::NotATrace { path: path.to_owned(), what },
                MetadataError::Damaged(what) => TraceError::damaged(path, what),
            })?;
        if footer.schema() != schema().as_ref() {
            return Err(TraceError::damaged(path, "its columns are not those of a trace"));
        }
        let trace = Trace { path: path.to_owned(), file, bytes, metadata };
        trace.check_groups()?;
        Ok(trace)
    }

    /// What was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.metadata.header
    }

    /// What the trace holds in all.
    pub fn totals(&self) -> Totals {
        self.metadata.totals
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.metadata.groups
    }

    /// The first epoch after the row group with this index.
    pub(crate) fn end_of_group(&self, index: usize) -> u32 {
        self.groups().get(index + 1).map_or(self.metadata.totals.epochs, |group| group.first_epoch)
    }

    fn check_groups(&self) -> Result<(), TraceError> {
        let found = self.file.metadata().row_groups();
        if found.len() != self.groups().len() {
            let what = format!("{} row groups of {}", found.len(), self.groups().len());
            return Err(TraceError::damaged(&self.path, what));
        }
        for (index, (found, group)) in found.iter().zip(self.groups()).enumerate() {
            if let Some(what) = fault_of_group(found, group, self.bytes) {
                return Err(TraceError::damaged(&self.path, format!("row group {index}: {what}")));
            }
        }
        Ok(())
    }

    /// Decodes a row group into `columns`, whose memory is used again, and checks it.
    pub(crate) fn load(&self, index: usize, columns: &mut Columns) -> Result<(), TraceError> {
        let damaged = |what: String| TraceError::damaged(&self.path, format!("row group {index}: {what}"));
        let group = &self.groups()[index];
        guarded(|| {
            pages::check(&self.path, self.file.metadata().row_group(index)).map_err(ParquetError::General)?;
            self.decode(index, group.rows, columns)
        })
        .map_err(damaged)?;
        if columns.checksum() != group.checksum || columns.accesses() != group.accesses {
            return Err(damaged("its content is not what was written (checksum)".to_owned()));
        }
        self.check_rows(columns, index).map_err(damaged)
    }

    fn decode(&self, index: usize, rows: usize, columns: &mut Columns) -> Result<(), ParquetError> {
        columns.clear();
        let group = self.file.get_row_group(index)?;
        Self::decode_columns(group.as_ref(), rows, columns)?;
        if columns.is_even(rows) { Ok(()) } else { Err(ParquetError::General("uneven columns".to_owned())) }
    }

    fn decode_columns(
        group: &dyn RowGroupReader,
        rows: usize,
        columns: &mut Columns,
    ) -> Result<(), ParquetError> {
        let narrow = [&mut columns.epoch, &mut columns.thread, &mut columns.kind, &mut columns.producer];
        let wide = [&mut columns.instructions, &mut columns.address, &mut columns.size, &mut columns.pc];
        let (mut narrow, mut wide) = (narrow.into_iter(), wide.into_iter());
        let surplus = || ParquetError::General("a column too many".to_owned());
        for column in 0..group.num_columns() {
            let read = match group.get_column_reader(column)? {
                ColumnReader::Int32ColumnReader(mut reader) => {
                    reader.read_records(rows, None, None, narrow.next().ok_or_else(surplus)?)?.0
                }
                ColumnReader::Int64ColumnReader(mut reader) => {
                    reader.read_records(rows, None, None, wide.next().ok_or_else(surplus)?)?.0
                }
                ColumnReader::BoolColumnReader(mut reader) => {
                    reader.read_records(rows, None, None, &mut columns.write)?.0
                }
                ColumnReader::ByteArrayColumnReader(mut reader) => {
                    let mut names = Vec::new();
                    let read = reader.read_records(rows, Some(&mut columns.named), None, &mut names)?.0;
                    let named = columns.named.iter().enumerate().filter(|&(_, &named)| named == 1);
                    for ((row, _), name) in named.zip(names) {
                        columns.names.push((row, name.as_utf8()?.to_owned()));
                    }
                    read
                }
                _ => return Err(surplus()),
            };
            if read != rows {
                return Err(ParquetError::General(format!("column {column} has {read} of {rows} values")));
            }
        }
        Ok(())
    }

    /// What a checksum cannot find: rows that were wrong when they were written.
    fn check_rows(&self, columns: &Columns, index: usize) -> Result<(), String> {
        let threads = self.metadata.totals.threads as i32;
        let epochs = self.groups()[index].first_epoch as i32..self.end_of_group(index) as i32;
        let mut last = (0, 0);
        for row in 0..columns.len() {
            let place = (columns.epoch[row], columns.thread[row]);
            let fault = if !epochs.contains(&place.0) || !(0..threads).contains(&place.1) || place < last {
                "its epoch or thread is out of order or range"
            } else if columns.instructions[row] < 0 || columns.producer[row] < 0 {
                "a negative number"
            } else {
                match Kind::from_number(columns.kind[row]) {
                    None => "its kind is unknown",
                    Some(Kind::Access) if !(1..=i64::from(u16::MAX)).contains(&columns.size[row]) => {
                        "an access of 0 bytes, or of more than 65,535"
                    }
                    Some(Kind::Spawn | Kind::Fork)
                        if !(1..i64::from(threads)).contains(&columns.address[row]) =>
                    {
                        "it starts a thread that does not exist"
                    }
                    Some(Kind::Map | Kind::Unmap) if !is_range(columns.address[row], columns.size[row]) => {
                        "a mapping of no bytes, or beyond the address space"
                    }
                    Some(_) => {
                        last = place;
                        continue;
                    }
                }
            };
            return Err(format!("row {row}: {fault}"));
        }
        match columns.names.iter().any(|(_, name)| name.len() > MAX_NAME_BYTES) {
            true => Err("a name of more than 255 bytes".to_owned()),
            false => Ok(()),
        }
    }
}

fn is_range(start: i64, bytes: i64) -> bool {
    bytes > 0 && (start as u64).checked_add(bytes as u64).is_some()
}

fn fault_of_group(found: &RowGroupMetaData, group: &Group, file_bytes: u64) -> Option<String> {
    if found.num_rows() != group.rows as i64 {
        return Some(format!("{} rows of {}", found.num_rows(), group.rows));
    }
    if group.rows > MAX_GROUP_ROWS || group.accesses > group.rows as u64 {
        return Some("more rows than a row group may have".to_owned());
    }
    found.columns().iter().find_map(|column| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        let inside = end.is_some_and(|end| start >= 4 && (start..=file_bytes as i64).contains(&end));
        match column.compression() {
            _ if !inside => Some("a column lies outside the file".to_owned()),
            Compression::ZSTD(_) => None,
            other => Some(format!("a column is compressed by {other}, not ZSTD")),
        }
    })
}

fn no_parquet(path: &Path, bytes: u64, what: &str) -> TraceError {
    let starts = |magic: &[u8]| {
        let mut start = vec![0; magic.len()];
        let read = File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
        read.is_ok() && start == magic
    };
    if bytes > 0 && starts(b"PAR1") {
        return TraceError::damaged(path, format!("it is cut short, or its footer is wrong ({what})"));
    }
    let found = if bytes == 0 { Foreign::Empty } else { Foreign::NotParquet };
    TraceError::Foreign { path: path.to_owned(), found }
}

/// Runs the Parquet decoder on input that may be hostile; a panic in it is an error like any other.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded.map_err(|error| error.to_string()),
        Err(_) => Err("the Parquet decoder gave up".to_owned()),
    }
}
