//! Random devices and traffic.

use memtide_core::machine::{Arbitration, Dram, PagePolicy, Refresh, Subarrays};
use memtide_memory::channel::Place;
use proptest::prelude::*;

use super::{Arrival, ddr4};

/// Any device that a machine file may describe, of realistic size.
pub fn device() -> impl Strategy<Value = Dram> {
    let shape = (0..2u32, 0..3u32, 0..3u32, any::<bool>(), any::<bool>(), 0..3u8);
    let latencies = (1..60u16, 1..40u16, 1..40u16, 1..40u16, 1..80u16, 1..9u16);
    let distances = (1..9u16, 0..9u16, 1..9u16, 0..9u16, 1..60u16, 0..9u16, 0..12u16, 0..400u16, 0..20u16);
    let buses = (0..5u16, 0..5u16, 1..4u16, 1..3u16, any::<bool>(), proptest::option::of(0..20u16));
    let gaps = || proptest::option::of(0..6u16);
    let gaps = (gaps(), gaps(), gaps(), 0..6u16, proptest::option::of(0..20u16));
    let controller = (any::<bool>(), any::<bool>(), 0..20u16, 1..40u16, 2..40u16, 0.0..1.0f64, 0.0..1.0f64);
    let subarrays = (0..4u32, 0..20u16);
    let subarrays = subarrays.prop_map(|(log, select)| Subarrays { per_bank: 1 << log, select });
    let queues = (prop_oneof![Just(0u16), 1..6u16], proptest::option::of(subarrays));
    let refresh = (0..600u16, prop_oneof![Just(0u32), 1500..6000u32]);
    (shape, latencies, distances, buses, gaps, controller, refresh, queues).prop_map(
        |(shape, lat, dist, buses, gaps, how, refresh, queues)| {
            let (ranks, bank_groups, banks, staggered, bank_hash, unit) = shape;
            let drain_high = 1 + (how.5 * f64::from(how.4 - 1)) as u16;
            Dram {
                ranks: 1 << ranks,
                bank_groups: 1 << bank_groups,
                banks: 1 << banks,
                rows: 64,
                refresh_staggered: staggered,
                bank_hash,
                refresh: [Refresh::AllBank, Refresh::SameBank, Refresh::PerBank][usize::from(unit)],
                cl: lat.0,
                cwl: lat.1,
                rcd: lat.2,
                rp: lat.3,
                rp_ab: gaps.4.map(|more| lat.3 + more),
                ras: lat.4,
                burst: lat.5,
                ccd_s: dist.0,
                ccd_l: dist.0 + dist.1,
                rrd_s: dist.2,
                rrd_l: dist.2 + dist.3,
                faw: dist.4,
                wtr_s: dist.5,
                wtr_l: dist.5 + dist.6,
                wr: dist.7,
                rtp: dist.8,
                rank_switch: buses.0,
                rank_switch_rr: gaps.0,
                rank_switch_rw: gaps.1,
                rank_switch_wr: gaps.2,
                rank_switch_ww: gaps.3,
                turnaround: buses.1,
                activate_cycles: buses.2,
                column_cycles: buses.3,
                split_command_bus: buses.4,
                ccd_l_wr: buses.5.map(|more| dist.0 + dist.1 + more),
                page_policy: if how.0 { PagePolicy::Open } else { PagePolicy::Closed },
                arbitration: if how.1 { Arbitration::Oldest } else { Arbitration::RoundRobin },
                hit_cap: how.2,
                bank_queue: queues.0,
                subarrays: queues.1,
                read_queue: how.3,
                write_queue: how.4,
                drain_high,
                drain_low: (how.6 * f64::from(drain_high)) as u16,
                rfc: refresh.0,
                refi: refresh.1,
                ..ddr4()
            }
        },
    )
}

/// Traffic to any device.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Half of the maximum distance of two arrivals, in cycles.
    distance: u64,
    /// Share of writes.
    writes: f64,
    /// Rows in use.
    rows: u32,
    /// Distance, bank, row, column, and a number that selects reads and writes.
    draws: Vec<(u64, u16, u32, u16, f64)>,
}

/// Traffic from saturating to sparse, to one row or several.
pub fn traffic() -> impl Strategy<Value = Traffic> {
    let one = (0..=u64::MAX, any::<u16>(), any::<u32>(), any::<u16>(), 0.0..1.0f64);
    (0..60u64, 0.0..1.0f64, 1..8u32, proptest::collection::vec(one, 1..400))
        .prop_map(|(distance, writes, rows, draws)| Traffic { distance, writes, rows, draws })
}

/// The traffic's requests to a device.
pub fn arrivals(dram: &Dram, traffic: &Traffic) -> Vec<Arrival> {
    let banks = u16::from(dram.ranks) * u16::from(dram.bank_groups) * u16::from(dram.banks);
    let mut at = 0;
    let arrival = |&(gap, bank, row, column, write): &(u64, u16, u32, u16, f64)| {
        // Now and then a pause with open rows and refreshes.
        at += if gap % 64 == 0 { gap % 20_011 } else { gap % (2 * traffic.distance + 1) };
        let place = Place {
            bank: bank % banks,
            column: column % 4,
            row: row % traffic.rows * dram.rows / traffic.rows,
        };
        Arrival { at, place, write: write < traffic.writes }
    };
    traffic.draws.iter().map(arrival).collect()
}

/// Removes pauses in which the channel is idle for a refresh interval: idle refreshes are not in its log.
pub fn without_pauses(dram: &Dram, mut arrivals: Vec<Arrival>) -> Vec<Arrival> {
    let mut before = 0;
    for arrival in &mut arrivals {
        arrival.at = arrival.at.min(before + u64::from(dram.refi) / 2);
        before = arrival.at;
    }
    arrivals
}
