//! Looks at page headers before anything is decompressed, so that a small file cannot ask for a lot of memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use parquet::file::metadata::RowGroupMetaData;

use crate::columns::MAX_GROUP_ROWS;

/// A page of the widest column, with room for encodings' own data.
const MAX_PAGE_BYTES: u64 = MAX_GROUP_ROWS as u64 * 9 + (1 << 16);

/// Checks the size of every page of a row group.
///
/// # Errors
/// Which column is wrong, and how.
pub(crate) fn check(path: &Path, group: &RowGroupMetaData) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    for (index, column) in group.columns().iter().enumerate() {
        let (start, length) = column.byte_range();
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(|error| error.to_string())?;
        file.by_ref().take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        check_chunk(&bytes)
            .ok_or_else(|| format!("column {index} has a page that is too large or damaged"))?;
    }
    Ok(())
}

fn check_chunk(mut chunk: &[u8]) -> Option<()> {
    while !chunk.is_empty() {
        let sizes = page_header(&mut chunk)?;
        if sizes.uncompressed > MAX_PAGE_BYTES {
            return None;
        }
        chunk = chunk.get(usize::try_from(sizes.compressed).ok()?..)?;
    }
    Some(())
}

struct Sizes {
    uncompressed: u64,
    compressed: u64,
}

/// Takes a page header (Thrift's compact protocol; `PageHeader` in parquet.thrift) off the front.
fn page_header(bytes: &mut &[u8]) -> Option<Sizes> {
    let mut sizes = [None; 4];
    let mut field = 0;
    while let Some(kind) = field_header(bytes, &mut field)? {
        if kind == INT32 && (2..=3).contains(&field) {
            sizes[field as usize] = Some(u64::try_from(unzigzag(varint(bytes)?)).ok()?);
        } else {
            skip(bytes, kind, 0)?;
        }
    }
    Some(Sizes { uncompressed: sizes[2]?, compressed: sizes[3]? })
}

const INT32: u8 = 5;

/// The next field's type: `None` at the end of the structure.
fn field_header(bytes: &mut &[u8], field: &mut i64) -> Option<Option<u8>> {
    let header = byte(bytes)?;
    if header == 0 {
        return Some(None);
    }
    *field = match header >> 4 {
        0 => unzigzag(varint(bytes)?),
        step => field.checked_add(i64::from(step))?,
    };
    Some(Some(header & 15))
}

fn skip(bytes: &mut &[u8], kind: u8, depth: u32) -> Option<()> {
    match kind {
        1 | 2 => {}
        3 => drop(byte(bytes)?),
        4..=6 => drop(varint(bytes)?),
        7 => *bytes = bytes.get(8..)?,
        8 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            *bytes = bytes.get(length..)?;
        }
        12 if depth < 8 => {
            let mut field = 0;
            while let Some(kind) = field_header(bytes, &mut field)? {
                skip(bytes, kind, depth + 1)?;
            }
        }
        _ => return None,
    }
    Some(())
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(bytes)?;
        number |= u64::from(next & 0x7f) << shift;
        if next < 0x80 {
            return Some(number);
        }
    }
    None
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
