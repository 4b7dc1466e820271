//! Encodes the columns of integers that make up most of a trace.
//!
//! zstd finds what repeats in whole bytes only. So dictionary indices and deltas have widths of 8, 16, ...
//! bits, and a column has one minimum delta: each iteration of a loop has the same bytes. Parquet permits
//! that, but its libraries pack values into the fewest bits, which compress worse:
//!
//! ```text
//! indices      0 1 2 0 1 2 0 1 2 0 1 2 ...
//! 2 bits each  24 49 92 24 49 92 ...              repeats after 4 iterations
//! 8 bits each  00 01 02 00 01 02 00 01 02 ...     repeats after 1 iteration
//! ```
//!
//! A column is compressed in each of its candidate layouts, and the smallest is kept. What is written depends
//! on the rows alone.

use std::collections::HashMap;
use std::io;
use std::mem::size_of;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::{ColumnCloseResult, get_column_writer, get_typed_column_writer};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use crate::columns::{ZSTD_LEVEL, properties};

/// How a column's values are laid out before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Value after value.
    Plain,
    /// All first bytes, all second bytes, ... (`BYTE_STREAM_SPLIT`).
    Split,
    /// Indices of 8 or 16 bits, in order of first appearance (`RLE_DICTIONARY`).
    Dictionary,
    /// As the Parquet library writes dictionaries: indices of the fewest bits, and run lengths.
    Packed,
    /// Differences from the previous value (`DELTA_BINARY_PACKED`).
    Delta,
}

/// Maximum distinct values of [`Layout::Dictionary`].
const MAX_DISTINCT: usize = 1 << 16;

/// Deltas per block; those of a block have one width.
const BLOCK: usize = 1 << 12;

/// A column chunk.
pub(crate) struct Encoded {
    pub bytes: Bytes,
    pub close: ColumnCloseResult,
}

/// Encodes columns.
pub(crate) struct Encoder {
    zstd: Compressor<'static>,
    properties: WriterPropertiesPtr,
}

/// A column's values before compression.
struct Pages {
    /// The distinct values of a dictionary, and their number.
    dictionary: Option<(Vec<u8>, usize)>,
    data: Vec<u8>,
    encoding: Encoding,
}

impl Encoder {
    /// # Errors
    /// If there is no memory for zstd.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder { zstd: Compressor::new(ZSTD_LEVEL)?, properties: Arc::new(properties()) })
    }

    /// Encodes a column in the smallest of these layouts, the first of equals.
    ///
    /// # Errors
    /// If there is no memory for zstd.
    pub fn column<T: Integer>(
        &mut self,
        column: &ColumnDescPtr,
        values: &[T],
        layouts: &[Layout],
    ) -> Result<Encoded, ParquetError> {
        let mut smallest: Option<Encoded> = None;
        for &layout in layouts {
            let encoded = match layout {
                Layout::Packed => self.packed(column, values)?,
                _ => match pages(values, layout) {
                    Some(pages) => self.compress(column, values.len(), pages)?,
                    None => continue,
                },
            };
            if smallest.as_ref().is_none_or(|smallest| encoded.bytes.len() < smallest.bytes.len()) {
                smallest = Some(encoded);
            }
        }
        match smallest {
            Some(smallest) => Ok(smallest),
            None => self.compress(column, values.len(), Pages::plain(values)),
        }
    }

    /// Encodes a column as the Parquet library does.
    fn packed<T: Integer>(&mut self, column: &ColumnDescPtr, values: &[T]) -> Result<Encoded, ParquetError> {
        let mut sink = TrackedWrite::new(Vec::new());
        let pages = Box::new(SerializedPageWriter::new(&mut sink));
        let writer = get_column_writer(column.clone(), self.properties.clone(), pages);
        let mut writer = get_typed_column_writer::<T::Column>(writer);
        writer.write_batch(values, None, None)?;
        let close = writer.close()?;
        Ok(Encoded { bytes: sink.into_inner()?.into(), close })
    }

    fn compress(
        &mut self,
        column: &ColumnDescPtr,
        rows: usize,
        pages: Pages,
    ) -> Result<Encoded, ParquetError> {
        let mut sink = TrackedWrite::new(Vec::new());
        let mut writer = SerializedPageWriter::new(&mut sink);
        let mut encodings = vec![pages.encoding];
        let mut uncompressed = 0;
        let mut dictionary_offset = None;
        if let Some((dictionary, distinct)) = pages.dictionary {
            let page = Page::DictionaryPage {
                buf: self.zstd.compress(&dictionary)?.into(),
                num_values: distinct as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let written = writer.write_page(CompressedPage::new(page, dictionary.len()))?;
            encodings.insert(0, Encoding::PLAIN);
            uncompressed += written.uncompressed_size;
            dictionary_offset = Some(written.offset as i64);
        }
        let page = Page::DataPageV2 {
            buf: self.zstd.compress(&pages.data)?.into(),
            num_values: rows as u32,
            encoding: pages.encoding,
            num_nulls: 0,
            num_rows: rows as u32,
            def_levels_byte_len: 0,
            rep_levels_byte_len: 0,
            is_compressed: true,
            statistics: None,
        };
        let written = writer.write_page(CompressedPage::new(page, pages.data.len()))?;
        uncompressed += written.uncompressed_size;
        let bytes = sink.into_inner()?;
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(encodings)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(written.offset as i64)
            .set_dictionary_page_offset(dictionary_offset)
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Encoded { bytes: bytes.into(), close })
    }
}

/// An integer of a column.
pub(crate) trait Integer: Copy + Into<i64> {
    type Column: DataType<T = Self>;

    /// The difference from another, modulo its width.
    fn minus(self, other: Self) -> i64;
}

impl Integer for i32 {
    type Column = Int32Type;

    fn minus(self, other: i32) -> i64 {
        self.wrapping_sub(other).into()
    }
}

impl Integer for i64 {
    type Column = Int64Type;

    fn minus(self, other: i64) -> i64 {
        self.wrapping_sub(other)
    }
}

impl Pages {
    fn plain<T: Integer>(values: &[T]) -> Pages {
        Pages { dictionary: None, data: plain(values), encoding: Encoding::PLAIN }
    }
}

/// The values in this layout; `None` if it cannot hold them.
fn pages<T: Integer>(values: &[T], layout: Layout) -> Option<Pages> {
    let mut dictionary = None;
    let (data, encoding) = match layout {
        Layout::Plain => return Some(Pages::plain(values)),
        Layout::Split => (split(values), Encoding::BYTE_STREAM_SPLIT),
        Layout::Delta => (delta(values), Encoding::DELTA_BINARY_PACKED),
        Layout::Dictionary => {
            let (distinct, indices) = distinct(values)?;
            dictionary = Some((plain(&distinct), distinct.len()));
            (one_run(&indices, distinct.len()), Encoding::RLE_DICTIONARY)
        }
        Layout::Packed => return None,
    };
    Some(Pages { dictionary, data, encoding })
}

fn plain<T: Integer>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    for &value in values {
        push(&mut bytes, value.into() as u64, size_of::<T>());
    }
    bytes
}

fn split<T: Integer>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    for byte in 0..size_of::<T>() {
        bytes.extend(values.iter().map(|&value| (value.into() >> (8 * byte)) as u8));
    }
    bytes
}

/// The distinct values in order of first appearance, and each value's index; `None` if there are too many.
fn distinct<T: Integer>(values: &[T]) -> Option<(Vec<T>, Vec<u16>)> {
    const RECENT: usize = 1 << 12;
    let mut indices = Vec::with_capacity(values.len());
    let mut distinct = Vec::new();
    let mut places = HashMap::new();
    // Recent values and their indices, which spares most look-ups.
    let mut recent: Vec<Option<(i64, u16)>> = vec![None; RECENT];
    for &value in values {
        let key: i64 = value.into();
        let slot = &mut recent[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) as u64 >> 52) as usize];
        let index = match *slot {
            Some((known, index)) if known == key => index,
            _ => *places.entry(key).or_insert_with(|| {
                distinct.push(value);
                (distinct.len() - 1) as u16
            }),
        };
        if distinct.len() > MAX_DISTINCT {
            return None;
        }
        *slot = Some((key, index));
        indices.push(index);
    }
    Some((distinct, indices))
}

/// Indices of 8 or 16 bits as one run of Parquet's hybrid of run lengths and bit packing.
fn one_run(indices: &[u16], distinct: usize) -> Vec<u8> {
    let width = if distinct <= 1 << 8 { 1 } else { 2 };
    let groups = indices.len().div_ceil(8);
    let mut bytes = Vec::with_capacity(groups * 8 * width + 8);
    bytes.push(8 * width as u8);
    varint(&mut bytes, (groups as u64) << 1 | 1);
    for &index in indices {
        push(&mut bytes, index.into(), width);
    }
    bytes.resize(bytes.len() + (groups * 8 - indices.len()) * width, 0);
    bytes
}

/// Blocks of one miniblock. The minimum delta of a block is 0, or the column's if it has a negative one.
fn delta<T: Integer>(values: &[T]) -> Vec<u8> {
    let deltas: Vec<i64> = values.windows(2).map(|pair| pair[1].minus(pair[0])).collect();
    let least = deltas.iter().copied().min().unwrap_or(0);
    let block = BLOCK.min(deltas.len().next_multiple_of(128).max(128));
    let mut bytes = Vec::with_capacity(values.len() * 2);
    varint(&mut bytes, block as u64);
    varint(&mut bytes, 1);
    varint(&mut bytes, values.len() as u64);
    zigzag(&mut bytes, values.first().map_or(0, |&first| first.into()));
    for deltas in deltas.chunks(block) {
        let min = if deltas.iter().all(|&delta| delta >= 0) { 0 } else { least };
        let above = |&delta: &i64| delta.wrapping_sub(min) as u64;
        let most = deltas.iter().map(above).max().unwrap_or(0);
        let width = (64 - most.leading_zeros()).div_ceil(8) as usize;
        zigzag(&mut bytes, min);
        bytes.push(8 * width as u8);
        for delta in deltas {
            push(&mut bytes, above(delta), width);
        }
        bytes.resize(bytes.len() + (block - deltas.len()) * width, 0);
    }
    bytes
}

/// Appends a number's lowest bytes.
#[inline]
fn push(bytes: &mut Vec<u8>, number: u64, width: usize) {
    bytes.extend_from_slice(&number.to_le_bytes()[..width]);
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn zigzag(bytes: &mut Vec<u8>, number: i64) {
    varint(bytes, (number << 1 ^ number >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use parquet::column::reader::{get_column_reader, get_typed_column_reader};
    use parquet::file::serialized_reader::SerializedPageReader;
    use parquet::schema::types::SchemaDescriptor;
    use proptest::prelude::*;

    use super::*;
    use crate::columns::schema;

    const ALL: [Layout; 5] =
        [Layout::Plain, Layout::Split, Layout::Dictionary, Layout::Packed, Layout::Delta];

    fn column(name: &str) -> ColumnDescPtr {
        let columns = SchemaDescriptor::new(schema());
        columns.columns().iter().find(|column| column.name() == name).unwrap().clone()
    }

    fn encode<T: Integer>(column: &ColumnDescPtr, values: &[T], layouts: &[Layout]) -> Encoded {
        Encoder::new().unwrap().column(column, values, layouts).unwrap()
    }

    fn decode<T: Integer>(encoded: Encoded, rows: usize) -> Vec<T> {
        let metadata = &encoded.close.metadata;
        let pages = SerializedPageReader::new(Arc::new(encoded.bytes), metadata, rows, None).unwrap();
        let reader = get_column_reader(metadata.column_descr_ptr(), Box::new(pages));
        let mut values = Vec::new();
        let mut reader = get_typed_column_reader::<T::Column>(reader);
        reader.read_records(rows, None, None, &mut values).unwrap();
        values
    }

    /// Any numbers, small ones, and a loop's.
    fn values() -> impl Strategy<Value = Vec<i64>> {
        prop_oneof![
            prop::collection::vec(any::<i64>(), 1..300),
            prop::collection::vec(-3..300_i64, 1..10_000),
            (prop::collection::vec(any::<i64>(), 1..40), 1..200_usize).prop_map(|(body, n)| body.repeat(n)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn columns_are_read_as_written_in_each_layout(values in values()) {
            let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            for layout in ALL {
                let wide = encode(&column("pc"), &values, &[layout]);
                prop_assert_eq!(decode::<i64>(wide, values.len()), &*values, "{:?}", layout);
                let producers = encode(&column("producer"), &narrow, &[layout]);
                prop_assert_eq!(decode::<i32>(producers, narrow.len()), &*narrow, "{:?}", layout);
            }
        }

        #[test]
        fn smallest_layout_is_chosen(values in values()) {
            let pc = column("pc");
            let chosen = encode(&pc, &values, &ALL).bytes;
            let least = ALL.map(|layout| encode(&pc, &values, &[layout]).bytes.len()).into_iter().min();
            prop_assert_eq!(Some(chosen.len()), least);
        }

        #[test]
        fn bytes_depend_on_values_alone(before in values(), values in values()) {
            let pc = column("pc");
            let mut encoder = Encoder::new().unwrap();
            encoder.column(&pc, &before, &ALL).unwrap();
            let after = encoder.column(&pc, &values, &ALL).unwrap();
            prop_assert_eq!(after.bytes, encode(&pc, &values, &ALL).bytes);
        }
    }

    #[test]
    fn loop_is_smaller_in_whole_bytes() {
        // A loop of 200 instructions that skips some of them in each iteration.
        let skips = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57 == 0;
        let pcs: Vec<i64> =
            (0..100_000).filter(|&i| !skips(i)).map(|i| 0x40_0000 + (i % 200 * 5) as i64).collect();
        let size = |layout| encode(&column("pc"), &pcs, &[layout]).bytes.len();
        let dictionary = size(Layout::Dictionary);
        for other in [Layout::Plain, Layout::Split, Layout::Packed, Layout::Delta] {
            assert!(dictionary < size(other), "{dictionary} bytes, {other:?} {}", size(other));
        }
    }

    #[test]
    fn values_that_no_dictionary_holds_are_plain() {
        let pc = column("pc");
        for (distinct, dictionary) in [(256, true), (257, true), (65_536, true), (65_537, false)] {
            let values: Vec<i64> = (0..distinct).chain(0..distinct).collect();
            let encoded = encode(&pc, &values, &[Layout::Dictionary]);
            assert_eq!(encoded.close.metadata.dictionary_page_offset().is_some(), dictionary, "{distinct}");
            assert_eq!(decode::<i64>(encoded, values.len()), values, "{distinct}");
        }
    }

    #[test]
    fn blocks_of_deltas_end_anywhere() {
        let instructions = column("instructions");
        for rows in [1, 2, 128, 129, 130, 4096, 4097, 4098, 3 * 4096 + 1] {
            // The second thread of an epoch begins at a lower count.
            let values: Vec<i64> = (0..rows).map(|row| row % 5000 * 3).collect();
            let encoded = encode(&instructions, &values, &[Layout::Delta]);
            assert_eq!(decode::<i64>(encoded, values.len()), values, "{rows}");
        }
    }
}
