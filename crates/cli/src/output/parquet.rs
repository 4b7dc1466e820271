//! A table as a Parquet file.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::cell::Cell;

/// A column: its name, and its cells.
pub type Column<'a> = (&'a str, Vec<&'a Cell>);

/// The file's bytes. Every column is optional: text (UTF-8), `int64` or, for figures and columns without any,
/// `double`.
pub fn parquet(columns: &[Column]) -> Vec<u8> {
    write(columns).expect("a table of equally long columns goes into memory")
}

fn write(columns: &[Column]) -> Result<Vec<u8>> {
    let fields = columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("memtide").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for (_, cells) in columns {
        let mut column = group.next_column()?.expect("a column of the schema");
        let levels: Vec<i16> = cells.iter().map(|cell| i16::from(!matches!(cell, Cell::Absent))).collect();
        let held = cells.iter().filter(|cell| !matches!(cell, Cell::Absent));
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let texts: Vec<ByteArray> =
                    held.map(|cell| ByteArray::from(cell.exact().into_bytes())).collect();
                writer.write_batch(&texts, Some(&levels), None)?;
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let numbers: Vec<i64> = held.map(|cell| cell.number().unwrap_or_default() as i64).collect();
                writer.write_batch(&numbers, Some(&levels), None)?;
            }
            ColumnWriter::DoubleColumnWriter(writer) => {
                let numbers: Vec<f64> = held.map(|cell| cell.number().unwrap_or(f64::NAN)).collect();
                writer.write_batch(&numbers, Some(&levels), None)?;
            }
            _ => unreachable!("the schema has these three types only"),
        }
        column.close()?;
    }
    group.close()?;
    file.into_inner()
}

fn field((name, cells): &Column) -> Result<Type> {
    let held = || cells.iter().filter(|cell| !matches!(cell, Cell::Absent));
    let (physical, logical) = if held().any(|cell| !cell.is_number()) {
        (Physical::BYTE_ARRAY, Some(LogicalType::String))
    } else if held().count() > 0 && held().all(|cell| matches!(cell, Cell::Whole(_))) {
        (Physical::INT64, None)
    } else {
        (Physical::DOUBLE, None)
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn columns_are_read_back_with_their_types() {
        let cells = [
            [Cell::text("a, \"b\""), Cell::Absent],
            [Cell::Whole(7), Cell::Absent],
            [Cell::Whole(7), Cell::Real(0.1, 1)],
            [Cell::Absent, Cell::Absent],
            [Cell::Percent(0.25), Cell::Absent],
        ];
        let names = ["text", "whole", "mixed", "absent", "share"];
        let columns: Vec<Column> =
            names.into_iter().zip(cells.iter().map(|cells| cells.iter().collect())).collect();
        let file = SerializedFileReader::new(Bytes::from(parquet(&columns))).unwrap();
        let rows: Vec<String> =
            file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows[0], r#"{text: "a, "b"", whole: 7, mixed: 7.0, absent: null, share: 0.25}"#);
        assert_eq!(rows[1], "{text: null, whole: null, mixed: 0.1, absent: null, share: null}");
    }
}
