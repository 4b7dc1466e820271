//! The table: its columns, their types and encodings.

use std::sync::Arc;

use memtide_core::Mark;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};

use crate::names::Names;

/// The format's name, in the file's metadata.
pub const FORMAT: &str = "memtide-trace";

/// The format's version, in the file's metadata. A trace without marks and non-temporal stores has version 1.
pub const VERSION: u32 = 2;

/// A row group ends with the epoch in which it reaches this many rows.
pub const GROUP_ROWS: usize = 1 << 18;

/// Maximum rows per epoch.
pub const MAX_EPOCH_ROWS: usize = 3 << 20;

/// Maximum rows per row group.
pub const MAX_GROUP_ROWS: usize = GROUP_ROWS + MAX_EPOCH_ROWS;

/// Maximum threads per trace.
pub const MAX_THREADS: u32 = 1 << 16;

/// Maximum bytes of a mapping's name.
pub const MAX_NAME_BYTES: usize = 255;

/// The schema in Parquet's own notation.
const SCHEMA: &str = "message memtide_trace {
    required int32 epoch;
    required int32 thread;
    required int32 kind;
    required int64 instructions;
    required int64 address (integer(64,false));
    required int64 size;
    required boolean write;
    required int64 pc (integer(64,false));
    required int32 producer;
    optional binary name (utf8);
}";

/// Values of column `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// An access to memory.
    Access = 0,
    /// Maps `size` bytes at `address`, called `name`.
    Map = 1,
    /// Unmaps `size` bytes at `address`.
    Unmap = 2,
    /// Starts thread `address` in the same address space.
    Spawn = 3,
    /// Starts thread `address` in a copy of the address space.
    Fork = 4,
    /// Executes another program, which is not recorded.
    Exec = 5,
    /// Continues on CPU `address` of the recording machine.
    Cpu = 6,
    /// The thread ends.
    End = 7,
    /// Mark `address`: 1 begins the region of interest, 2 ends it, 4 begins warm-up.
    Mark = 8,
    /// An access to memory: a non-temporal store, past the caches.
    NonTemporalStore = 9,
}

impl Kind {
    /// The kind with this number.
    pub fn from_number(number: i32) -> Option<Kind> {
        use Kind::*;
        let all = [Access, Map, Unmap, Spawn, Fork, Exec, Cpu, End, Mark, NonTemporalStore];
        all.into_iter().find(|&kind| kind as i32 == number)
    }

    /// Whether a row of this kind is an access to memory.
    pub fn is_access(self) -> bool {
        is_access(self as i32)
    }
}

/// Whether rows with this number in column `kind` are accesses.
#[inline]
pub(crate) fn is_access(number: i32) -> bool {
    number == Kind::Access as i32 || number == Kind::NonTemporalStore as i32
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its thread, numbered from 0 in the order in which threads start.
    pub thread: u32,
    /// Its kind.
    pub kind: Kind,
    /// Instructions retired by the thread so far, including this one's; never decreases within a thread.
    pub instructions: u64,
    /// First byte; for some kinds a thread, a CPU or a mark.
    pub address: u64,
    /// Size in bytes: 1 to 65,535 for an access.
    pub size: u64,
    /// Whether it is a store; a non-temporal one is, too.
    pub write: bool,
    /// Address of the accessing instruction; 0 if unknown.
    pub pc: u64,
    /// Distance in the thread's accesses to the load whose value the address depends on; 0 for none.
    pub producer: u32,
    /// A mapping's name.
    pub name: Option<String>,
}

impl Row {
    /// A row with only a kind.
    pub fn event(thread: u32, kind: Kind, instructions: u64) -> Row {
        Row { thread, kind, instructions, address: 0, size: 0, write: false, pc: 0, producer: 0, name: None }
    }
}

/// A row group's columns in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Columns {
    pub epoch: Vec<i32>,
    pub thread: Vec<i32>,
    pub kind: Vec<i32>,
    pub instructions: Vec<i64>,
    pub address: Vec<i64>,
    pub size: Vec<i64>,
    pub write: Vec<bool>,
    pub pc: Vec<i64>,
    pub producer: Vec<i32>,
    /// 1 where the row has a name.
    pub named: Vec<i16>,
    pub names: Names,
}

impl Columns {
    pub fn len(&self) -> usize {
        self.kind.len()
    }

    pub fn clear(&mut self) {
        for column in [&mut self.epoch, &mut self.thread, &mut self.kind, &mut self.producer] {
            column.clear();
        }
        for column in [&mut self.instructions, &mut self.address, &mut self.size, &mut self.pc] {
            column.clear();
        }
        self.write.clear();
        self.named.clear();
        self.names.clear();
    }

    /// Whether every column has this many values.
    pub fn is_even(&self, rows: usize) -> bool {
        let narrow = [&self.epoch, &self.thread, &self.kind, &self.producer];
        let wide = [&self.instructions, &self.address, &self.size, &self.pc];
        narrow.iter().all(|column| column.len() == rows)
            && wide.iter().all(|column| column.len() == rows)
            && [self.write.len(), self.named.len()] == [rows; 2]
    }

    /// Appends a row.
    ///
    /// # Errors
    /// Which limit its name exceeds; then nothing is appended.
    pub fn push(&mut self, epoch: u32, row: &Row) -> Result<(), &'static str> {
        if let Some(name) = &row.name {
            self.names.push(self.len(), name)?;
        }
        self.epoch.push(epoch as i32);
        self.thread.push(row.thread as i32);
        self.kind.push(row.kind as i32);
        self.instructions.push(row.instructions as i64);
        self.address.push(row.address as i64);
        self.size.push(row.size as i64);
        self.write.push(row.write);
        self.pc.push(row.pc as i64);
        self.producer.push(row.producer as i32);
        self.named.push(i16::from(row.name.is_some()));
        Ok(())
    }

    /// Reserves memory for exactly this many rows.
    pub fn reserve(&mut self, rows: usize) {
        for column in [&mut self.epoch, &mut self.thread, &mut self.kind, &mut self.producer] {
            column.reserve_exact(rows);
        }
        for column in [&mut self.instructions, &mut self.address, &mut self.size, &mut self.pc] {
            column.reserve_exact(rows);
        }
        self.write.reserve_exact(rows);
        self.named.reserve_exact(rows);
    }

    pub fn accesses(&self) -> u64 {
        self.kind.iter().filter(|&&kind| is_access(kind)).count() as u64
    }

    /// CRC-32 of all columns.
    pub fn checksum(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for column in [&self.epoch, &self.thread, &self.kind, &self.producer] {
            hash(&mut crc, column, i32::to_le_bytes);
        }
        for column in [&self.instructions, &self.address, &self.size, &self.pc] {
            hash(&mut crc, column, i64::to_le_bytes);
        }
        hash(&mut crc, &self.write, |write| [u8::from(write)]);
        hash(&mut crc, &self.named, i16::to_le_bytes);
        for name in self.names.places().map(|place| &self.names.distinct()[place]) {
            crc.update(&(name.len() as u32).to_le_bytes());
            crc.update(name.as_bytes());
        }
        crc.finalize()
    }
}

fn hash<T: Copy, const N: usize>(crc: &mut crc32fast::Hasher, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
    let mut block = [[0; N]; 256];
    for values in values.chunks(block.len()) {
        let block = &mut block[..values.len()];
        block.iter_mut().zip(values).for_each(|(slot, &value)| *slot = bytes(value));
        crc.update(block.as_flattened());
    }
}

/// The mark with this number, which is that of the lab's instruction.
pub(crate) fn mark(number: u64) -> Option<Mark> {
    match number {
        1 => Some(Mark::Begin),
        2 => Some(Mark::End),
        4 => Some(Mark::WarmUp),
        _ => None,
    }
}

/// Whether a non-empty range of this many bytes is valid at this address.
pub(crate) fn is_range(start: u64, bytes: u64) -> bool {
    bytes > 0 && start.checked_add(bytes).is_some()
}

/// The sum of instructions of threads; `None` if it exceeds a trace's maximum.
pub(crate) fn sum(instructions: impl IntoIterator<Item = u64>) -> Option<u64> {
    instructions.into_iter().try_fold(0, u64::checked_add)
}

pub(crate) fn schema() -> Arc<Type> {
    Arc::new(parse_message_type(SCHEMA).expect("the schema is a constant"))
}

/// How the columns that [`crate::encode`] leaves to the Parquet library are encoded.
pub(crate) fn properties() -> WriterProperties {
    let zstd = ZstdLevel::try_new(ZSTD_LEVEL).expect("a level that zstd has");
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(MAX_GROUP_ROWS)
        .set_data_page_size_limit(MAX_GROUP_ROWS * 8)
        // For names once their dictionary is full: readers refuse the default.
        .set_column_encoding(ColumnPath::from("name"), Encoding::PLAIN)
        .set_column_dictionary_enabled(ColumnPath::from("write"), false)
        .set_column_encoding(ColumnPath::from("write"), Encoding::RLE)
        .set_created_by(format!("memtide {}", env!("CARGO_PKG_VERSION")))
        .build()
}

pub(crate) const ZSTD_LEVEL: i32 = 12;
