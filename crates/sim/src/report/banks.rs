//! Energy of a node by cause, and its channels and banks.

use memtide_core::Time;
use memtide_core::machine::Node;
use memtide_memory::{BankCounters, Counters, EnergyUse};

use super::wear::{FrameWrites, Wear};
use super::{BankReport, ChannelReport, EnergyReport};

pub(super) fn energy(spec: &Node, device: &Counters, time: Time) -> EnergyReport {
    let of = device.energy(&spec.energy, time);
    // mJ of a second are mW.
    let power_mw = |nj: f64| if time == Time::ZERO { 0.0 } else { nj / 1e6 / time.as_seconds() };
    let EnergyUse { read_nj, write_nj, activate_nj, refresh_nj, standby_nj } = of;
    EnergyReport {
        read_mj: read_nj / 1e6,
        write_mj: write_nj / 1e6,
        activate_mj: activate_nj / 1e6,
        refresh_mj: refresh_nj / 1e6,
        standby_mj: standby_nj / 1e6,
        dynamic_mj: of.dynamic_nj() / 1e6,
        dynamic_mw: power_mw(of.dynamic_nj()),
        power_mw: power_mw(of.total_nj()),
    }
}

pub(super) fn channels(
    spec: &Node,
    banks: &[Vec<BankCounters>],
    wear: Option<&Wear>,
    time: Time,
) -> Vec<ChannelReport> {
    let report = |of: BankCounters, frames: Option<&FrameWrites>| BankReport {
        reads: of.reads,
        writes: of.writes,
        row_conflicts: of.row_conflicts,
        dynamic_mj: of.dynamic_nj(&spec.energy) / 1e6,
        wear: spec.endurance_writes.zip(frames).map(|(endurance, frames)| frames.report(endurance, time)),
    };
    let of_channel = |(channel, banks): (usize, &Vec<BankCounters>)| {
        let sum = banks.iter().copied().fold(BankCounters::default(), BankCounters::plus);
        let frames = wear.and_then(|wear| wear.channels.as_ref()).map(|all| &all[channel]);
        let of_bank = |(bank, &counts): (usize, &BankCounters)| {
            let frames = wear.and_then(|wear| wear.banks.as_ref()).map(|all| &all[channel][bank]);
            report(counts, frames)
        };
        ChannelReport { counts: report(sum, frames), banks: banks.iter().enumerate().map(of_bank).collect() }
    };
    banks.iter().enumerate().map(of_channel).collect()
}
