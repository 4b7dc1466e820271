//! The bytes of a row group's column, checked before they are decoded.
//!
//! With run-length and dictionary encodings, compression and false headers, a few bytes can expand to
//! gigabytes. So each page header is parsed here first: a page that `memtide` would not write (too large,
//! another encoding, more values than the row group has rows) is refused, and the cost of decoding the rest
//! is bounded by the number of rows.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use bytes::{Buf, Bytes, buf::Reader};
use parquet::basic::Type;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::columns::{MAX_GROUP_ROWS, MAX_NAME_BYTES};
use crate::thrift::{field_header, int, wire};

/// Maximum bytes of a decoded page: a number per row, plus overhead of encodings.
const MAX_PAGE_BYTES: u64 = MAX_GROUP_ROWS as u64 * 9 + SLACK_BYTES;

/// Maximum bytes of a decoded dictionary; writers stop at 1 MiB plus the values of one more batch.
const MAX_DICTIONARY_BYTES: u64 = 2 << 20;

/// Maximum overhead of headers, levels and padding of encodings in a column, in bytes.
const SLACK_BYTES: u64 = 1 << 16;

/// Encodings by their numbers in Parquet.
mod encoding {
    pub const PLAIN: i64 = 0;
    pub const PLAIN_DICTIONARY: i64 = 2;
    pub const RLE: i64 = 3;
    pub const DELTA_BINARY_PACKED: i64 = 5;
    pub const RLE_DICTIONARY: i64 = 8;
    pub const BYTE_STREAM_SPLIT: i64 = 9;
}

/// Types of pages by their numbers in Parquet.
mod page {
    pub const DATA: i64 = 0;
    pub const DICTIONARY: i64 = 2;
    pub const DATA_V2: i64 = 3;
}

/// A column's bytes.
pub(crate) struct Chunk {
    /// Offset of the column in the file.
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    /// Reads a column, whose range must lie within the file.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::UnexpectedEof`] if the file has become shorter.
    pub fn read(file: &File, column: &ColumnChunkMetaData) -> io::Result<Chunk> {
        let (start, length) = column.byte_range();
        Ok(Chunk { start, bytes: read_range(file, start, length)?.into() })
    }

    /// Checks that decoding takes no more memory than this many rows need.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, column: &ColumnChunkMetaData, rows: usize) -> Result<(), String> {
        let kind = column.column_type();
        let width = if kind == Type::BYTE_ARRAY { MAX_NAME_BYTES as u64 + 6 } else { 9 };
        let mut left = Left {
            bytes: rows as u64 * width + MAX_DICTIONARY_BYTES + SLACK_BYTES,
            values: rows as i64,
            dictionary: false,
        };
        let mut rest: &[u8] = &self.bytes;
        while !rest.is_empty() {
            let page = PageHeader::take(&mut rest).ok_or("a page header is damaged")?;
            left.page(&page, kind)?;
            let length = usize::try_from(page.compressed).ok();
            rest = length.and_then(|length| rest.get(length..)).ok_or("a page reaches beyond its column")?;
        }
        Ok(())
    }
}

/// Reads bytes of a file.
///
/// # Errors
/// The system's; [`ErrorKind::UnexpectedEof`] if the file is too short.
pub(crate) fn read_range(file: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.from(start).map(Bytes::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let from = self.from(start)?;
        if length > from.len() {
            return Err(outside());
        }
        Ok(from.slice(..length))
    }
}

impl Chunk {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.filter(|&at| at <= self.bytes.len()).map(|at| self.bytes.slice(at..)).ok_or_else(outside)
    }
}

/// Bytes per number in a column of this type.
fn width(column: Type) -> u64 {
    if column == Type::INT32 { 4 } else { 8 }
}

fn outside() -> ParquetError {
    ParquetError::EOF("a page reaches beyond its column".to_owned())
}

/// Remaining allowance of a column.
struct Left {
    bytes: u64,
    values: i64,
    /// Whether its dictionary has been read.
    dictionary: bool,
}

impl Left {
    fn page(&mut self, header: &PageHeader, column: Type) -> Result<(), String> {
        let bytes = header.uncompressed;
        if header.plain && header.compressed != bytes {
            return Err(format!("a page of {bytes} B in {} B, not compressed", header.compressed));
        }
        self.bytes = match self.bytes.checked_sub(bytes) {
            Some(left) if bytes <= MAX_PAGE_BYTES => left,
            _ => return Err(format!("a page of {bytes} B, more than its rows need")),
        };
        match header.kind {
            page::DICTIONARY if self.dictionary => Err("a second dictionary".to_owned()),
            page::DICTIONARY => {
                self.dictionary = true;
                // Each value takes at least four bytes.
                let fits = bytes <= MAX_DICTIONARY_BYTES && (0..=bytes as i64 / 4).contains(&header.values);
                let plain = [encoding::PLAIN, encoding::PLAIN_DICTIONARY].contains(&header.encoding);
                match (fits, plain) {
                    (false, _) => Err(format!("a dictionary of {} values in {bytes} B", header.values)),
                    (_, false) => Err(format!("a dictionary in encoding {}", header.encoding)),
                    _ => Ok(()),
                }
            }
            page::DATA | page::DATA_V2 => {
                if !(0..=self.values).contains(&header.values) {
                    return Err("more values than rows".to_owned());
                }
                self.values -= header.values;
                // The decoder panics if values are missing.
                if header.encoding == encoding::BYTE_STREAM_SPLIT
                    && Some(bytes) != width(column).checked_mul(header.values as u64)
                {
                    return Err(format!("{} values in {bytes} B", header.values));
                }
                self.encoding(header.encoding, column)
            }
            other => Err(format!("a page of unknown type {other}")),
        }
    }

    fn encoding(&self, found: i64, column: Type) -> Result<(), String> {
        use encoding::*;
        let dictionary = [PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&found);
        let known = match column {
            Type::BOOLEAN => [PLAIN, RLE].contains(&found),
            Type::INT32 | Type::INT64 => {
                dictionary || [PLAIN, DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT].contains(&found)
            }
            // Encodings that derive a name from the previous one are refused: each can be longer than the
            // last.
            _ => dictionary || found == PLAIN,
        };
        match known {
            false => Err(format!("a page in encoding {found}, which memtide does not write")),
            true if dictionary && !self.dictionary => Err("a page whose dictionary is missing".to_owned()),
            true => Ok(()),
        }
    }
}

/// A page header (Thrift's compact protocol; `PageHeader` in parquet.thrift).
struct PageHeader {
    kind: i64,
    uncompressed: u64,
    compressed: u64,
    values: i64,
    encoding: i64,
    /// Whether its values are not compressed.
    plain: bool,
}

impl PageHeader {
    /// Takes a header from the front.
    fn take(bytes: &mut &[u8]) -> Option<PageHeader> {
        let mut kind = None;
        let [mut uncompressed, mut compressed] = [None; 2];
        let mut body = Body::default();
        let mut field = 0;
        while let Some(wire) = field_header(bytes, &mut field)? {
            match (field, wire) {
                (1, wire::INT32) => kind = Some(int(bytes)?),
                (2, wire::INT32) => uncompressed = Some(u64::try_from(int(bytes)?).ok()?),
                (3, wire::INT32) => compressed = Some(u64::try_from(int(bytes)?).ok()?),
                (4, wire::INT32) => drop(int(bytes)?),
                (5 | 7 | 8, wire::STRUCT) => body = Body::take(bytes, field)?,
                _ => return None,
            }
        }
        let kind = kind?;
        let encoding = if kind == page::DATA_V2 { body.integers[4] } else { body.integers[2] };
        Some(PageHeader {
            kind,
            uncompressed: uncompressed?,
            compressed: compressed?,
            values: body.integers[1]?,
            encoding: encoding?,
            plain: kind == page::DATA_V2 && body.plain,
        })
    }
}

/// Fields of a page header that depend on the page's type.
#[derive(Default)]
struct Body {
    /// The 32-bit integers by field number.
    integers: [Option<i64>; 7],
    /// Whether field 7, `is_compressed`, is present and false.
    plain: bool,
}

impl Body {
    /// Takes the body in this field of the header: of a data page (5), a dictionary (7) or a data page of
    /// version 2 (8).
    fn take(bytes: &mut &[u8], header: i64) -> Option<Body> {
        let mut body = Body::default();
        let mut field = 0;
        while let Some(wire) = field_header(bytes, &mut field)? {
            match (header, field, wire) {
                (5, 1..=4, wire::INT32) | (7, 1..=2, wire::INT32) | (8, 1..=6, wire::INT32) => {
                    body.integers[field as usize] = Some(int(bytes)?);
                }
                (7, 3, wire::TRUE | wire::FALSE) => {}
                (8, 7, wire::TRUE | wire::FALSE) => body.plain = wire == wire::FALSE,
                _ => return None,
            }
        }
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page header in Thrift's compact protocol.
    fn header(kind: i32, bytes: i32, values: i32, encoding: i32) -> Vec<u8> {
        let int = |number: i32| {
            let mut rest = ((number << 1) ^ (number >> 31)) as u32;
            let mut bytes = Vec::new();
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            bytes
        };
        let field = |step: u8, number: i32| [vec![step << 4 | 5], int(number)].concat();
        let (body, encoding_step) = match kind {
            2 => (7, 1),
            3 => (8, 3),
            _ => (5, 1),
        };
        [
            field(1, kind),
            field(1, bytes),
            field(1, 0),
            vec![(body - 3) << 4 | 12],
            field(1, values),
            field(encoding_step, encoding),
            vec![0, 0],
        ]
        .concat()
    }

    fn checked(column: Type, rows: i64, pages: &[Vec<u8>]) -> Result<(), String> {
        let mut left =
            Left { bytes: rows as u64 * 9 + MAX_DICTIONARY_BYTES, values: rows, dictionary: false };
        for page in pages {
            let mut rest = page.as_slice();
            let header = PageHeader::take(&mut rest).ok_or("damaged")?;
            assert!(rest.is_empty());
            left.page(&header, column)?;
        }
        Ok(())
    }

    #[test]
    fn page_header_of_another_type_is_refused() {
        let taken = |kind, added: &[u8]| {
            let mut bytes = header(kind, 8, 1, 0);
            let end_of_body = bytes.len() - 2;
            bytes.splice(end_of_body..end_of_body, added.iter().copied());
            PageHeader::take(&mut &*bytes).is_some()
        };
        assert!(taken(0, &[1 << 4 | wire::INT32, 0]));
        assert!(!taken(0, &[3 << 4 | wire::INT32, 0]), "a number for the statistics of a data page");
        assert!(!taken(0, &[1 << 4 | wire::TRUE]), "a boolean for an encoding");
        assert!(!taken(0, &[3 << 4 | wire::BINARY, 0]), "a binary for the statistics");
        assert!(taken(2, &[1 << 4 | wire::TRUE]) && !taken(2, &[1 << 4 | wire::INT32, 0]), "is_sorted");
    }

    #[test]
    fn pages_larger_than_their_rows_need_are_refused() {
        let data = |values, encoding| header(3, 800, values, encoding);
        let dictionary = |bytes, values| header(2, bytes, values, 0);
        let names = Type::BYTE_ARRAY;
        let mut plain = data(100, 0);
        plain.splice(plain.len() - 2.., [3 << 4 | wire::FALSE, 0, 0]);
        assert_eq!(checked(names, 100, &[dictionary(400, 100), data(40, 8), data(60, 0)]), Ok(()));
        assert_eq!(checked(Type::INT64, 100, &[header(0, 800, 100, 5)]), Ok(()));
        for (column, pages, expected) in [
            (names, vec![dictionary(400, i32::MAX)], "a dictionary of 2147483647 values in 400 B"),
            (names, vec![dictionary(3 << 20, 1)], "more than its rows need"),
            (names, vec![dictionary(4, 1), dictionary(4, 1)], "a second dictionary"),
            (names, vec![data(100, 7)], "encoding 7, which memtide does not write"),
            (names, vec![data(100, 6)], "encoding 6, which memtide does not write"),
            (names, vec![data(100, 8)], "whose dictionary is missing"),
            (names, vec![data(60, 0), data(41, 0)], "more values than rows"),
            (names, vec![data(-1, 0)], "more values than rows"),
            (Type::INT64, vec![header(3, i32::MAX, 100, 0)], "a page of 2147483647 B"),
            (Type::INT64, vec![header(3, 2 << 20, 0, 0), header(3, 2 << 20, 0, 0)], "more than its rows"),
            (Type::BOOLEAN, vec![data(100, 5)], "encoding 5"),
            (Type::INT32, vec![data(100, 9)], "100 values in 800 B"),
            (names, vec![header(1, 8, 1, 0)], "unknown type 1"),
            (names, vec![header(3, -1, 1, 0)], "damaged"),
            (names, vec![plain], "a page of 800 B in 0 B, not compressed"),
        ] {
            let error = checked(column, 100, &pages).expect_err(expected);
            assert!(error.contains(expected), "{error:?} instead of {expected:?}");
        }
    }
}
