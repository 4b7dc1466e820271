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
    /// interleaving): short for `address_hash` entries `bank[0] ^= row[0]` and so on.
    #[serde(default)]
    pub bank_hash: bool,
    /// Bits of channel, rank, bank group and bank, and the bits of any field of `address_map` that are XORed
    /// into them, each entry as `bank[0] ^= row[2] ^ column[1]`; the bits on the right are those before
    /// hashing. Intel's memory controllers hash so (Pessl et al., DRAMA, USENIX Security 2016).
    #[serde(default)]
    pub address_hash: Vec<String>,
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
    /// Precharge of all banks, which precedes a refresh of all banks, to that refresh (tRPab), where it is
    /// longer than `rp`: 21 and 18 ns on LPDDR4 (JESD209-4). Default: `rp`.
    #[serde(default)]
    pub rp_ab: Option<u16>,
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
    /// Idle cycles on the data bus when it switches ranks, unless both bursts are writes.
    pub rank_switch: u16,
    /// Idle cycles from read to read of another rank. Default: `rank_switch`.
    #[serde(default)]
    pub rank_switch_rr: Option<u16>,
    /// Idle cycles from read to write of another rank, at least `turnaround`. Default: `rank_switch`.
    #[serde(default)]
    pub rank_switch_rw: Option<u16>,
    /// Idle cycles from write to read of another rank. Default: `rank_switch`.
    #[serde(default)]
    pub rank_switch_wr: Option<u16>,
    /// Idle cycles from write to write of another rank. Default: 0. The controller drives both bursts, so the
    /// bus changes no driver; JESD79-4 leaves the gap to the system. DRAMsim3 (`write_to_write_o`) and
    /// Ramulator 2.1 (DDR4, `nBL` from write to write of a channel) have none either.
    #[serde(default)]
    pub rank_switch_ww: u16,
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
    /// Entries of each bank for reads and as many for writes, beside the shared queues (DRAMsim3's command
    /// queues per bank): a request takes a shared entry only if all of its bank are taken, and waits in front
    /// of the queues if none is free. Default: 0.
    #[serde(default)]
    pub bank_queue: u16,
    /// Row buffers of a bank, if it has several.
    #[serde(default)]
    pub subarrays: Option<Subarrays>,
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

/// Banks in which several rows can be open at once, one in each subarray: MASA (Kim et al., A Case for
/// Exploiting Subarray-Level Parallelism in DRAM, ISCA 2012), and PCM with several row buffers (Lee et al.,
/// Architecting Phase Change Memory as a Scalable DRAM Alternative, ISCA 2009). Subarrays of a bank activate,
/// precharge and recover from writes independently; column commands share the bank's data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subarrays {
    /// Subarrays of a bank, a power of two; the row's highest bits select one.
    pub per_bank: u8,
    /// Minimum distance in cycles of column commands to two subarrays of a bank, where it is longer than
    /// `ccd_l`: the second one is connected to the bank's data path. Default: 0.
    #[serde(default)]
    pub select: u16,
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

impl PagePolicy {
    /// Its name in machine files.
    pub fn name(self) -> &'static str {
        match self {
            PagePolicy::Open => "open",
            PagePolicy::Closed => "closed",
        }
    }
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

    /// Idle cycles on the data bus between two bursts of different ranks, the first and the second a write or
    /// not.
    pub fn rank_gap(&self, first_writes: bool, then_writes: bool) -> u16 {
        match (first_writes, then_writes) {
            (false, false) => self.rank_switch_rr.unwrap_or(self.rank_switch),
            (false, true) => self.rank_switch_rw.unwrap_or(self.rank_switch).max(self.turnaround),
            (true, false) => self.rank_switch_wr.unwrap_or(self.rank_switch),
            (true, true) => self.rank_switch_ww,
        }
    }

    /// Banks of a channel.
    pub fn channel_banks(&self) -> usize {
        usize::from(self.ranks) * usize::from(self.bank_groups) * usize::from(self.banks)
    }

    /// Row buffers of a bank: its subarrays, or 1.
    pub fn row_buffers(&self) -> u16 {
        self.subarrays.map_or(1, |subarrays| subarrays.per_bank.into())
    }

    /// Capacity of one channel in bytes.
    pub fn channel_bytes(&self) -> u64 {
        self.channel_banks() as u64 * u64::from(self.rows) * u64::from(self.row_bytes)
    }
}
