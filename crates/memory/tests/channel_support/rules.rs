//! Plain rules of DDR devices: which command is allowed when, given all previous ones.

use memtide_core::machine::{Dram, Refresh};
use memtide_memory::channel::{Banks, Command};

/// The first violation in a log of commands, if any.
pub fn broken(dram: &Dram, log: &[(u64, Command)]) -> Option<String> {
    let mut past = Past::new(dram);
    log.iter().find_map(|&(at, command)| {
        let wrong = past.objection(at, command);
        past.add(at, command);
        wrong.map(|why| format!("cycle {at}: {command:?}: {why}"))
    })
}

/// Number of the subarray of a row in its channel; without subarrays, of the bank.
pub fn subarray(dram: &Dram, bank: u16, row: u32) -> u16 {
    let of_bank = dram.row_buffers();
    bank * of_bank + (row / (dram.rows / u32::from(of_bank))) as u16 % of_bank
}

/// The subarrays of some banks.
pub fn subarrays(dram: &Dram, banks: Banks) -> impl Iterator<Item = u16> + Clone {
    let of_bank = dram.row_buffers();
    banks.iter().flat_map(move |bank| bank * of_bank..(bank + 1) * of_bank)
}

/// The relevant history of commands.
pub struct Past<'a> {
    dram: &'a Dram,
    /// By subarray.
    banks: Vec<BankPast>,
    /// Activates, by rank.
    activates: Vec<Vec<(u64, u16)>>,
    columns: Vec<(u64, u16, bool)>,
    row_bus: u64,
    column_bus: u64,
}

#[derive(Clone, Copy, Default)]
struct BankPast {
    row: Option<u32>,
    activate: Option<u64>,
    read: Option<u64>,
    write: Option<u64>,
    /// When its last precharge ends.
    closed: Option<u64>,
    refresh: Option<u64>,
}

impl<'a> Past<'a> {
    pub fn new(dram: &'a Dram) -> Past<'a> {
        let ranks = usize::from(dram.ranks);
        let subarrays = dram.channel_banks() * usize::from(dram.row_buffers());
        Past {
            dram,
            banks: vec![BankPast::default(); subarrays],
            activates: vec![Vec::new(); ranks],
            columns: Vec::new(),
            row_bus: 0,
            column_bus: 0,
        }
    }

    /// The open row of a subarray; `None` if it is about to precharge automatically.
    pub fn open_row(&self, subarray: u16) -> Option<u32> {
        self.banks[usize::from(subarray)].row
    }

    fn bank(&self, subarray: u16) -> u16 {
        subarray / self.dram.row_buffers()
    }

    fn group(&self, subarray: u16) -> u16 {
        self.bank(subarray) / u16::from(self.dram.banks)
    }

    fn rank(&self, subarray: u16) -> u16 {
        self.group(subarray) / u16::from(self.dram.bank_groups)
    }

    /// Earliest precharge of an open subarray.
    pub fn precharge_at(&self, bank: u16) -> u64 {
        let (b, d) = (&self.banks[usize::from(bank)], self.dram);
        let write_data = u64::from(d.cwl) + u64::from(d.burst);
        [(b.activate, u64::from(d.ras)), (b.read, d.rtp.into()), (b.write, write_data + u64::from(d.wr))]
            .into_iter()
            .filter_map(|(at, distance)| at.map(|at| at + distance))
            .max()
            .unwrap_or(0)
    }

    /// Why a command is not allowed at a time.
    pub fn objection(&self, at: u64, command: Command) -> Option<String> {
        let bus = if matches!(command, Command::Column { .. }) { self.column_bus } else { self.row_bus };
        if at < bus {
            return Some(format!("the command bus is taken until {bus}"));
        }
        match command {
            Command::Activate { bank, row } => self.activate(at, subarray(self.dram, bank, row)),
            Command::Precharge { bank, row } => self.precharge(at, subarray(self.dram, bank, row), row),
            Command::PrechargeAll(banks) => self.precharge_all(at, banks),
            Command::Column { bank, row, write, .. } => {
                self.column(at, subarray(self.dram, bank, row), row, write)
            }
            Command::Refresh(banks) => subarrays(self.dram, banks).find_map(|bank| self.idle(at, bank)),
        }
    }

    /// Whether a subarray by itself can take an activate or refresh.
    fn idle(&self, at: u64, bank: u16) -> Option<String> {
        let (b, d) = (&self.banks[usize::from(bank)], self.dram);
        if b.row.is_some() {
            return Some(format!("bank {bank} has an open row"));
        }
        let after = |since: Option<u64>, distance: u16| since.is_some_and(|t| at < t + u64::from(distance));
        (b.closed.is_some_and(|t| at < t).then(|| "tRP".into()))
            .or(after(b.refresh, d.rfc).then(|| "tRFC".into()))
            .or(after(b.activate, d.ras + d.rp).then(|| "tRC".into()))
    }

    fn activate(&self, at: u64, bank: u16) -> Option<String> {
        let d = self.dram;
        let before = &self.activates[usize::from(self.rank(bank))];
        for &(t, other) in before.iter().rev().take(64) {
            let distance = if self.group(other) == self.group(bank) { d.rrd_l } else { d.rrd_s };
            if at < t + u64::from(distance) {
                return Some("tRRD".into());
            }
        }
        if before.len() >= 4 && at < before[before.len() - 4].0 + u64::from(d.faw) {
            return Some("tFAW".into());
        }
        self.idle(at, bank)
    }

    fn precharge(&self, at: u64, bank: u16, row: u32) -> Option<String> {
        if self.open_row(bank) != Some(row) {
            return Some(format!("the open row is {:?}", self.open_row(bank)));
        }
        (at < self.precharge_at(bank)).then(|| format!("bank {bank}: tRAS, tRTP or tWR"))
    }

    fn precharge_all(&self, at: u64, banks: Banks) -> Option<String> {
        let open = subarrays(self.dram, banks).filter(|&bank| self.open_row(bank).is_some());
        let early = open.clone().find(|&bank| at < self.precharge_at(bank));
        early
            .map(|bank| format!("bank {bank}: tRAS, tRTP or tWR"))
            .or(open.count().eq(&0).then(|| "no row to close".into()))
    }

    fn column(&self, at: u64, bank: u16, row: u32, write: bool) -> Option<String> {
        let (b, d) = (&self.banks[usize::from(bank)], self.dram);
        if b.row != Some(row) {
            return Some(format!("the open row is {:?}", b.row));
        }
        if b.activate.is_some_and(|t| at < t + u64::from(d.rcd)) {
            return Some("tRCD".into());
        }
        let latency = |write: bool| u64::from(if write { d.cwl } else { d.cl });
        for &(t, other, wrote) in self.columns.iter().rev().take(64) {
            let same_rank = self.rank(other) == self.rank(bank);
            let same_group = self.group(other) == self.group(bank);
            let data_end = t + latency(wrote) + u64::from(d.burst);
            let ccd = match (same_group, write) {
                (true, true) => d.ccd_l_wr.unwrap_or(d.ccd_l),
                (true, false) => d.ccd_l,
                (false, _) => d.ccd_s,
            };
            let select = d.subarrays.map_or(0, |subarrays| subarrays.select);
            if self.bank(other) == self.bank(bank) && other != bank && at < t + u64::from(select) {
                return Some("selection of a subarray".into());
            }
            if same_rank && wrote == write && at < t + u64::from(ccd) {
                return Some("tCCD".into());
            }
            let wtr = if same_group { d.wtr_l } else { d.wtr_s };
            if same_rank && wrote && !write && at < data_end + u64::from(wtr) {
                return Some("tWTR".into());
            }
            let switch = match (same_rank, wrote, write) {
                (true, _, _) => 0,
                (false, false, false) => d.rank_switch_rr.unwrap_or(d.rank_switch),
                (false, false, true) => d.rank_switch_rw.unwrap_or(d.rank_switch),
                (false, true, false) => d.rank_switch_wr.unwrap_or(d.rank_switch),
                (false, true, true) => d.rank_switch_ww,
            };
            let turn = if !wrote && write { d.turnaround } else { 0 };
            if !(same_rank && wrote && !write) && at + latency(write) < data_end + u64::from(switch.max(turn))
            {
                return Some("data bus".into());
            }
        }
        None
    }

    fn close(&mut self, bank: u16, end: u64) {
        let b = &mut self.banks[usize::from(bank)];
        (b.row, b.closed) = (None, Some(end));
    }

    /// Records a command.
    pub fn add(&mut self, at: u64, command: Command) {
        let d = self.dram;
        let cycles = match command {
            Command::Activate { .. } => d.activate_cycles,
            Command::Column { .. } => d.column_cycles,
            Command::Precharge { .. } | Command::PrechargeAll(_) | Command::Refresh(_) => 1,
        };
        let column = matches!(command, Command::Column { .. });
        for (bus, own) in [(&mut self.column_bus, column), (&mut self.row_bus, !column)] {
            if own || !d.split_command_bus {
                *bus = at + u64::from(cycles);
            }
        }
        match command {
            Command::Activate { bank, row } => {
                let subarray = subarray(d, bank, row);
                let rank = usize::from(self.rank(subarray));
                self.activates[rank].push((at, subarray));
                let b = &mut self.banks[usize::from(subarray)];
                *b = BankPast { row: Some(row), activate: Some(at), ..*b };
            }
            Command::Precharge { bank, row } => self.close(subarray(d, bank, row), at + u64::from(d.rp)),
            Command::PrechargeAll(banks) => {
                let rp = if d.refresh == Refresh::AllBank { d.rp_ab.unwrap_or(d.rp) } else { d.rp };
                let open = subarrays(d, banks).filter(|&bank| self.open_row(bank).is_some());
                open.collect::<Vec<_>>().into_iter().for_each(|bank| self.close(bank, at + u64::from(rp)));
            }
            Command::Column { bank, row, write, auto_precharge, .. } => {
                let bank = subarray(d, bank, row);
                self.columns.push((at, bank, write));
                let b = &mut self.banks[usize::from(bank)];
                *(if write { &mut b.write } else { &mut b.read }) = Some(at);
                if auto_precharge {
                    self.close(bank, self.precharge_at(bank) + u64::from(d.rp));
                }
            }
            Command::Refresh(banks) => {
                subarrays(d, banks).for_each(|bank| self.banks[usize::from(bank)].refresh = Some(at));
            }
        }
    }
}
