//! Writes a trace.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtide_core::Mark;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnDescPtr;
use tempfile::NamedTempFile;

use crate::columns::{
    Columns, GROUP_ROWS, Kind, MAX_EPOCH_ROWS, MAX_THREADS, Row, is_range, mark, properties, schema, sum,
};
use crate::encode::{Encoder, Layout};
use crate::metadata::{Group, Header, Metadata, Totals};
use crate::{Trace, TraceError, leftovers};

/// Writes a trace, epoch by epoch. The file gets its name only once it is complete.
pub struct TraceWriter {
    path: PathBuf,
    file: SerializedFileWriter<BufWriter<NamedTempFile>>,
    metadata: Metadata,
    columns: Columns,
    encoder: Encoder,
    first_epoch: u32,
    epoch: u32,
    epoch_rows: usize,
    /// Instructions retired by each thread so far.
    instructions: Vec<u64>,
}

impl TraceWriter {
    /// Creates a trace.
    ///
    /// # Errors
    /// If the file cannot be created, or an existing one is a device, a folder or the like.
    pub fn create(path: &Path, header: Header) -> Result<TraceWriter, TraceError> {
        check_target(path)?;
        leftovers::remove(folder(path));
        let file = leftovers::unfinished_trace(folder(path)).map_err(TraceError::io(path, "write it"))?;
        let file = SerializedFileWriter::new(BufWriter::new(file), schema(), Arc::new(properties()))
            .map_err(|error| failed(path, error))?;
        Ok(TraceWriter {
            path: path.to_owned(),
            file,
            metadata: Metadata { header, totals: Totals::default(), groups: Vec::new() },
            columns: Columns::default(),
            encoder: Encoder::new().map_err(TraceError::io(path, "write it"))?,
            first_epoch: 0,
            epoch: 0,
            epoch_rows: 0,
            instructions: Vec::new(),
        })
    }

    /// Appends a row to the epoch. Rows are grouped by thread within an epoch, and in program order within a
    /// thread.
    ///
    /// # Errors
    /// If the row is invalid: its thread does not exist, its instruction count decreases, its size is 0, ...
    pub fn push(&mut self, row: &Row) -> Result<(), TraceError> {
        let fault =
            |what: &str| Err(TraceError::NotATrace { path: self.path.clone(), what: what.to_owned() });
        if row.thread >= MAX_THREADS || row.instructions > i64::MAX as u64 || row.size > i64::MAX as u64 {
            return fault("a thread number, instruction count or size beyond what a trace can hold");
        }
        if row.kind.is_access() && !(1..=u64::from(u16::MAX)).contains(&row.size) {
            return fault("an access of 0 bytes, or of more than 65,535");
        }
        if row.kind == Kind::NonTemporalStore && !row.write {
            return fault("a non-temporal store that is a load");
        }
        if row.producer > i32::MAX as u32 {
            return fault("a producer beyond what a trace can hold");
        }
        if matches!(row.kind, Kind::Map | Kind::Unmap) && !is_range(row.address, row.size) {
            return fault("a mapping of no bytes, or beyond the address space");
        }
        let starts = matches!(row.kind, Kind::Spawn | Kind::Fork);
        if starts && !(1..u64::from(MAX_THREADS)).contains(&row.address) {
            return fault("it starts thread 0, or one beyond what a trace can hold");
        }
        if row.kind == Kind::Mark && mark(row.address).is_none() {
            return fault("an unknown mark: it is 1 (begin), 2 (end) or 4 (warm up)");
        }
        let thread = row.thread as usize;
        let threads = if starts { thread.max(row.address as usize) } else { thread } + 1;
        if threads > self.instructions.len() {
            self.instructions.resize(threads, 0);
        }
        if row.instructions < self.instructions[thread] {
            return fault("a thread's instruction count falls");
        }
        if self.epoch_rows > 0 && self.columns.thread.last().is_some_and(|&last| row.thread < last as u32) {
            return fault("the rows of an epoch are not in order of threads");
        }
        if self.epoch_rows == MAX_EPOCH_ROWS {
            return fault("an epoch of more than 3,145,728 rows; make epochs shorter");
        }
        if let Err(what) = self.columns.push(self.epoch, row) {
            return fault(what);
        }
        self.instructions[thread] = row.instructions;
        self.epoch_rows += 1;
        let totals = &mut self.metadata.totals;
        if row.kind == Kind::Mark {
            totals.marks += 1;
            totals.regions += u64::from(mark(row.address) == Some(Mark::Begin));
        }
        totals.non_temporal_stores += u64::from(row.kind == Kind::NonTemporalStore);
        Ok(())
    }

    /// Rows in the current epoch so far.
    pub fn epoch_rows(&self) -> usize {
        self.epoch_rows
    }

    /// Ends the epoch, unless it is empty.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end_epoch(&mut self) -> Result<(), TraceError> {
        if self.epoch_rows == 0 {
            return Ok(());
        }
        self.epoch += 1;
        self.epoch_rows = 0;
        if self.columns.len() >= GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        self.metadata.groups.iter().map(|group| group.accesses).sum::<u64>() + self.columns.accesses()
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> Result<Totals, TraceError> {
        self.end_epoch()?;
        if self.columns.len() > 0 {
            self.write_group()?;
        }
        self.metadata.totals = Totals {
            epochs: self.epoch,
            threads: self.instructions.len().max(1) as u32,
            accesses: self.metadata.groups.iter().map(|group| group.accesses).sum(),
            instructions: sum(self.instructions.iter().copied()).ok_or_else(|| TraceError::NotATrace {
                path: self.path.clone(),
                what: "more instructions in all than a trace can hold".to_owned(),
            })?,
            ..self.metadata.totals
        };
        for pair in self.metadata.to_key_values() {
            self.file.append_key_value_metadata(pair);
        }
        let file = self.file.into_inner().map_err(|error| failed(&self.path, error))?;
        file.into_inner()
            .map_err(|error| error.into_error())
            .and_then(|file| Ok(file.persist(&self.path)?))
            .map_err(TraceError::io(&self.path, "write it"))?;
        Ok(self.metadata.totals)
    }

    fn write_group(&mut self) -> Result<(), TraceError> {
        let columns = std::mem::take(&mut self.columns);
        self.metadata.groups.push(Group {
            first_epoch: self.first_epoch,
            rows: columns.len(),
            accesses: columns.accesses(),
            checksum: columns.checksum(),
        });
        self.first_epoch = self.epoch;
        let described = self.file.schema_descr().columns().to_vec();
        let group = self.file.next_row_group().map_err(|error| failed(&self.path, error))?;
        write_columns(group, &described, &columns, &mut self.encoder)
            .map_err(|error| failed(&self.path, error))
    }
}

/// Refuses files that a trace must not replace: all but traces, whole or damaged, and empty files.
pub(crate) fn check_target(path: &Path) -> Result<(), TraceError> {
    let refused = |what: &str| Err(TraceError::io(path, "write it")(io::Error::other(what.to_owned())));
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => refused("it exists and is not a regular file"),
        Ok(found) if found.len() > 0 => match Trace::open(path) {
            Err(TraceError::Foreign { .. } | TraceError::NotATrace { .. }) => {
                refused("it exists and is not a trace; choose another name")
            }
            Ok(_) | Err(TraceError::Damaged { .. }) => Ok(()),
            Err(unreadable) => Err(unreadable),
        },
        _ => Ok(()),
    }
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_columns(
    mut group: SerializedRowGroupWriter<'_, BufWriter<NamedTempFile>>,
    described: &[ColumnDescPtr],
    columns: &Columns,
    encoder: &mut Encoder,
) -> Result<(), ParquetError> {
    use Layout::{Delta, Dictionary, Packed, Plain, Split};
    for column in described {
        let encoded = match column.name() {
            "instructions" => encoder.column(column, &columns.instructions, &[Delta])?,
            "address" => encoder.column(column, &columns.address, &[Split])?,
            "size" => encoder.column(column, &columns.size, &[Dictionary, Packed])?,
            "pc" => encoder.column(column, &columns.pc, &[Dictionary, Plain])?,
            "producer" => encoder.column(column, &columns.producer, &[Split, Delta])?,
            name => {
                write_column(&mut group, name, columns)?;
                continue;
            }
        };
        group.append_column(&encoded.bytes, encoded.close)?;
    }
    group.close()?;
    Ok(())
}

/// Writes the next column as the Parquet library encodes it.
fn write_column(
    group: &mut SerializedRowGroupWriter<'_, BufWriter<NamedTempFile>>,
    name: &str,
    columns: &Columns,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has this column");
    match column.untyped() {
        ColumnWriter::Int32ColumnWriter(writer) => {
            let values = match name {
                "epoch" => &columns.epoch,
                "thread" => &columns.thread,
                _ => &columns.kind,
            };
            writer.write_batch(values, None, None)?
        }
        ColumnWriter::BoolColumnWriter(writer) => writer.write_batch(&columns.write, None, None)?,
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let distinct = columns.names.distinct().iter();
            let distinct: Vec<_> = distinct.map(|name| ByteArray::from(&**name)).collect();
            let names: Vec<_> = columns.names.places().map(|place| distinct[place].clone()).collect();
            writer.write_batch(&names, Some(&columns.named), None)?
        }
        _ => unreachable!("the schema has no other types"),
    };
    column.close()
}

fn failed(path: &Path, error: ParquetError) -> TraceError {
    TraceError::io(path, "write it")(io::Error::other(error))
}
