//! The timing set, and the earliest time of each kind of command in each bank group.

use memtide_core::machine::{Dram, Refresh};

/// Command clock cycles since the channel's moving base.
pub(super) type Cycle = u32;

/// Later than any command.
pub(super) const NEVER: Cycle = Cycle::MAX;

/// Kind of a bank's next command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Activate,
    Precharge,
}

/// Kinds limited by bank groups; a precharge is only limited by its bank.
const LIMITED: usize = 3;

/// Timings of one bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct BankTiming {
    /// Activate to column command.
    pub rcd: Cycle,
    /// Activate to precharge.
    pub ras: Cycle,
    /// Precharge to activate.
    pub rp: Cycle,
    /// Precharge of all banks that a refresh command refreshes, to that command.
    pub rp_refresh: Cycle,
    /// Read and write command to precharge.
    pub to_precharge: [Cycle; 2],
    /// Read command to the end of its data.
    pub read_done: Cycle,
    /// Refresh to activate.
    pub rfc: Cycle,
    /// Cycles that column and row commands occupy the command bus.
    pub command: [Cycle; 4],
}

impl BankTiming {
    pub fn new(dram: &Dram) -> BankTiming {
        let d = |cycles: u16| Cycle::from(cycles);
        BankTiming {
            rcd: d(dram.rcd),
            ras: d(dram.ras),
            rp: d(dram.rp),
            rp_refresh: d(if dram.refresh == Refresh::AllBank {
                dram.rp_ab.unwrap_or(dram.rp)
            } else {
                dram.rp
            }),
            to_precharge: [d(dram.rtp), d(dram.cwl) + d(dram.burst) + d(dram.wr)],
            read_done: d(dram.cl) + d(dram.burst),
            rfc: d(dram.rfc),
            command: [d(dram.column_cycles), d(dram.column_cycles), d(dram.activate_cycles), 1],
        }
    }
}

/// Relation of the targets of two commands in a channel.
#[derive(Clone, Copy)]
enum Relation {
    SameGroup,
    SameRank,
    OtherRank,
}

/// Minimum distance of two column commands of the kinds `first` and `then`.
///
/// Same rank: JESD79-4, tables of tCCD, tWTR, and the read to write delay `CL + burst + turnaround - CWL`.
/// Other rank: the data bus alone, with [`Dram::rank_gap`] idle cycles between the two bursts.
fn column_distance(dram: &Dram, first: Kind, then: Kind, relation: Relation) -> Cycle {
    let d = |cycles: u16| i64::from(cycles);
    let latency = |kind| if kind == Kind::Read { d(dram.cl) } else { d(dram.cwl) };
    let on_bus = |gap: u16| latency(first) + d(dram.burst) + d(gap) - latency(then);
    let in_rank = |ccd: u16, wtr: u16| match (first, then) {
        (Kind::Write, Kind::Read) => d(dram.cwl) + d(dram.burst) + d(wtr),
        (Kind::Read, Kind::Write) => on_bus(dram.turnaround),
        _ => on_bus(0).max(d(ccd)),
    };
    let ccd_l = if first == Kind::Write && then == Kind::Write { dram.ccd_l_wr } else { None };
    let distance = match relation {
        Relation::SameGroup => in_rank(ccd_l.unwrap_or(dram.ccd_l), dram.wtr_l),
        Relation::SameRank => in_rank(dram.ccd_s, dram.wtr_s),
        Relation::OtherRank => on_bus(dram.rank_gap(first == Kind::Write, then == Kind::Write)),
    };
    distance.max(1) as Cycle
}

/// For each command sent, the distances to subsequent ones in every bank group, as rows to add and to take
/// the maximum with; and the current limits.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    groups: usize,
    /// Log2 of the bank groups per rank.
    rank_shift: u32,
    /// Earliest cycle of a kind in a bank group: `[kind * groups + group]`, precharges included (always 0).
    earliest: Vec<Cycle>,
    /// `[first * groups + group][then * groups + group]`, of column commands.
    after_column: Vec<Cycle>,
    rrd_s: Cycle,
    rrd_l: Cycle,
    faw: Cycle,
    /// Per rank: end of the window of each of the last four activates, and the oldest one's index.
    windows: Vec<([Cycle; 4], usize)>,
}

impl Limits {
    pub fn new(dram: &Dram) -> Limits {
        let groups_of_rank = usize::from(dram.bank_groups);
        let groups = usize::from(dram.ranks) * groups_of_rank;
        let mut after_column = Vec::with_capacity(4 * groups * groups);
        for first in [Kind::Read, Kind::Write] {
            for from in 0..groups {
                for then in [Kind::Read, Kind::Write] {
                    after_column.extend((0..groups).map(|to| {
                        let relation = match (from == to, from / groups_of_rank == to / groups_of_rank) {
                            (true, _) => Relation::SameGroup,
                            (false, true) => Relation::SameRank,
                            (false, false) => Relation::OtherRank,
                        };
                        column_distance(dram, first, then, relation)
                    }));
                }
            }
        }
        Limits {
            groups,
            rank_shift: groups_of_rank.trailing_zeros(),
            earliest: vec![0; (LIMITED + 1) * groups],
            after_column,
            rrd_s: dram.rrd_s.into(),
            rrd_l: dram.rrd_l.into(),
            faw: dram.faw.into(),
            windows: vec![([0; 4], 0); usize::from(dram.ranks)],
        }
    }

    /// The class of a command: the index of its limit in [`Limits::earliest`].
    #[inline]
    pub fn class(&self, kind: Kind, group: usize) -> u16 {
        (kind as usize * self.groups + group) as u16
    }

    /// Earliest cycles by class.
    #[inline]
    pub fn earliest(&self) -> &[Cycle] {
        &self.earliest
    }

    /// Updates for a column command to a bank group.
    #[inline]
    pub fn column(&mut self, kind: Kind, group: usize, at: Cycle) {
        let row = 2 * self.groups;
        let from = (kind as usize * self.groups + group) * row;
        for (limit, distance) in self.earliest[..row].iter_mut().zip(&self.after_column[from..from + row]) {
            *limit = (*limit).max(at + distance);
        }
    }

    /// Updates for an activate in a bank group.
    #[inline]
    pub fn activate(&mut self, group: usize, at: Cycle) {
        let rank = group >> self.rank_shift;
        let (ends, oldest) = &mut self.windows[rank];
        ends[*oldest] = at + self.faw;
        *oldest = (*oldest + 1) % 4;
        let in_rank = (at + self.rrd_s).max(ends[*oldest]);
        let first = Kind::Activate as usize * self.groups + (rank << self.rank_shift);
        for limit in &mut self.earliest[first..first + (1 << self.rank_shift)] {
            *limit = (*limit).max(in_rank);
        }
        let own = &mut self.earliest[Kind::Activate as usize * self.groups + group];
        *own = (*own).max(at + self.rrd_l);
    }

    /// Moves the base of its times forward by `by`.
    pub fn rebase(&mut self, by: Cycle) {
        for limit in &mut self.earliest {
            *limit = limit.saturating_sub(by);
        }
        for end in self.windows.iter_mut().flat_map(|(ends, _)| ends) {
            *end = end.saturating_sub(by);
        }
    }
}
