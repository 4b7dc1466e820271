//! What only some devices have, in closed forms: gaps between ranks by pair, precharge of all banks, queue
//! entries of banks, and subarrays.

use crate::channel_support::{Arrival, activates, arrival, column_distance, columns, ddr4, run};
use memtide_core::Time;
use memtide_core::machine::{Dram, Machine, Subarrays};
use memtide_memory::channel::{Banks, Command};

#[test]
fn each_pair_of_ranks_has_its_own_gap() {
    let d = ddr4();
    let (read, write) = ((0, false), (16, true));
    let data = |latency: u16| u64::from(latency + d.burst);
    assert_eq!(column_distance(&d, (0, true), (16, true)), u64::from(d.burst), "no gap between writes");
    let own = Dram {
        rank_switch_rr: Some(3),
        rank_switch_rw: Some(5),
        rank_switch_wr: Some(11),
        rank_switch_ww: 4,
        ..d.clone()
    };
    assert_eq!(column_distance(&own, read, (16, false)), u64::from(d.burst) + 3);
    assert_eq!(column_distance(&own, read, write), data(d.cl) + 5 - u64::from(d.cwl));
    assert_eq!(column_distance(&own, write, read), data(d.cwl) + 11 - u64::from(d.cl));
    assert_eq!(column_distance(&own, (0, true), write), u64::from(d.burst) + 4);
    let short = Dram { rank_switch_rw: Some(0), ..own };
    let turnaround = u64::from(d.turnaround);
    assert_eq!(column_distance(&short, read, write), data(d.cl) + turnaround - u64::from(d.cwl));
}

#[test]
fn refresh_follows_precharge_of_all_banks() {
    let d = Dram { refi: 1000, rfc: 100, ranks: 1, rp_ab: Some(30), ..ddr4() };
    let reads = [arrival(900, &d, 0, 0, 1, 0, false), arrival(900, &d, 1, 0, 1, 0, false)];
    let last = arrival(1001, &d, 0, 0, 1, 1, false);
    let r = run(&d, &[reads[0], reads[1], last]);
    let banks = Banks { first: 0, step: 1, count: 16 };
    let closed = r.commands.iter().position(|c| c.1 == Command::PrechargeAll(banks)).unwrap();
    let (at, refresh) = (r.commands[closed].0, r.commands[closed + 1]);
    assert_eq!((at, refresh), (1000, (1000 + 30, Command::Refresh(banks))));
    assert_eq!(r.ends[2], Some(1000 + 30 + 100 + u64::from(d.rcd + d.cl + d.burst)));
    // A precharge of one bank takes tRP.
    let d = Dram { refi: 0, ..d };
    let conflict = run(&d, &[reads[0], arrival(1900, &d, 0, 0, 2, 0, false)]);
    assert_eq!(conflict.ends[1], Some(1900 + u64::from(d.rp + d.rcd + d.cl + d.burst)));
}

#[test]
fn bank_entries_admit_requests_beside_the_shared_queue() {
    // A row hit overtakes the bank's waiting reads of other rows only if it is in the controller with them.
    let hit_overtakes = |d: &Dram, elsewhere: u32, others: u32| {
        let mut arrivals = vec![arrival(0, d, 0, 0, 1, 0, false)];
        arrivals.extend((0..elsewhere).map(|i| arrival(2, d, 1, 0, 10 + i, 0, false)));
        arrivals.extend((0..others).map(|i| arrival(3, d, 0, 0, 10 + i, 0, false)));
        arrivals.push(arrival(4, d, 0, 0, 1, 2, false));
        let ends = run(d, &arrivals).ends;
        ends[arrivals.len() - 1] < ends[1 + elsewhere as usize]
    };
    // The first read left its entry at its activate: four shared entries are for three others and the hit.
    let shared = Dram { read_queue: 4, hit_cap: 100, ..ddr4() };
    assert_eq!([3, 4].map(|others| hit_overtakes(&shared, 0, others)), [true, false]);
    // Five more of the bank.
    let own = Dram { bank_queue: 5, ..shared };
    assert_eq!([8, 9].map(|others| hit_overtakes(&own, 0, others)), [true, false]);
    // Of seven reads of another bank, one is activated, five take its entries, and one a shared entry.
    assert_eq!([7, 8].map(|others| hit_overtakes(&own, 7, others)), [true, false]);
}

#[test]
fn rows_of_different_subarrays_are_open_at_once() {
    let subarrays = |per_bank, select| Dram { subarrays: Some(Subarrays { per_bank, select }), ..ddr4() };
    // Two rows of a bank in turn: with a row buffer each, after the first two all accesses are row hits.
    let rows = |d: &Dram, count: u32| {
        let row = |i: u64| (i as u32 % count) * (d.rows / count);
        let reads: Vec<Arrival> = (0..100).map(|i| arrival(i * 200, d, 0, 0, row(i), 0, false)).collect();
        run(d, &reads).channel.counters(Time::ZERO)
    };
    let hits = |d: &Dram, count| rows(d, count).row_hits;
    assert_eq!([1, 2, 4, 8].map(|n| hits(&subarrays(n, 0), 4)), [0, 0, 96, 96]);
    assert_eq!(hits(&ddr4(), 4), 0);
    // Rows of one subarray conflict.
    let d = subarrays(8, 0);
    let near_rows: Vec<Arrival> =
        (0..100).map(|i| arrival(i * 200, &d, 0, 0, i as u32 % 2, 0, false)).collect();
    assert_eq!(run(&d, &near_rows).channel.counters(Time::ZERO).row_conflicts, 99);
}

#[test]
fn subarrays_activate_at_trrd_and_share_the_data_path() {
    let with = |select| Dram { subarrays: Some(Subarrays { per_bank: 2, select }), ..ddr4() };
    let other = |d: &Dram| d.rows / 2;
    let reads = |d: &Dram, at| [arrival(at, d, 0, 0, 0, 1, false), arrival(at, d, 0, 0, other(d), 1, false)];
    let d = with(0);
    let r = run(&d, &reads(&d, 0));
    assert_eq!(activates(&r), [0, u64::from(d.rrd_l)], "not after tRC");
    for select in [0, 7, 30] {
        let d = with(select);
        let r = run(&d, &[reads(&d, 0), reads(&d, 1000)].concat());
        let columns = columns(&r);
        assert_eq!(columns[3] - columns[2], u64::from(select.max(d.ccd_l)));
    }
    // A refresh closes both.
    let d = Dram { refi: 1000, rfc: 100, ranks: 1, ..with(0) };
    let r = run(&d, &[reads(&d, 900), reads(&d, 1010)].concat());
    assert_eq!(r.channel.counters(Time::ZERO).row_misses, 4);
    assert_eq!(
        activates(&r)[2..],
        [1000 + u64::from(d.rp) + 100, 1000 + u64::from(d.rp) + 100 + u64::from(d.rrd_l)]
    );
}

#[test]
fn device_survives_its_machine_file() {
    let text = include_str!("../../../machines/ddr4-2400.toml");
    let more = "rank_switch_rr = 3\nrp_ab = 21\naddress_hash = [\"rank[0] ^= row[3]\"]\nbank_queue = 8\n\
        [node.dram.subarrays]\nper_bank = 4\nselect = 5\n";
    let machine = Machine::parse("m.toml", &format!("{text}{more}")).unwrap();
    let again = Machine::parse("m.toml", &machine.to_toml()).unwrap();
    let [device, read_again] = [&machine, &again].map(|m| m.nodes[0].dram.clone().unwrap());
    assert_eq!(device, read_again);
    assert_eq!((device.subarrays, device.bank_queue), (Some(Subarrays { per_bank: 4, select: 5 }), 8));
}
