//! The structure of a footer, checked before the Parquet library decodes it: see [`crate::thrift`].

use crate::thrift::{byte, field_header, int, varint, wire};

/// The structure of a value.
enum Shape {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Binary,
    /// Values of one structure that takes at least a byte.
    List(&'static Shape),
    /// Fields by number.
    Struct(&'static [(i64, Shape)]),
}

use Shape::{Binary, Bool, Int8, Int16, Int32, Int64, List, Struct};

/// `FileMetaData` of parquet.thrift, with the fields that a trace has or may have.
const FOOTER: Shape = Struct(&[
    (1, Int32),
    (2, List(&SCHEMA_ELEMENT)),
    (3, Int64),
    (4, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Binary),
    (7, List(&Struct(&[(1, Struct(&[]))]))),
]);

const SCHEMA_ELEMENT: Shape = Struct(&[
    (1, Int32),
    (2, Int32),
    (3, Int32),
    (4, Binary),
    (5, Int32),
    (6, Int32),
    (7, Int32),
    (8, Int32),
    (9, Int32),
    (10, Struct(&[(1, Struct(&[])), (10, Struct(&[(1, Int8), (2, Bool)]))])),
]);

const ROW_GROUP: Shape =
    Struct(&[(1, List(&COLUMN_CHUNK)), (2, Int64), (3, Int64), (5, Int64), (6, Int64), (7, Int16)]);

const COLUMN_CHUNK: Shape =
    Struct(&[(2, Int64), (3, COLUMN_METADATA), (4, Int64), (5, Int32), (6, Int64), (7, Int32)]);

const COLUMN_METADATA: Shape = Struct(&[
    (1, Int32),
    (2, List(&Int32)),
    (3, List(&Binary)),
    (4, Int32),
    (5, Int64),
    (6, Int64),
    (7, Int64),
    (9, Int64),
    (11, Int64),
    (13, List(&Struct(&[(1, Int32), (2, Int32), (3, Int32)]))),
]);

const KEY_VALUE: Shape = Struct(&[(1, Binary), (2, Binary)]);

/// Whether a footer consists of these fields, and no list is longer than the footer.
pub(crate) fn is_footer(mut bytes: &[u8]) -> bool {
    FOOTER.take(&mut bytes).is_some()
}

impl Shape {
    /// Whether a field of this structure has this type.
    fn is(&self, found: u8) -> bool {
        match self {
            Bool => matches!(found, wire::TRUE | wire::FALSE),
            Int8 => found == wire::INT8,
            Int16 => found == wire::INT16,
            Int32 => found == wire::INT32,
            Int64 => found == wire::INT64,
            Binary => found == wire::BINARY,
            List(_) => found == wire::LIST,
            Struct(_) => found == wire::STRUCT,
        }
    }

    /// Takes a value from the front.
    fn take(&self, bytes: &mut &[u8]) -> Option<()> {
        match self {
            Bool => {}
            Int8 => drop(byte(bytes)?),
            Int16 | Int32 | Int64 => drop(int(bytes)?),
            Binary => {
                let length = usize::try_from(varint(bytes)?).ok()?;
                *bytes = bytes.get(length..)?;
            }
            List(element) => {
                let header = byte(bytes)?;
                let length = if header >> 4 == 15 { varint(bytes)? } else { u64::from(header >> 4) };
                (element.is(header & 15) && length <= bytes.len() as u64).then_some(())?;
                (0..length).try_for_each(|_| element.take(bytes))?;
            }
            Struct(fields) => {
                let mut number = 0;
                while let Some(found) = field_header(bytes, &mut number)? {
                    let (_, shape) = fields.iter().find(|(known, _)| *known == number)?;
                    shape.is(found).then_some(())?;
                    shape.take(bytes)?;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u8 = 0;

    /// The header of the next field.
    fn next(wire: u8) -> u8 {
        1 << 4 | wire
    }

    #[test]
    fn fields_of_a_footer_are_accepted() {
        let name = [next(wire::BINARY), 1, b'k', END];
        let pairs = [vec![5 << 4 | wire::LIST, 1 << 4 | wire::STRUCT], name.to_vec()].concat();
        assert!(is_footer(&[END]));
        assert!(is_footer(&[next(wire::INT32), 2, END]));
        assert!(is_footer(&[pairs, vec![END]].concat()));
    }

    #[test]
    fn field_of_another_type_is_refused() {
        assert!(!is_footer(&[next(wire::BINARY), 1, 2, END]), "a number");
        assert!(!is_footer(&[2 << 4 | wire::INT32, 2, END]), "a list");
        assert!(!is_footer(&[8 << 4 | wire::STRUCT, END, END]), "an unknown field");
        assert!(!is_footer(&[5 << 4 | wire::LIST, 1 << 4 | wire::BINARY, 0, END]), "a list of others");
        assert!(!is_footer(&[5 << 4 | wire::LIST, 1 << 4 | wire::TRUE, END]), "a list of booleans");
    }

    #[test]
    fn list_longer_than_its_footer_is_refused() {
        let endless = [vec![2 << 4 | wire::LIST, 0xf0 | wire::STRUCT], vec![0xff; 9], vec![1, END]].concat();
        assert!(!is_footer(&endless));
        assert!(!is_footer(&[2 << 4 | wire::LIST, 3 << 4 | wire::STRUCT, END, END]));
        assert!(!is_footer(&[next(wire::STRUCT); 1000]));
    }
}
