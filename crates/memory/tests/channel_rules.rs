//! On random traffic to random devices the channel violates no timing rule, ends every read once and starves
//! none.

use crate::channel_support::plain::Plain;
use crate::channel_support::random::{arrivals, device, traffic, without_pauses};
use crate::channel_support::{Arrival, ddr4, ends, rules, run};
use memtide_core::Time;
use memtide_core::machine::Dram;
use memtide_memory::channel::{Channel, Command, Place};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_rule_is_violated_and_every_read_ends_once(dram in device(), traffic in traffic()) {
        let arrivals = arrivals(&dram, &traffic);
        let run = run(&dram, &arrivals);
        prop_assert_eq!(rules::broken(&dram, &run.commands), None);
        for (arrival, end) in arrivals.iter().zip(&run.ends) {
            prop_assert_eq!(end.is_some(), !arrival.write);
            prop_assert!(end.is_none_or(|end| end > arrival.at));
        }
        let counters = run.channel.counters(Time::ZERO);
        let reads = arrivals.iter().filter(|arrival| !arrival.write).count() as u64;
        prop_assert_eq!(counters.reads + counters.forwarded_reads, reads);
        prop_assert_eq!(counters.writes + counters.merged_writes, arrivals.len() as u64 - reads);
        prop_assert_eq!(counters.row_hits + counters.row_misses + counters.row_conflicts, counters.lines());
    }

    #[test]
    fn step_length_does_not_change_result(dram in device(), traffic in traffic(), steps in 1..5000u64) {
        let arrivals = arrivals(&dram, &traffic);
        let whole = run(&dram, &arrivals);
        let mut channel = Channel::with_observer(&dram, Vec::new());
        let (mut done, mut pushed, mut now) = (Vec::new(), 0, 0);
        while pushed < arrivals.len() || channel.next_event() != Time::NEVER {
            let until = now + steps;
            while let Some(arrival) = arrivals.get(pushed).filter(|arrival| arrival.at <= until) {
                channel.push(dram.cycles(arrival.at), arrival.place, arrival.write, pushed as u64);
                pushed += 1;
            }
            channel.advance(dram.cycles(until), &mut done);
            now = until;
        }
        prop_assert_eq!(ends(&dram, arrivals.len(), &done), whole.ends);
        prop_assert_eq!(channel.observer(), &whole.commands);
    }

    #[test]
    fn every_bank_is_refreshed_in_every_interval(dram in device(), traffic in traffic()) {
        let dram = Dram { refi: dram.refi.max(1500), ..dram };
        let arrivals = without_pauses(&dram, arrivals(&dram, &traffic));
        let run = run(&dram, &arrivals);
        let end = run.commands.last().map_or(0, |c| c.0);
        let late = u64::from(dram.ras) + u64::from(dram.wr) + 400;
        for bank in 0..u16::from(dram.ranks) * u16::from(dram.bank_groups) * u16::from(dram.banks) {
            let refreshed = |c: &&(u64, Command)| {
                matches!(c.1, Command::Refresh(banks) if banks.iter().any(|refreshed| refreshed == bank))
            };
            let times: Vec<u64> = run.commands.iter().filter(refreshed).map(|c| c.0).collect();
            let starts = std::iter::once(0).chain(times.iter().copied());
            for (from, to) in starts.zip(times.iter().copied().chain([end])) {
                let most = if from == 0 { 2 } else { 1 } * u64::from(dram.refi) + late;
                prop_assert!(to.saturating_sub(from) <= most, "bank {} from {} to {}", bank, from, to);
            }
        }
    }

    #[test]
    fn channel_matches_cycle_by_cycle_reference(dram in device(), traffic in traffic()) {
        let mut arrivals = arrivals(&dram, &traffic);
        if dram.refi > 0 {
            arrivals = without_pauses(&dram, arrivals);
        }
        let run = run(&dram, &arrivals);
        let plain = Plain::run(&dram, &arrivals);
        let differs = run.commands.iter().zip(&plain.log).position(|(a, b)| a != b);
        prop_assert_eq!(differs.map(|i| (run.commands[i], plain.log[i])), None);
        prop_assert_eq!(run.ends, plain.ends);
    }
}

#[test]
fn long_burst_of_reads_and_writes_drains() {
    // Row hits to rank 0 only, an occasional request to rank 1 that must be prioritised, with turnarounds and
    // refreshes in between.
    let dram = Dram { refi: 9360, ..ddr4() };
    for (writes, other) in [(0, 997), (3, 997), (2, 211), (7, 4001)] {
        let arrival = |i: u64| {
            let bank =
                if i.is_multiple_of(other) { 16 + (i / other % 16) as u16 } else { (i % 4 * 4) as u16 };
            let place = Place { bank, column: (i / 4 % 128) as u16, row: (i / 50_000) as u32 };
            Arrival { at: i * 4, place, write: writes > 0 && i.is_multiple_of(writes) }
        };
        let arrivals: Vec<Arrival> = (0..100_000).map(arrival).collect();
        let run = run(&dram, &arrivals);
        assert!(arrivals.iter().zip(&run.ends).all(|(arrival, end)| arrival.write || end.is_some()));
        assert_eq!(rules::broken(&dram, &run.commands), None);
    }
}
