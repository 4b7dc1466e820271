//! Memory of a program that it offers for migration: by name, piece of a name, or range of addresses.

use std::fmt;

use memtide_core::{Mapping, PAGE_BYTES, Vpn};

/// Pieces that an array can have at most.
const PIECES: u64 = 1000;

/// End of the addresses of programs.
const ADDRESS_END: u64 = 1 << 48;

/// Memory of a program that it offers or locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The mappings with this name, such as a workload's array.
    Named(String),
    /// One of several nearly equal pieces of the pages of the mappings with this name.
    Piece {
        /// The name.
        array: String,
        /// The piece, from 0 on.
        number: u64,
        /// Number of pieces.
        of: u64,
    },
    /// The pages of a range of addresses.
    Range {
        /// The first page.
        start: Vpn,
        /// Base pages, at least 1.
        pages: u64,
    },
}

impl Buffer {
    /// Parses a name, a piece `NAME/KofN` with K from 1 to N, or a range `0xSTART-0xEND` of whole pages
    /// without its end.
    ///
    /// # Errors
    /// If it is empty, or begins as a range and is none: what is allowed.
    pub fn parse(text: &str) -> Result<Buffer, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("a name is empty".to_owned());
        }
        if !text.starts_with("0x") {
            return Buffer::named(text);
        }
        let number = |text: &str| {
            let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))?;
            u64::from_str_radix(digits, 16).ok()
        };
        let range = text.split_once('-').and_then(|(start, end)| Some((number(start)?, number(end)?)));
        match range {
            Some((start, end))
                if start < end
                    && end <= ADDRESS_END
                    && start.is_multiple_of(PAGE_BYTES)
                    && end.is_multiple_of(PAGE_BYTES) =>
            {
                Ok(Buffer::Range { start: Vpn(start / PAGE_BYTES), pages: (end - start) / PAGE_BYTES })
            }
            _ => Err(format!(
                "invalid range '{text}': expected 0xSTART-0xEND, multiples of {PAGE_BYTES:#x} up to \
                 {ADDRESS_END:#x}"
            )),
        }
    }

    /// Parses a name or a piece.
    pub(crate) fn named(text: &str) -> Result<Buffer, String> {
        let numbers = |(array, piece): (&str, &str)| {
            let (number, of) = piece.split_once("of")?;
            Some((array.to_owned(), number.parse::<u64>().ok()?, of.parse::<u64>().ok()?))
        };
        match text.rsplit_once('/').and_then(numbers) {
            None => Ok(Buffer::Named(text.to_owned())),
            Some((array, number, of)) if !array.is_empty() && of <= PIECES && (1..=of).contains(&number) => {
                Ok(Buffer::Piece { array, number: number - 1, of })
            }
            Some(_) => {
                Err(format!("invalid piece '{text}': expected NAME/KofN, K from 1 to N, N at most {PIECES}"))
            }
        }
    }

    /// The name of its mappings; `None` for a range.
    pub fn name(&self) -> Option<&str> {
        match self {
            Buffer::Named(name) | Buffer::Piece { array: name, .. } => Some(name),
            Buffer::Range { .. } => None,
        }
    }

    /// Its piece as number and pieces: of a name, the first of one.
    fn piece(&self) -> (u64, u64) {
        match self {
            Buffer::Piece { number, of, .. } => (*number, *of),
            _ => (0, 1),
        }
    }

    /// First page of a named buffer in a mapping, and its pages.
    pub(crate) fn pages_in(&self, mapping: &Mapping) -> (u64, u64) {
        let (number, of) = self.piece();
        let pages = mapping.bytes.div_ceil(PAGE_BYTES);
        let [first, end] = [number, number + 1].map(|piece| pages * piece / of);
        (mapping.start.0 / PAGE_BYTES + first, end - first)
    }

    /// Whether both surely have a page in common: equal names and pieces or ranges that overlap.
    pub fn overlaps(&self, other: &Buffer) -> bool {
        if let (Some(one_name), Some(other_name)) = (self.name(), other.name()) {
            let ((one, ones), (other, others)) = (self.piece(), other.piece());
            return one_name == other_name
                && one * others < (other + 1) * ones
                && other * ones < (one + 1) * others;
        }
        match (self, other) {
            (Buffer::Range { start: one, pages }, Buffer::Range { start: other, pages: others }) => {
                one.0 < other.0 + others && other.0 < one.0 + pages
            }
            _ => false,
        }
    }

    /// Whether the mapping has the name, or any byte in the range.
    pub fn covers(&self, mapping: &Mapping) -> bool {
        match self {
            Buffer::Named(name) | Buffer::Piece { array: name, .. } => *name == mapping.name,
            Buffer::Range { start, pages } => {
                let end = mapping.start.0.saturating_add(mapping.bytes).div_ceil(PAGE_BYTES);
                mapping.start.0 / PAGE_BYTES < start.0 + pages && start.0 < end
            }
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Buffer::Named(name) => f.write_str(name),
            Buffer::Piece { array, number, of } => write!(f, "{array}/{}of{of}", number + 1),
            Buffer::Range { start, pages } => {
                write!(f, "{:#x}-{:#x}", start.0 * PAGE_BYTES, (start.0 + pages) * PAGE_BYTES)
            }
        }
    }
}
