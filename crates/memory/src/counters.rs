//! Counters of a node and of its banks, and the energy of what they count.

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

/// Energy by cause, in nJ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyUse {
    /// Lines read.
    pub read_nj: f64,
    /// Lines written.
    pub write_nj: f64,
    /// Rows opened and closed.
    pub activate_nj: f64,
    /// Refreshes.
    pub refresh_nj: f64,
    /// Standby.
    pub standby_nj: f64,
}

impl EnergyUse {
    /// Energy of requests: without refreshes and standby.
    pub fn dynamic_nj(&self) -> f64 {
        self.read_nj + self.write_nj + self.activate_nj
    }

    /// All energy.
    pub fn total_nj(&self) -> f64 {
        self.dynamic_nj() + self.refresh_nj + self.standby_nj
    }
}

/// Counters of a bank since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BankCounters {
    /// Lines read.
    pub reads: u64,
    /// Lines written.
    pub writes: u64,
    /// Column commands whose bank had another open row.
    pub row_conflicts: u64,
    /// Rows opened.
    pub activates: u64,
}

impl BankCounters {
    /// The sum of two counters.
    pub fn plus(self, o: BankCounters) -> BankCounters {
        self.combine(o, |a, b| a + b)
    }

    /// The counts since `earlier`.
    pub fn since(self, earlier: BankCounters) -> BankCounters {
        self.combine(earlier, |a, b| a - b)
    }

    /// The part of one of several equal requesters, rounded.
    pub fn part(self, of: u64) -> BankCounters {
        self.combine(self, |count, _| (count + of / 2) / of)
    }

    /// Energy of its requests, in nJ.
    pub fn dynamic_nj(&self, energy: &Energy) -> f64 {
        let BankCounters { reads, writes, activates, .. } = *self;
        let counters = Counters { reads, writes, activates, ..Counters::default() };
        counters.energy(energy, Time::ZERO).dynamic_nj()
    }

    fn combine(self, o: BankCounters, op: impl Fn(u64, u64) -> u64) -> BankCounters {
        BankCounters {
            reads: op(self.reads, o.reads),
            writes: op(self.writes, o.writes),
            row_conflicts: op(self.row_conflicts, o.row_conflicts),
            activates: op(self.activates, o.activates),
        }
    }
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
        self.energy(energy, elapsed).total_nj()
    }

    /// The same by cause.
    pub fn energy(&self, energy: &Energy, elapsed: Time) -> EnergyUse {
        EnergyUse {
            read_nj: self.reads as f64 * energy.read_nj,
            write_nj: self.writes as f64 * energy.write_nj,
            activate_nj: self.activates as f64 * energy.activate_nj,
            refresh_nj: self.refreshes * energy.refresh_nj,
            standby_nj: elapsed.as_seconds() * energy.standby_mw * 1e6,
        }
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
