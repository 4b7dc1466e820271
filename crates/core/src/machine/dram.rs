//! DRAM devices, and others with a DRAM interface: organisation, timing set and controller.

use serde::{Deserialize, Serialize};

use crate::units::{Bandwidth, LINE_BYTES, Time};

/// A memory device and its controller. Timings are in cycles of the command clock, as data sheets give them
/// (JESD79-4 for DDR4, JESD79-5 for DDR5); NVM behind a DDR-like interface uses the same set with its own
/// figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    /// Independent channels (for DDR5 and HBM: sub- or pseudo-channels), a power of two.
    pub channels: u16,
    /// Ranks per channel, a power of two.
    pub ranks: u8,
    /// Bank groups per rank, a power of two; 1 if the device has none.
    pub bank_groups: u8,
    /// Banks per bank group, a power of two.
    pub banks: u8,
    /// Rows per bank, a power of two.
    pub rows: u32,
    /// Bytes of a row across the whole rank, a power of two.
    pub row_bytes: u32,
    /// Address bits of each coordinate, most significant first: the fields `channel`, `rank`, `bank_group`,
    /// `bank`, `row` and `column`, separated by `|`. A field may be split: `column:3` takes 3 bits, another
    /// `column` the rest. A field of size 1 may be omitted.
    pub address_map: String,
    /// XORs the bank's number in the rank (bank group and bank) with the row's low bits (permutation-based
    /// interleaving).
    #[serde(default)]
    pub bank_hash: bool,
    /// Command clock period in ps.
    pub t_ck_ps: u32,
    /// Cycles that a line occupies the data bus.
    pub burst: u16,
    /// Read latency.
    pub cl: u16,
    /// Write latency.
    pub cwl: u16,
    /// Activate to column command.
    pub rcd: u16,
    /// Precharge to activate.
    pub rp: u16,
    /// Activate to precharge.
    pub ras: u16,
    /// Column command to column command, other bank group.
    pub ccd_s: u16,
    /// Column command to column command, same bank group.
    pub ccd_l: u16,
    /// Write to write, same bank group, where it is longer than `ccd_l` (DDR5). Default: `ccd_l`.
    #[serde(default)]
    pub ccd_l_wr: Option<u16>,
    /// Activate to activate, other bank group.
    pub rrd_s: u16,
    /// Activate to activate, same bank group.
    pub rrd_l: u16,
    /// Window in which at most four activates go to a rank.
    pub faw: u16,
    /// End of write data to read, other bank group.
    pub wtr_s: u16,
    /// End of write data to read, same bank group.
    pub wtr_l: u16,
    /// End of write data to precharge.
    pub wr: u16,
    /// Read to precharge.
    pub rtp: u16,
    /// Idle cycles on the data bus when it switches ranks.
    pub rank_switch: u16,
    /// Idle cycles on the data bus between read data and write data (preamble and turnaround). Default: 2, as
    /// in the read to write delay `CL + burst + 2 - CWL` of JESD79-3 and JESD79-4.
    #[serde(default = "default_turnaround")]
    pub turnaround: u16,
    /// Cycles that an activate occupies the command bus: 1 for DDR3 and DDR4, 2 for DDR5 and HBM, 4 for
    /// LPDDR4.
    #[serde(default = "one")]
    pub activate_cycles: u16,
    /// Cycles that a column command occupies the command bus: 1; for DDR5 2, for LPDDR4 4.
    #[serde(default = "one")]
    pub column_cycles: u16,
    /// Whether row and column commands have separate command buses (HBM).
    #[serde(default)]
    pub split_command_bus: bool,
    /// Banks that one refresh command closes.
    #[serde(default)]
    pub refresh: Refresh,
    /// Duration of a refresh command: tRFC, for `same-bank` tRFCsb, for `per-bank` tRFCpb.
    pub rfc: u16,
    /// Interval in which every bank is refreshed once (tREFI; with `per-bank` the banks take turns in it); 0
    /// if the device needs no refresh.
    pub refi: u32,
    /// Spread the ranks' refreshes evenly over the interval instead of issuing them together.
    #[serde(default)]
    pub refresh_staggered: bool,
    /// When rows are closed.
    #[serde(default)]
    pub page_policy: PagePolicy,
    /// Priority among ready commands.
    #[serde(default)]
    pub arbitration: Arbitration,
    /// Maximum row hits that overtake the oldest request of their bank (FR-FCFS with a cap).
    #[serde(default = "default_hit_cap")]
    pub hit_cap: u16,
    /// Size of the controller's read queue; further reads wait in front of it.
    #[serde(default = "default_queue")]
    pub read_queue: u16,
    /// Size of the controller's write queue.
    #[serde(default = "default_queue")]
    pub write_queue: u16,
    /// Queued writes at which the controller starts to drain them.
    #[serde(default = "default_drain_high")]
    pub drain_high: u16,
    /// Queued writes at which it returns to reads, if any are waiting.
    #[serde(default = "default_drain_low")]
    pub drain_low: u16,
    /// Latency between the last cache and the device's pins, both ways, in ns.
    #[serde(default)]
    pub controller_ns: f64,
}

fn one() -> u16 {
    1
}

fn default_turnaround() -> u16 {
    2
}

fn default_hit_cap() -> u16 {
    16
}

fn default_queue() -> u16 {
    32
}

fn default_drain_high() -> u16 {
    26
}

fn default_drain_low() -> u16 {
    7
}

/// When a row is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagePolicy {
    /// When another row of the bank is accessed.
    #[default]
    Open,
    /// After the last queued access to it.
    Closed,
}

/// Banks that a refresh command refreshes; they stay closed meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refresh {
    /// All banks of a rank.
    #[default]
    AllBank,
    /// One bank of every bank group of a rank (DDR5's REFsb).
    SameBank,
    /// One bank of a rank (LPDDR4's and HBM's REFpb).
    PerBank,
}

/// Priority among commands that are ready in the same cycle. Row hits always precede commands that open or
/// close rows (FR-FCFS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The oldest request first.
    #[default]
    Oldest,
    /// The next bank first, in rotation.
    RoundRobin,
}

impl Dram {
    /// Time of `cycles` of the command clock.
    pub fn cycles(&self, cycles: u64) -> Time {
        Time(cycles * u64::from(self.t_ck_ps))
    }

    /// Data rate of one channel's bus.
    pub fn channel_peak(&self) -> Bandwidth {
        Bandwidth::of(LINE_BYTES, self.cycles(u64::from(self.burst)))
    }

    /// Capacity of one channel in bytes.
    pub fn channel_bytes(&self) -> u64 {
        let banks = u64::from(self.ranks) * u64::from(self.bank_groups) * u64::from(self.banks);
        banks * u64::from(self.rows) * u64::from(self.row_bytes)
    }
}

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
            let later: u8 = parts[index + 1..].iter().filter(|p| p.0 == *which).filter_map(|p| p.1).sum();
            let bits = bits.unwrap_or(left[*which].saturating_sub(later));
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
    let known = COORDINATES.map(|(name, _)| name).join(", ");
    let which = COORDINATES.iter().position(|(known, _)| *known == name);
    which.map(|which| (which, bits)).ok_or_else(|| format!("`{name}` is not a field; allowed are {known}"))
}
