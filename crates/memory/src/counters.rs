//! Counters of a node.

use memtide_core::Time;
use memtide_core::machine::Energy;

/// Counters of a node or channel since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Lines read from the device.
    pub reads: u64,
    /// Lines written to the device.
    pub writes: u64,
    /// Reads forwarded from the write queue.
    pub forwarded_reads: u64,
    /// Writes merged into one in the write queue.
    pub merged_writes: u64,
    /// Column commands whose row was already open.
    pub row_hits: u64,
    /// Column commands whose bank had no open row.
    pub row_misses: u64,
    /// Column commands whose bank had another open row.
    pub row_conflicts: u64,
    /// Rows opened.
    pub activates: u64,
    /// Refreshes of whole ranks; a refresh of some banks of a rank counts as their share.
    pub refreshes: f64,
    /// Time with data on the bus, summed over channels.
    pub bus_busy: Time,
}

impl Counters {
    /// Lines moved between device and controller.
    pub fn lines(&self) -> u64 {
        self.reads + self.writes
    }

    /// Share of column commands whose row was already open; 0 without column commands.
    pub fn row_hit_rate(&self) -> f64 {
        if self.lines() == 0 { 0.0 } else { self.row_hits as f64 / self.lines() as f64 }
    }

    /// Energy in nJ; `elapsed` is the time for which the device was powered.
    pub fn energy_nj(&self, energy: &Energy, elapsed: Time) -> f64 {
        self.reads as f64 * energy.read_nj
            + self.writes as f64 * energy.write_nj
            + self.activates as f64 * energy.activate_nj
            + self.refreshes * energy.refresh_nj
            + elapsed.as_seconds() * energy.standby_mw * 1e6
    }

    /// The sum of two counters.
    pub fn plus(self, other: Counters) -> Counters {
        self.combine(other, |a, b| a + b, |a, b| a + b)
    }

    /// The counts since `earlier`.
    pub fn since(self, earlier: Counters) -> Counters {
        self.combine(earlier, |a, b| a - b, |a, b| a - b)
    }

    /// The part of one of several equal requesters, rounded.
    pub fn part(self, of: u64) -> Counters {
        let whole = |count: u64| (count + of / 2) / of;
        Counters {
            reads: whole(self.reads),
            writes: whole(self.writes),
            forwarded_reads: whole(self.forwarded_reads),
            merged_writes: whole(self.merged_writes),
            row_hits: whole(self.row_hits),
            row_misses: whole(self.row_misses),
            row_conflicts: whole(self.row_conflicts),
            activates: whole(self.activates),
            refreshes: self.refreshes / of as f64,
            bus_busy: Time(whole(self.bus_busy.0)),
        }
    }

    fn combine(self, o: Counters, whole: fn(u64, u64) -> u64, real: fn(f64, f64) -> f64) -> Counters {
        Counters {
            reads: whole(self.reads, o.reads),
            writes: whole(self.writes, o.writes),
            forwarded_reads: whole(self.forwarded_reads, o.forwarded_reads),
            merged_writes: whole(self.merged_writes, o.merged_writes),
            row_hits: whole(self.row_hits, o.row_hits),
            row_misses: whole(self.row_misses, o.row_misses),
            row_conflicts: whole(self.row_conflicts, o.row_conflicts),
            activates: whole(self.activates, o.activates),
            refreshes: real(self.refreshes, o.refreshes),
            bus_busy: Time(whole(self.bus_busy.0, o.bus_busy.0)),
        }
    }
}
