//! Opens a trace and loads its row groups.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::ByteArrayType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::serialized_reader::SerializedPageReader;
use rustix::fs::OFlags;

use crate::chunk::{Chunk, read_range};
use crate::columns::{Columns, Kind, MAX_GROUP_ROWS, is_range, mark, schema};
use crate::footer::is_footer;
use crate::guarded::guarded;
use crate::metadata::{Group, Header, Metadata, MetadataError, Totals};
use crate::row_group::RowGroup;
use crate::{Foreign, TraceError};

/// First and last bytes of a Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Names decoded per batch.
const NAME_BATCH: usize = 1 << 12;

/// Opens a file for reading; does not block on a FIFO without a writer.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// A recorded program in a file.
pub struct Trace {
    path: PathBuf,
    file: File,
    parquet: ParquetMetaData,
    bytes: u64,
    metadata: Metadata,
    /// By row group: what replays have of it in memory.
    in_memory: Mutex<Vec<Weak<RowGroup>>>,
}

impl Trace {
    /// Opens a trace and checks everything that needs no decoding; the rest is checked when it is read.
    ///
    /// # Errors
    /// If the file cannot be read, is not a trace, has another version, or is damaged.
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let unreadable = |error| TraceError::io(path, "read it")(error);
        let file = open_without_waiting(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        let not_a_trace = |what: &str| TraceError::NotATrace { path: path.to_owned(), what: what.to_owned() };
        if found.is_dir() {
            return Err(not_a_trace("a folder; give the trace's file"));
        }
        if !found.is_file() {
            return Err(not_a_trace("not a regular file, which a trace is read from at any place"));
        }
        let bytes = found.len();
        let footer = read_footer(&file, bytes).map_err(unreadable)?.ok_or_else(|| foreign(path, bytes))?;
        let parquet = footer.and_then(decode_footer).map_err(|what| {
            TraceError::damaged(path, format!("it is cut short, or its footer is wrong ({what})"))
        })?;
        let footer = parquet.file_metadata();
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
        let in_memory = Mutex::new(metadata.groups.iter().map(|_| Weak::new()).collect());
        let trace = Trace { path: path.to_owned(), file, parquet, bytes, metadata, in_memory };
        trace.check_groups()?;
        Ok(trace)
    }

    /// What was recorded and how.
    pub fn header(&self) -> &Header {
        &self.metadata.header
    }

    /// Totals of the trace.
    pub fn totals(&self) -> Totals {
        self.metadata.totals
    }

    /// File size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.metadata.groups
    }

    /// The first epoch after a row group.
    pub(crate) fn end_of_group(&self, index: usize) -> u32 {
        self.groups().get(index + 1).map_or(self.metadata.totals.epochs, |group| group.first_epoch)
    }

    fn check_groups(&self) -> Result<(), TraceError> {
        let found = self.parquet.row_groups();
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

    /// A row group, decoded unless another replay has it in memory. The memory of `spare` is used again.
    pub(crate) fn row_group(&self, index: usize, spare: Columns) -> Result<Arc<RowGroup>, TraceError> {
        let mut in_memory = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = in_memory[index].upgrade() {
            return Ok(group);
        }
        let group = Arc::new(RowGroup::decode(self, index, spare)?);
        in_memory[index] = Arc::downgrade(&group);
        Ok(group)
    }

    /// Decodes a row group into `columns`, reusing their memory, and checks it.
    pub(crate) fn load(&self, index: usize, columns: &mut Columns) -> Result<(), TraceError> {
        let damaged = |what: String| TraceError::damaged(&self.path, format!("row group {index}: {what}"));
        let group = &self.groups()[index];
        columns.clear();
        columns.reserve(group.rows);
        for (number, column) in self.parquet.row_group(index).columns().iter().enumerate() {
            let chunk = Chunk::read(&self.file, column).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => damaged("the file has become shorter".to_owned()),
                _ => TraceError::io(&self.path, "read it")(error),
            })?;
            chunk
                .check(column, group.rows)
                .and_then(|()| guarded(|| decode(chunk, column, number, group.rows, columns)))
                .map_err(|what| damaged(format!("column {}: {what}", column.column_path().string())))?;
        }
        if !columns.is_even(group.rows) {
            return Err(damaged("its columns differ in length".to_owned()));
        }
        if columns.checksum() != group.checksum || columns.accesses() != group.accesses {
            return Err(damaged("its content is not what was written (checksum)".to_owned()));
        }
        self.check_rows(columns, index).map_err(damaged)
    }

    /// Checks what a checksum cannot: rows that were wrong when they were written.
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
                    Some(Kind::Access | Kind::NonTemporalStore)
                        if !(1..=i64::from(u16::MAX)).contains(&columns.size[row]) =>
                    {
                        "an access of 0 bytes, or of more than 65,535"
                    }
                    Some(Kind::NonTemporalStore) if !columns.write[row] => {
                        "a non-temporal store that is a load"
                    }
                    Some(Kind::NonTemporalStore) if self.totals().non_temporal_stores == 0 => {
                        "a non-temporal store in a trace that has none"
                    }
                    Some(Kind::Spawn | Kind::Fork)
                        if !(1..i64::from(threads)).contains(&columns.address[row]) =>
                    {
                        "it starts a thread that does not exist"
                    }
                    Some(Kind::Mark) if mark(columns.address[row] as u64).is_none() => "an unknown mark",
                    Some(Kind::Mark) if self.totals().marks == 0 => "a mark in a trace that has none",
                    Some(Kind::Map | Kind::Unmap)
                        if !is_range(columns.address[row] as u64, columns.size[row].max(0) as u64) =>
                    {
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
        Ok(())
    }
}

/// The footer: `None` if this is not a Parquet file, an error if it is a damaged one.
fn read_footer(file: &File, bytes: u64) -> io::Result<Option<Result<Vec<u8>, String>>> {
    let mut magic = [0; MAGIC.len()];
    let length = MAGIC.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
    file.read_exact_at(&mut magic[..length], 0)?;
    if magic != MAGIC {
        return Ok(None);
    }
    let cut = || Ok(Some(Err("its end is missing".to_owned())));
    let Some(end) = bytes.checked_sub(8).filter(|&end| end >= 4) else { return cut() };
    let tail = read_range(file, end, 8)?;
    let length = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
    match end.checked_sub(length.into()) {
        Some(start) if start >= 4 && tail[4..] == MAGIC => {
            Ok(Some(Ok(read_range(file, start, length.into())?)))
        }
        _ => cut(),
    }
}

fn decode_footer(footer: Vec<u8>) -> Result<ParquetMetaData, String> {
    if !is_footer(&footer) {
        return Err("its structure is damaged".to_owned());
    }
    guarded(|| ParquetMetaDataReader::decode_metadata(&footer))
}

/// Decodes a column of a row group.
fn decode(
    chunk: Chunk,
    column: &ColumnChunkMetaData,
    number: usize,
    rows: usize,
    columns: &mut Columns,
) -> Result<(), ParquetError> {
    let pages = SerializedPageReader::new(Arc::new(chunk), column, rows, None)?;
    let reader = get_column_reader(column.column_descr_ptr(), Box::new(pages));
    let read = match (reader, number) {
        (ColumnReader::Int32ColumnReader(mut reader), 0..=2 | 8) => {
            let narrow = match number {
                0 => &mut columns.epoch,
                1 => &mut columns.thread,
                2 => &mut columns.kind,
                _ => &mut columns.producer,
            };
            reader.read_records(rows, None, None, narrow)?.0
        }
        (ColumnReader::Int64ColumnReader(mut reader), 3..=5 | 7) => {
            let wide = match number {
                3 => &mut columns.instructions,
                4 => &mut columns.address,
                5 => &mut columns.size,
                _ => &mut columns.pc,
            };
            reader.read_records(rows, None, None, wide)?.0
        }
        (ColumnReader::BoolColumnReader(mut reader), 6) => {
            reader.read_records(rows, None, None, &mut columns.write)?.0
        }
        (ColumnReader::ByteArrayColumnReader(mut reader), 9) => decode_names(&mut reader, rows, columns)?,
        _ => return Err(ParquetError::General("it has another type".to_owned())),
    };
    match read == rows {
        true => Ok(()),
        false => Err(ParquetError::General(format!("{read} values of {rows}"))),
    }
}

/// Decodes names, batch by batch: they share their page's memory until each distinct one is copied once.
fn decode_names(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    rows: usize,
    columns: &mut Columns,
) -> Result<usize, ParquetError> {
    let mut names = Vec::new();
    let mut done = 0;
    while done < rows {
        let batch = NAME_BATCH.min(rows - done);
        names.clear();
        let (read, _, _) = reader.read_records(batch, Some(&mut columns.named), None, &mut names)?;
        let named = columns.named.iter().enumerate().skip(done).filter(|&(_, &named)| named == 1);
        for ((row, _), name) in named.zip(&names) {
            let name = name.as_utf8()?;
            columns.names.push(row, name).map_err(|what| ParquetError::General(what.to_owned()))?;
        }
        done += read;
        if read < batch {
            break;
        }
    }
    Ok(done)
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

fn foreign(path: &Path, bytes: u64) -> TraceError {
    let found = if bytes == 0 { Foreign::Empty } else { Foreign::NotParquet };
    TraceError::Foreign { path: path.to_owned(), found }
}
