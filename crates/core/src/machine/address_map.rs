//! The address map of a DRAM device: which bits of a line number are which coordinate, and which are XORed.

use super::Dram;
use crate::units::LINE_BYTES;

/// A field of the physical address that is part of a device coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapField {
    /// The coordinate.
    pub what: Coordinate,
    /// Lowest bit of the field, counted from bit 0 of the line number.
    pub shift: u8,
    /// Number of bits.
    pub bits: u8,
    /// Position of the lowest bit in the coordinate.
    pub into: u8,
}

/// A bit of a coordinate that is XORed with the parity of some bits of the line number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHash {
    /// The coordinate: channel, rank, bank group or bank.
    pub what: Coordinate,
    /// Its bit, 0 the lowest.
    pub bit: u8,
    /// The bits of the line number.
    pub lines: u64,
}

/// A coordinate of a line in a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinate {
    /// Channel of the node.
    Channel,
    /// Rank of the channel.
    Rank,
    /// Bank group of the rank.
    BankGroup,
    /// Bank of the bank group.
    Bank,
    /// Row of the bank.
    Row,
    /// Line of the row.
    Column,
}

const COORDINATES: [(&str, Coordinate); 6] = [
    ("channel", Coordinate::Channel),
    ("rank", Coordinate::Rank),
    ("bank_group", Coordinate::BankGroup),
    ("bank", Coordinate::Bank),
    ("row", Coordinate::Row),
    ("column", Coordinate::Column),
];

impl Coordinate {
    /// Its name in machine files.
    pub fn name(self) -> &'static str {
        COORDINATES[self as usize].0
    }
}

/// A bit of a coordinate, as a machine file names it: `bank[0]`.
type Bit = (Coordinate, u8);

fn bit_name((what, bit): Bit) -> String {
    format!("{}[{bit}]", what.name())
}

impl Dram {
    /// Number of bits of a coordinate.
    pub fn bits_of(&self, what: Coordinate) -> u8 {
        let size = match what {
            Coordinate::Channel => u32::from(self.channels),
            Coordinate::Rank => u32::from(self.ranks),
            Coordinate::BankGroup => u32::from(self.bank_groups),
            Coordinate::Bank => u32::from(self.banks),
            Coordinate::Row => self.rows,
            Coordinate::Column => self.row_bytes / LINE_BYTES as u32,
        };
        size.trailing_zeros() as u8
    }

    /// The fields of `address_map`, least significant first.
    ///
    /// # Errors
    /// If a name is unknown, or the fields of a coordinate do not cover all of its bits.
    pub fn map_fields(&self) -> Result<Vec<MapField>, String> {
        let mut fields = Vec::new();
        let mut shift = 0;
        let mut left = COORDINATES.map(|(_, what)| self.bits_of(what));
        let parts: Vec<(usize, Option<u8>)> =
            self.address_map.split('|').rev().map(parse_map_field).collect::<Result<_, _>>()?;
        for (index, (which, bits)) in parts.iter().enumerate() {
            let (name, what) = COORDINATES[*which];
            let later = parts[index + 1..].iter().filter(|part| part.0 == *which).filter_map(|part| part.1);
            let bits = bits.unwrap_or(later.fold(left[*which], u8::saturating_sub));
            let into = self.bits_of(what) - left[*which];
            left[*which] = left[*which]
                .checked_sub(bits)
                .ok_or_else(|| format!("takes more bits for `{name}` than its {}", self.bits_of(what)))?;
            fields.push(MapField { what, shift, bits, into });
            shift += bits;
        }
        match left.iter().position(|&bits| bits > 0) {
            None => Ok(fields),
            Some(which) => {
                Err(format!("leaves {} bits of `{}` unassigned", left[which], COORDINATES[which].0))
            }
        }
    }

    /// The entries of `address_hash`, with the bits of the line number that they XOR.
    ///
    /// # Errors
    /// If `address_map` is wrong, an entry has another form than `bank[0] ^= row[2] ^ column[1]` or names a
    /// bit that the device does not have, or two lines would have the same place: which bits are the cause.
    pub fn map_hashes(&self) -> Result<Vec<MapHash>, String> {
        let fields = self.map_fields()?;
        let mut hashes: Vec<MapHash> = Vec::new();
        for entry in &self.address_hash {
            let (target, sources) = self.hash_entry(entry)?;
            if hashes.iter().any(|hash| (hash.what, hash.bit) == target) {
                return Err(format!("has two entries for `{}`: join their bits in one", bit_name(target)));
            }
            let mut lines = 0;
            for source in sources {
                let line = line_bit(&fields, source);
                if lines & line != 0 {
                    return Err(format!("`{entry}`: names `{}` twice", bit_name(source)));
                }
                lines |= line;
            }
            hashes.push(MapHash { what: target.0, bit: target.1, lines });
        }
        match self.dependent_bits(&fields, &hashes) {
            None => Ok(hashes),
            Some(bits) => Err(format!(
                "the bits {} depend on each other after hashing, so that two lines would have the same place",
                bits.into_iter().map(|bit| format!("`{}`", bit_name(bit))).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// The fields of `address_map` with their bits in the node's addresses, most significant first:
    /// `row 32-17 | bank 16-15`. Fields without bits are left out.
    ///
    /// # Errors
    /// As [`map_fields`](Dram::map_fields).
    pub fn describe_map(&self) -> Result<String, String> {
        let line = LINE_BYTES.trailing_zeros();
        let text = |field: &MapField| {
            let low = line + u32::from(field.shift);
            match field.bits {
                1 => format!("{} {low}", field.what.name()),
                bits => format!("{} {}-{low}", field.what.name(), low + u32::from(bits) - 1),
            }
        };
        let fields = self.map_fields()?;
        let known = fields.iter().rev().filter(|field| field.bits > 0);
        Ok(known.map(text).collect::<Vec<_>>().join(" | "))
    }

    /// All hashes as entries of `address_hash` without spaces, those of `bank_hash` included.
    pub fn describe_hashes(&self) -> Vec<String> {
        let row_bits = self.bits_of(Coordinate::Row);
        let banks = [Coordinate::Bank, Coordinate::BankGroup]
            .into_iter()
            .flat_map(|what| (0..self.bits_of(what)).map(move |bit| (what, bit)));
        let rows = banks.zip(0..row_bits).filter(|_| self.bank_hash);
        let of_rows =
            rows.map(|(bank, row)| format!("{}^={}", bit_name(bank), bit_name((Coordinate::Row, row))));
        of_rows.chain(self.address_hash.iter().map(|entry| entry.replace(' ', ""))).collect()
    }

    /// Target and sources of an entry of `address_hash`.
    fn hash_entry(&self, entry: &str) -> Result<(Bit, Vec<Bit>), String> {
        let (target, sources) = entry.split_once("^=").ok_or_else(|| {
            format!(
                "`{entry}`: expected a bit, `^=`, and the bits XORed into it: `bank[0] ^= row[2] ^ column[1]`"
            )
        })?;
        let bit = |text| self.hash_bit(text).map_err(|message| format!("`{entry}`: {message}"));
        let target = bit(target)?;
        if matches!(target.0, Coordinate::Row | Coordinate::Column) {
            return Err(format!(
                "`{entry}`: cannot hash `{}`; allowed are bits of channel, rank, bank_group and bank",
                bit_name(target)
            ));
        }
        Ok((target, sources.split('^').map(bit).collect::<Result<_, _>>()?))
    }

    fn hash_bit(&self, text: &str) -> Result<Bit, String> {
        let text = text.trim();
        let parts = text.strip_suffix(']').and_then(|text| text.split_once('['));
        let (name, bit) = parts.ok_or_else(|| format!("`{text}` is not a bit, such as `row[2]`"))?;
        let (_, what) = COORDINATES[coordinate(name)?];
        match (bit.parse::<u8>(), self.bits_of(what)) {
            (_, 0) => Err(format!("`{text}`: the device has no bits of `{name}`")),
            (Ok(bit), bits) if bit < bits => Ok((what, bit)),
            (_, bits) => Err(format!("`{text}`: `{name}` has bits 0 to {}", bits - 1)),
        }
    }

    /// Bits of the hashed place that are not independent, if any: Gaussian elimination over GF(2).
    fn dependent_bits(&self, fields: &[MapField], hashes: &[MapHash]) -> Option<Vec<Bit>> {
        let bits: Vec<Bit> = COORDINATES
            .iter()
            .flat_map(|&(_, what)| (0..self.bits_of(what)).map(move |bit| (what, bit)))
            .collect();
        // Pairs of the line bits that a combination of place bits depends on, and that combination.
        let mut reduced: Vec<(u64, u64)> = Vec::new();
        for (index, &bit) in bits.iter().enumerate() {
            let hashed = hashes.iter().find(|hash| (hash.what, hash.bit) == bit).map_or(0, |hash| hash.lines);
            let mut lines = line_bit(fields, bit) ^ hashed ^ self.bank_hash_line(fields, bit);
            let mut place = 1 << index;
            for &(other_lines, other_place) in &reduced {
                if lines & (1 << other_lines.trailing_zeros()) != 0 {
                    (lines, place) = (lines ^ other_lines, place ^ other_place);
                }
            }
            if lines == 0 {
                let named = |(i, bit): (usize, &Bit)| (place >> i & 1 == 1).then_some(*bit);
                return Some(bits.iter().enumerate().filter_map(named).collect());
            }
            reduced.push((lines, place));
        }
        None
    }

    /// The line bit that `bank_hash` XORs into a bit of bank or bank group, or 0.
    fn bank_hash_line(&self, fields: &[MapField], (what, bit): Bit) -> u64 {
        let row = match what {
            Coordinate::Bank => bit,
            Coordinate::BankGroup => self.bits_of(Coordinate::Bank) + bit,
            _ => return 0,
        };
        if self.bank_hash { line_bit(fields, (Coordinate::Row, row)) } else { 0 }
    }
}

/// The bit of a line number that a map without hashes uses for a bit of a coordinate; 0 if there is none.
fn line_bit(fields: &[MapField], (what, bit): Bit) -> u64 {
    let field = fields.iter().find(|f| f.what == what && (f.into..f.into + f.bits).contains(&bit));
    field.map_or(0, |f| 1 << (f.shift + bit - f.into))
}

fn coordinate(name: &str) -> Result<usize, String> {
    let known = COORDINATES.map(|(name, _)| name).join(", ");
    let which = COORDINATES.iter().position(|(known, _)| *known == name);
    which.ok_or_else(|| format!("`{name}` is not a field; allowed are {known}"))
}

fn parse_map_field(part: &str) -> Result<(usize, Option<u8>), String> {
    let (name, bits) = match part.trim().split_once(':') {
        Some((name, bits)) => (
            name,
            Some(bits.parse().map_err(|_| {
                format!("`{part}`: `{bits}` is not a number of bits: expected an integer from 0 to 255")
            })?),
        ),
        None => (part.trim(), None),
    };
    coordinate(name).map(|which| (which, bits))
}
