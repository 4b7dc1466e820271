//! Thrift's compact protocol, in which Parquet has its footers and page headers.
//!
//! The Parquet library reads known fields by number, whatever type they announce: a false type shifts what it
//! reads next, for example to a list of 2^31 booleans, which take no bytes. So headers are accepted only if
//! they consist of fields that a trace may have, with their types.

/// Types of fields.
pub(crate) mod wire {
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const INT8: u8 = 3;
    pub const INT16: u8 = 4;
    pub const INT32: u8 = 5;
    pub const INT64: u8 = 6;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const STRUCT: u8 = 12;
}

/// The next field's type: `None` at the end of the structure.
pub(crate) fn field_header(bytes: &mut &[u8], field: &mut i64) -> Option<Option<u8>> {
    let header = byte(bytes)?;
    if header == 0 {
        return Some(None);
    }
    *field = match header >> 4 {
        0 => int(bytes)?,
        step => field.checked_add(i64::from(step))?,
    };
    Some(Some(header & 15))
}

pub(crate) fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
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

pub(crate) fn int(bytes: &mut &[u8]) -> Option<i64> {
    let number = varint(bytes)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}
