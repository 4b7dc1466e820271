//! A stream: windows of [`WINDOW_BYTES`], each full of records and then zeros.
//!
//! A record is a tag byte, never 0, and LEB128 numbers. An access's address is encoded relative to the last
//! one of (nearly always) the same instruction, which takes one or two bytes.

use crate::{Mark, RawAccess, Record};

/// Growth increment of a stream; no record crosses a boundary.
pub const WINDOW_BYTES: usize = 1 << 18;

/// Maximum length of a record.
pub const MAX_RECORD_BYTES: usize = 320;

/// Maximum length of a mapping's name, which is cut to it.
pub const MAX_NAME_BYTES: usize = 255;

const ACCESS: u8 = 0x80;
const WRITE: u8 = 0x40;
const NON_TEMPORAL: u8 = 0x20;
const SIZE_FOLLOWS: u8 = 0x1f;
const RECENT: usize = 1024;

/// State of the address prediction, equal in encoder and decoder.
struct Recent {
    pc: u64,
    addresses: Box<[u64; RECENT]>,
}

impl Recent {
    fn new() -> Recent {
        Recent { pc: 0, addresses: Box::new([0; RECENT]) }
    }

    fn address(&mut self, pc: u64, write: bool) -> &mut u64 {
        &mut self.addresses[(pc.wrapping_mul(2) as usize + usize::from(write)) % RECENT]
    }
}

/// Writes records.
pub struct Encoder {
    recent: Recent,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder { recent: Recent::new() }
    }
}

impl Encoder {
    /// Appends an access. The tag, `out[0]`, may be made visible to the reader last.
    pub fn access(&mut self, access: &RawAccess, out: &mut Buffer) {
        let size_code = match access.size {
            size if size.is_power_of_two() => size.trailing_zeros() as u8,
            _ => SIZE_FOLLOWS,
        };
        let write = if access.write { WRITE } else { 0 };
        let non_temporal = if access.non_temporal { NON_TEMPORAL } else { 0 };
        out.byte(ACCESS | write | non_temporal | size_code);
        if size_code == SIZE_FOLLOWS {
            out.number(u64::from(access.size));
        }
        out.number(zigzag(access.pc.wrapping_sub(self.recent.pc)));
        out.number(access.instructions);
        out.number(u64::from(access.producer));
        let last = self.recent.address(access.pc, access.write);
        out.number(zigzag(access.address.wrapping_sub(*last)));
        *last = access.address;
        self.recent.pc = access.pc;
    }

    /// Appends any record.
    pub fn record(&mut self, record: &Record, out: &mut Buffer) {
        let (tag, numbers): (u8, &[u64]) = match *record {
            Record::Access(ref access) => return self.access(access, out),
            Record::Start { pid, tid } => (1, &[u64::from(pid), u64::from(tid)]),
            Record::Epoch(epoch) => (2, &[epoch]),
            Record::Map { start, bytes, .. } => (3, &[start, bytes]),
            Record::Unmap { start, bytes } => (4, &[start, bytes]),
            Record::Spawn { tid } => (5, &[u64::from(tid)]),
            Record::Fork { pid } => (6, &[u64::from(pid)]),
            Record::Exec => (7, &[]),
            Record::ExecFailed => (8, &[]),
            Record::Cpu(cpu) => (9, &[u64::from(cpu)]),
            Record::Mark(mark) => (10, &[mark as u64]),
        };
        out.byte(tag);
        for &number in numbers {
            out.number(number);
        }
        if let Record::Map { name, .. } = record {
            let fits = |&end: &usize| name.is_char_boundary(end);
            let end = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(fits).unwrap_or(0);
            out.number(end as u64);
            out.bytes(&name.as_bytes()[..end]);
        }
    }
}

/// Buffer for one record.
pub struct Buffer {
    bytes: [u8; MAX_RECORD_BYTES],
    used: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer { bytes: [0; MAX_RECORD_BYTES], used: 0 }
    }
}

impl Buffer {
    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Its content.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    fn byte(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.used..][..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

/// Reads the records of one stream, window by window.
pub struct Decoder {
    recent: Recent,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder { recent: Recent::new() }
    }
}

impl Decoder {
    /// Takes the next record from the front of `window`: `None` at the window's end, or where the program was
    /// killed.
    ///
    /// # Errors
    /// What is wrong, if this is not a record.
    pub fn next(&mut self, window: &mut &[u8]) -> Result<Option<Record>, &'static str> {
        let tag = match window.split_first() {
            None | Some((0, _)) => return Ok(None),
            Some((&tag, rest)) => {
                *window = rest;
                tag
            }
        };
        if tag & ACCESS != 0 {
            return self.access(tag, window).map(|access| Some(Record::Access(access)));
        }
        Ok(Some(match tag {
            1 => Record::Start { pid: small(window)?, tid: small(window)? },
            2 => Record::Epoch(number(window)?),
            3 => Record::Map { start: number(window)?, bytes: number(window)?, name: text(window)? },
            4 => Record::Unmap { start: number(window)?, bytes: number(window)? },
            5 => Record::Spawn { tid: small(window)? },
            6 => Record::Fork { pid: small(window)? },
            7 => Record::Exec,
            8 => Record::ExecFailed,
            9 => Record::Cpu(small(window)?),
            10 => Record::Mark(Mark::from_number(number(window)?).ok_or("an unknown mark")?),
            _ => return Err("an unknown record"),
        }))
    }

    fn access(&mut self, tag: u8, window: &mut &[u8]) -> Result<RawAccess, &'static str> {
        let (write, non_temporal) = (tag & WRITE != 0, tag & NON_TEMPORAL != 0);
        if non_temporal && !write {
            return Err("a non-temporal load");
        }
        let size = match tag & SIZE_FOLLOWS {
            SIZE_FOLLOWS => u16::try_from(number(window)?).map_err(|_| "a size beyond 65535 bytes")?,
            code => 1u16.checked_shl(u32::from(code)).ok_or("an unknown size")?,
        };
        if size == 0 {
            return Err("an access of 0 bytes");
        }
        let pc = self.recent.pc.wrapping_add(unzigzag(number(window)?));
        let instructions = number(window)?;
        let producer = small(window)?;
        let last = self.recent.address(pc, write);
        let address = last.wrapping_add(unzigzag(number(window)?));
        *last = address;
        self.recent.pc = pc;
        Ok(RawAccess { address, pc, instructions, producer, size, write, non_temporal })
    }
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn number(window: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0;
    for (at, &byte) in window.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *window = &window[at + 1..];
            return Ok(number);
        }
    }
    Err("a number without an end")
}

fn small(window: &mut &[u8]) -> Result<u32, &'static str> {
    u32::try_from(number(window)?).map_err(|_| "a number beyond 32 bits")
}

fn text(window: &mut &[u8]) -> Result<String, &'static str> {
    let length = number(window)?;
    if length > MAX_NAME_BYTES as u64 {
        return Err("a name of more than 255 bytes");
    }
    let (text, rest) = window.split_at_checked(length as usize).ok_or("a name without an end")?;
    *window = rest;
    str::from_utf8(text).map(str::to_owned).map_err(|_| "a name that is not UTF-8")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        let access = (any::<[u64; 3]>(), any::<u32>(), 1..=u16::MAX, any::<[bool; 2]>()).prop_map(
            |([address, pc, instructions], producer, size, [write, past])| {
                let non_temporal = write && past;
                Record::Access(RawAccess { address, pc, instructions, producer, size, write, non_temporal })
            },
        );
        prop_oneof![
            4 => access,
            1 => any::<(u32, u32)>().prop_map(|(pid, tid)| Record::Start { pid, tid }),
            1 => any::<u64>().prop_map(Record::Epoch),
            1 => (any::<[u64; 2]>(), "[a-zß]{0,80}")
                .prop_map(|([start, bytes], name)| Record::Map { start, bytes, name }),
            1 => any::<[u64; 2]>().prop_map(|[start, bytes]| Record::Unmap { start, bytes }),
            1 => any::<u32>().prop_map(|tid| Record::Spawn { tid }),
            1 => any::<u32>().prop_map(|pid| Record::Fork { pid }),
            1 => Just(Record::Exec),
            1 => Just(Record::ExecFailed),
            1 => any::<u32>().prop_map(Record::Cpu),
            1 => prop_oneof![Just(Mark::Begin), Just(Mark::End), Just(Mark::WarmUp)].prop_map(Record::Mark),
        ]
    }

    proptest! {
        #[test]
        fn rows_read_back_as_written(records in prop::collection::vec(record(), 0..200)) {
            let mut encoder = Encoder::default();
            let mut bytes = Vec::new();
            for record in &records {
                let mut buffer = Buffer::default();
                encoder.record(record, &mut buffer);
                bytes.extend_from_slice(buffer.as_bytes());
            }
            let mut decoder = Decoder::default();
            let mut window = bytes.as_slice();
            let mut read = Vec::new();
            while let Some(record) = decoder.next(&mut window).unwrap() {
                read.push(record);
            }
            prop_assert_eq!(read, records);
        }

        /// A reader may decode in pieces if it keeps this many bytes ahead.
        #[test]
        fn no_record_is_longer_than_its_bound(record in record()) {
            let mut buffer = Buffer::default();
            Encoder::default().record(&record, &mut buffer);
            prop_assert!(buffer.as_bytes().len() <= MAX_RECORD_BYTES);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let mut decoder = Decoder::default();
            let mut window = bytes.as_slice();
            while let Ok(Some(_)) = decoder.next(&mut window) {}
        }
    }

    #[test]
    fn records_that_no_recorder_writes_are_refused() {
        let long_name = [vec![3, 0, 0, 0xff, 0x7f], vec![b'n'; 0x3fff]].concat();
        for (bytes, expected) in [
            (&[ACCESS | SIZE_FOLLOWS, 0, 0, 0, 0, 0][..], "an access of 0 bytes"),
            (&[ACCESS | NON_TEMPORAL, 0, 0, 0, 0], "a non-temporal load"),
            (&long_name, "a name of more than 255 bytes"),
            (&[3, 0, 0, 1, 0xff], "a name that is not UTF-8"),
            (&[3, 0, 0, 9, b'n'], "a name without an end"),
            (&[10, 3], "an unknown mark"),
            (&[10], "a number without an end"),
            (&[11], "an unknown record"),
        ] {
            assert_eq!(Decoder::default().next(&mut &*bytes), Err(expected));
        }
    }
}
