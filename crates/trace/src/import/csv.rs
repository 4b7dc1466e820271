//! Comma-separated values.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::{Importer, excerpt};
use crate::{Kind, MAX_THREADS, Row, TraceError};

const REQUIRED: [&str; 5] = ["thread", "instructions", "address", "size", "write"];
const OPTIONAL: [&str; 3] = ["pc", "producer", "non_temporal"];

/// Maximum bytes of a record; a quoted field may have any number of lines.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// An input that fails if a record is too long.
struct Limited<'a, R> {
    source: R,
    /// Bytes since the last record.
    since: &'a Cell<usize>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since.get() > MAX_RECORD_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let read = self.source.read(buffer)?;
        self.since.set(self.since.get() + read);
        Ok(read)
    }
}

pub(super) fn read(source: impl Read, path: &Path, importer: &mut Importer) -> Result<(), TraceError> {
    let fault = |line: u64, what: String| TraceError::Import { path: path.to_owned(), line, what };
    let since = Cell::new(0);
    let unreadable = |error: csv::Error, begins: u64| {
        let line = error.position().map_or(1, csv::Position::line);
        let what = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(_) if since.get() > MAX_RECORD_BYTES => {
                fault(begins, "a record of more than 1 MiB; is a quotation mark missing?".to_owned())
            }
            csv::ErrorKind::Io(error) => TraceError::io(path, "read it")(error),
            _ => fault(line, what),
        }
    };
    let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(Limited { source, since: &since });
    let header = reader.byte_headers().map_err(|error| unreadable(error, 1))?;
    let columns = find_columns(header).map_err(|what| fault(1, what))?;
    let mut threads = BTreeMap::new();
    let mut record = ByteRecord::new();
    loop {
        since.set(0);
        let begins = reader.position().line();
        if !reader.read_byte_record(&mut record).map_err(|error| unreadable(error, begins))? {
            return Ok(());
        }
        let line = record.position().map_or(0, csv::Position::line);
        let fields = Fields { columns: &columns, record: &record };
        let mut row = fields.row().map_err(|what| fault(line, what))?;
        let next = threads.len() as u32;
        row.thread = *threads.entry(row.thread).or_insert(next);
        if row.thread >= MAX_THREADS {
            return Err(fault(line, format!("more than {MAX_THREADS} threads")));
        }
        importer.access(row)?.map_err(|what| fault(line, what))?;
    }
}

/// Indices of the eight columns, `None` for missing optional ones.
fn find_columns(header: &ByteRecord) -> Result<[Option<usize>; 8], String> {
    let mut columns = [None; 8];
    let known = || REQUIRED.iter().chain(&OPTIONAL);
    for (at, name) in header.iter().enumerate() {
        let found = known().position(|known| known.as_bytes() == name).ok_or_else(|| {
            let name = excerpt(name);
            let (required, optional) = (REQUIRED.join(", "), OPTIONAL.join(", "));
            format!("unknown column {name}; the columns are {required} and, if known, {optional}")
        })?;
        if columns[found].replace(at).is_some() {
            return Err(format!("column {:?} is there twice", known().nth(found).unwrap_or(&"")));
        }
    }
    match REQUIRED.iter().zip(columns).find(|(_, column)| column.is_none()) {
        Some((name, _)) => {
            Err(format!("column {name:?} is missing from the header; required are {}", REQUIRED.join(", ")))
        }
        None => Ok(columns),
    }
}

struct Fields<'a> {
    columns: &'a [Option<usize>; 8],
    record: &'a ByteRecord,
}

impl Fields<'_> {
    fn row(&self) -> Result<Row, String> {
        let write = self.flag(4)?;
        let non_temporal = self.columns[7].is_some() && self.flag(7)?;
        if non_temporal && !write {
            return Err("column non_temporal: a load is never non-temporal".to_owned());
        }
        Ok(Row {
            thread: self.small(0)?,
            kind: if non_temporal { Kind::NonTemporalStore } else { Kind::Access },
            instructions: self.number(1)?,
            address: self.number(2)?,
            size: self.number(3)?,
            write,
            pc: self.number(5)?,
            producer: self.small(6)?,
            name: None,
        })
    }

    fn text(&self, column: usize) -> Option<&[u8]> {
        self.record.get(self.columns[column]?)
    }

    /// A number; 0 if the column is missing.
    fn number(&self, column: usize) -> Result<u64, String> {
        let Some(bytes) = self.text(column) else { return Ok(0) };
        let text = str::from_utf8(bytes).unwrap_or_default();
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| self.wrong(column, "a number, decimal or 0x hexadecimal"))
    }

    fn small(&self, column: usize) -> Result<u32, String> {
        u32::try_from(self.number(column)?).map_err(|_| self.wrong(column, "a number below 2^32"))
    }

    fn flag(&self, column: usize) -> Result<bool, String> {
        match self.text(column) {
            Some(b"0" | b"false") => Ok(false),
            Some(b"1" | b"true") => Ok(true),
            _ => Err(self.wrong(column, "0, 1, false or true")),
        }
    }

    fn wrong(&self, column: usize, expected: &str) -> String {
        let name = REQUIRED.iter().chain(&OPTIONAL).nth(column).unwrap_or(&"");
        format!("column {name}: {} is not {expected}", excerpt(self.text(column).unwrap_or_default()))
    }
}
