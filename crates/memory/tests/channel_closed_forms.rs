//! Closed forms: latencies, distances and bandwidth caps, one step each side of the edge.

use crate::channel_support::{Arrival, activates, arrival, column_distance, columns, ddr4, near, rate, run};
use memtide_core::Time;
use memtide_core::machine::{Arbitration, Dram, PagePolicy, Refresh};
use memtide_memory::channel::{Banks, Command, Place};

/// Cycles per line at the end of a long run of reads that are all queued from the start.
fn cycles_a_line(dram: &Dram, place: impl Fn(u64) -> Place) -> f64 {
    const LINES: u64 = 50_000;
    let arrivals: Vec<Arrival> =
        (0..2 * LINES).map(|i| Arrival { at: 0, place: place(i), write: false }).collect();
    let ends: Vec<u64> = run(dram, &arrivals).ends.into_iter().flatten().collect();
    let (half, last) = (ends[..LINES as usize].iter().max().unwrap(), ends.iter().max().unwrap());
    (last - half) as f64 / LINES as f64
}

#[test]
fn single_read_latency_matches_data_sheet() {
    let d = ddr4();
    let read = |row, at| arrival(at, &d, 0, 0, row, 0, false);
    let ends = run(&d, &[read(5, 100), read(5, 1000), read(6, 2000)]).ends;
    let (hit, rcd, rp) = (u64::from(d.cl + d.burst), u64::from(d.rcd), u64::from(d.rp));
    assert_eq!(ends, [Some(100 + rcd + hit), Some(1000 + hit), Some(2000 + rp + rcd + hit)]);
}

#[test]
fn closed_page_policy_always_misses_rows() {
    let d = Dram { page_policy: PagePolicy::Closed, ..ddr4() };
    let read = |row, at| arrival(at, &d, 0, 0, row, 0, false);
    let miss = u64::from(d.rcd + d.cl + d.burst);
    assert_eq!(
        run(&d, &[read(5, 100), read(5, 1000), read(6, 2000)]).ends,
        [Some(100 + miss), Some(1000 + miss), Some(2000 + miss)]
    );
    // Queued hits are served before the row is closed.
    let r = run(&d, &[read(5, 0), read(5, 0), read(5, 0)]);
    assert_eq!(activates(&r).len(), 1);
}

#[test]
fn row_hits_over_bank_groups_fill_the_bus_and_in_one_group_wait_for_ccd_l() {
    let d = ddr4();
    let over_groups = |i: u64| Place { bank: (i % 4 * 4) as u16, column: (i / 4 % 128) as u16, row: 1 };
    let one_group = |i: u64| Place { bank: (i % 4) as u16, column: (i / 4 % 128) as u16, row: 1 };
    near("over groups", cycles_a_line(&d, over_groups), f64::from(d.burst), 0.001);
    near("one group", cycles_a_line(&d, one_group), f64::from(d.ccd_l), 0.001);
    let peak = d.channel_peak().as_mbps();
    near("peak", rate(&d, cycles_a_line(&d, over_groups)).as_mbps(), peak, 0.001);
}

#[test]
fn row_conflicts_in_a_bank_come_every_trc() {
    let d = ddr4();
    let conflicts = |i: u64| Place { bank: 0, column: 0, row: i as u32 };
    near("tRC", cycles_a_line(&d, conflicts), f64::from(d.ras + d.rp), 0.001);
    // A read-to-precharge time longer than the rest of tRAS is the limit.
    let d = Dram { rtp: 40, ..d };
    near("tRCD + tRTP + tRP", cycles_a_line(&d, conflicts), f64::from(d.rcd + d.rtp + d.rp), 0.001);
}

#[test]
fn activates_are_bound_by_faw_or_by_rrd() {
    // Only activates use the row command bus.
    let quick = Dram { ranks: 1, ras: 20, rp: 5, rcd: 5, rtp: 2, ..ddr4() };
    let d = Dram { page_policy: PagePolicy::Closed, split_command_bus: true, ..quick };
    let over_banks = |i: u64| Place { bank: (i % 4 * 4 + i / 4 % 4) as u16, column: 0, row: i as u32 };
    for faw in [15, 16, 17, 26, 40] {
        let bound = f64::from(faw.max(4 * d.rrd_s)) / 4.0;
        near("tFAW", cycles_a_line(&Dram { faw, ..d.clone() }, over_banks), bound, 0.01);
    }
    let one_group = |i: u64| Place { bank: (i % 4) as u16, column: 0, row: i as u32 };
    let d = Dram { rrd_l: 9, ..d };
    near("tRRD_L", cycles_a_line(&d, one_group), 9.0, 0.01);
}

#[test]
fn refresh_takes_its_share_of_the_bandwidth() {
    let hits = |i: u64| Place { bank: (i % 4 * 4) as u16, column: (i / 4 % 128) as u16, row: 1 };
    for (refi, rfc) in [(9360, 420), (4680, 420), (9360, 840)] {
        let d = Dram { refi, rfc, ranks: 1, ..ddr4() };
        // Cost of a refresh: the last read to precharge, precharge, and activate to the first read.
        let lost = f64::from(rfc + d.rtp + d.rp + d.rcd) - f64::from(d.burst);
        let share = 1.0 - lost / f64::from(refi);
        near("refresh", cycles_a_line(&d, hits), f64::from(d.burst) / share, 0.003);
    }
}

#[test]
fn single_bank_refresh_leaves_others_open() {
    let d = Dram { refi: 3200, rfc: 100, ranks: 1, refresh: Refresh::PerBank, ..ddr4() };
    // Per bank: bank 0 goes first, after a sixteenth of the interval.
    let other = arrival(210, &d, 1, 0, 3, 0, false);
    let refreshed = arrival(210, &d, 0, 0, 3, 0, false);
    let r = run(&d, &[other, refreshed]);
    assert_eq!(r.commands[0], (200, Command::Refresh(Banks { first: 0, step: 1, count: 1 })));
    let miss = u64::from(d.rcd + d.cl + d.burst);
    assert_eq!(r.ends, [Some(210 + miss), Some(200 + 100 + miss)]);
    let same = Dram { refresh: Refresh::SameBank, ..d };
    let r = run(&same, &[arrival(810, &same, 0, 1, 0, 0, false)]);
    assert_eq!(r.commands[0], (800, Command::Refresh(Banks { first: 0, step: 4, count: 4 })));
}

#[test]
fn idle_refreshes_are_counted() {
    let d = Dram { refi: 9360, ..ddr4() };
    let r = run(&d, &[arrival(20_000, &d, 0, 0, 0, 0, false)]);
    let at = |cycle| r.channel.counters(d.cycles(cycle)).refreshes;
    assert_eq!([at(20_500), at(28_079), at(28_080), at(93_600)], [4.0, 4.0, 6.0, 20.0]);
}

#[test]
fn read_after_write_waits_for_turnaround() {
    let d = ddr4();
    let opened = |second: Arrival| {
        // Both rows are open and idle before the measured pair.
        let open = [arrival(0, &d, 0, 0, 1, 0, false), Arrival { at: 0, write: false, ..second }];
        let first = arrival(2000, &d, 0, 0, 1, 1, !second.write);
        let r = run(&d, &[open[0], open[1], first, Arrival { at: 2001, ..second }]);
        let columns = columns(&r);
        columns[3] - columns[2]
    };
    let other_rank = |write| Arrival { at: 0, place: Place { bank: 16, column: 9, row: 1 }, write };
    let data = |latency: u16| u64::from(latency + d.burst);
    assert_eq!(opened(arrival(0, &d, 0, 1, 1, 9, false)), data(d.cwl) + u64::from(d.wtr_l));
    assert_eq!(opened(arrival(0, &d, 1, 0, 1, 9, false)), data(d.cwl) + u64::from(d.wtr_s));
    assert_eq!(opened(other_rank(false)), (data(d.cwl) + 2).saturating_sub(u64::from(d.cl)).max(1));
    for second in [arrival(0, &d, 0, 1, 1, 9, true), arrival(0, &d, 1, 0, 1, 9, true), other_rank(true)] {
        assert_eq!(opened(second), data(d.cl) + 2 - u64::from(d.cwl));
    }
}

#[test]
fn written_row_closes_after_write_recovery() {
    // Slow cells behind a DDR-like interface: 160 ns of write recovery.
    let d = Dram { wr: 192, ..ddr4() };
    let r = run(&d, &[arrival(0, &d, 0, 0, 1, 0, true), arrival(500, &d, 0, 0, 2, 0, false)]);
    let miss = u64::from(d.rcd + d.cl + d.burst);
    let written = u64::from(d.rcd + d.cwl + d.burst + d.wr);
    assert_eq!(r.ends[1], Some(500 + u64::from(d.rp) + miss));
    let r = run(&d, &[arrival(0, &d, 0, 0, 1, 0, true), arrival(100, &d, 0, 0, 2, 0, false)]);
    assert_eq!(r.ends[1], Some(written + u64::from(d.rp) + miss));
}

#[test]
fn bus_is_idle_between_ranks() {
    let d = ddr4();
    let gap = |a: u16, b: u16| column_distance(&d, (a, false), (b, false));
    assert_eq!(gap(0, 4), u64::from(d.ccd_s));
    assert_eq!(gap(0, 1), u64::from(d.ccd_l));
    assert_eq!(gap(0, 16), u64::from(d.burst + d.rank_switch));
}

#[test]
fn request_leaves_its_queue_at_its_activate() {
    // With queues of one read, the next one enters when the row of the first is opened.
    let d = Dram { read_queue: 1, ..ddr4() };
    let reads = [0, 1, 2].map(|group| arrival(0, &d, group, 0, 1, 0, false));
    let opened = activates(&run(&d, &reads));
    assert_eq!(opened, [0, u64::from(d.rrd_s), u64::from(2 * d.rrd_s)]);
    // A row hit stays until its column command.
    let hits = [arrival(0, &d, 0, 0, 1, 0, false), arrival(1000, &d, 0, 0, 1, 1, false)];
    let (hit, other) = (arrival(1000, &d, 0, 0, 1, 2, false), arrival(1000, &d, 1, 0, 1, 0, false));
    let r = run(&d, &[hits[0], hits[1], hit, other]);
    assert_eq!(
        (columns(&r)[2], activates(&r)[1]),
        (1000 + u64::from(d.ccd_l), 1000 + u64::from(d.ccd_l) + 1)
    );
}

#[test]
fn writes_wait_for_the_watermark_while_reads_come() {
    let d = ddr4();
    // A read hit every 30 cycles keeps a read queued most of the time; then one write below or at the mark.
    let first_write = |writes: u64| {
        let mut arrivals: Vec<Arrival> =
            (0..40).map(|i| arrival(i / 4, &d, 0, 0, i as u32 + 1, 0, false)).collect();
        arrivals.extend((0..writes).map(|i| arrival(20, &d, 1, 0, 1, i as u16, true)));
        arrivals.sort_by_key(|arrival| arrival.at);
        let run = run(&d, &arrivals);
        let is_write = |c: &Command| matches!(c, Command::Column { write: true, .. });
        let writes = run.commands.iter().position(|c| is_write(&c.1)).unwrap();
        run.commands[..writes].iter().filter(|c| matches!(c.1, Command::Column { .. })).count()
    };
    let mark = u64::from(d.drain_high);
    assert_eq!(first_write(mark - 1), 40, "below the mark all reads go first");
    assert!(first_write(mark) < 40, "at the mark writes go before the last reads");
}

#[test]
fn drain_ends_at_low_mark() {
    let d = ddr4();
    let mut arrivals: Vec<Arrival> =
        (0..u64::from(d.drain_high)).map(|i| arrival(0, &d, 1, 0, 1, i as u16, true)).collect();
    arrivals.insert(0, arrival(0, &d, 0, 0, 1, 0, false));
    arrivals.push(arrival(1, &d, 0, 0, 1, 1, false));
    let r = run(&d, &arrivals);
    let kinds: Vec<bool> = r
        .commands
        .iter()
        .filter_map(|c| if let Command::Column { write, .. } = c.1 { Some(write) } else { None })
        .collect();
    let drained = kinds.iter().skip_while(|w| !**w).take_while(|w| **w).count();
    assert_eq!(drained, usize::from(d.drain_high - d.drain_low));
}

#[test]
fn write_queue_forwards_reads_and_merges_writes() {
    let d = ddr4();
    let line = |at, write| arrival(at, &d, 0, 0, 1, 7, write);
    // A stream of reads elsewhere delays the writes.
    let mut arrivals: Vec<Arrival> = (0..30).map(|i| arrival(0, &d, 2, 0, i, 0, false)).collect();
    arrivals.extend([line(1, true), line(2, true), line(3, false)]);
    let r = run(&d, &arrivals);
    assert_eq!(r.ends[32], Some(4));
    let c = r.channel.counters(Time::ZERO);
    assert_eq!((c.merged_writes, c.forwarded_reads, c.writes, c.reads), (1, 1, 1, 30));
}

#[test]
fn row_hits_overtake_up_to_the_cap() {
    let order = |hit_cap: u16| {
        let d = Dram { hit_cap, ..ddr4() };
        let mut arrivals = vec![arrival(0, &d, 0, 0, 1, 0, false), arrival(1, &d, 0, 0, 2, 0, false)];
        arrivals.extend((1..9).map(|i| arrival(2, &d, 0, 0, 1, i, false)));
        let ends = run(&d, &arrivals).ends;
        ends.iter().filter(|end| **end < ends[1]).count() - 1
    };
    assert_eq!([order(0), order(3), order(8), order(9)], [0, 3, 8, 8]);
}

#[test]
fn row_hits_of_other_rank_do_not_starve_reads() {
    for arbitration in [Arbitration::Oldest, Arbitration::RoundRobin] {
        let d = Dram { arbitration, ..ddr4() };
        let hit = |i: u64| Place { bank: (i % 4 * 4) as u16, column: (i / 4 % 128) as u16, row: 1 };
        let mut arrivals: Vec<Arrival> =
            (0..60_000).map(|i| Arrival { at: i * 4, place: hit(i), write: false }).collect();
        arrivals
            .insert(1000, Arrival { at: 4000, place: Place { bank: 16, column: 0, row: 1 }, write: false });
        let waited = run(&d, &arrivals).ends[1000].unwrap() - 4000;
        assert!(waited < 20_000, "waited {waited} cycles");
    }
}

#[test]
fn writes_do_not_starve_reads() {
    let d = ddr4();
    let line =
        |i: u64| Place { bank: (i % 4 * 4) as u16, column: (i / 4 % 128) as u16, row: (i / 512) as u32 };
    let mut arrivals: Vec<Arrival> =
        (0..60_000).map(|i| Arrival { at: 0, place: line(i), write: true }).collect();
    arrivals.insert(1000, Arrival { at: 0, place: Place { bank: 16, column: 0, row: 1 }, write: false });
    let end = run(&d, &arrivals).ends[1000].unwrap();
    assert!(end < 10_000, "ended at {end}");
}

#[test]
fn times_survive_base_moves() {
    // Pauses of seconds, longer than the 32-bit times inside, each followed by a read and a conflict.
    let d = Dram { refi: 9360, ..ddr4() };
    let pause = 641_026 * u64::from(d.refi);
    let arrivals: Vec<Arrival> = (0..8)
        .flat_map(|i| {
            [
                arrival(i * pause + 5000, &d, 0, 0, 1, 0, false),
                arrival(i * pause + 5001, &d, 0, 0, 2, 0, false),
            ]
        })
        .collect();
    let r = run(&d, &arrivals);
    let miss = u64::from(d.rcd + d.cl + d.burst);
    for pair in r.ends.chunks(2).zip(arrivals.chunks(2)) {
        let (ends, arrivals) = pair;
        assert_eq!(ends[0], Some(arrivals[0].at + miss));
        assert_eq!(ends[1], Some(arrivals[0].at + u64::from(d.ras + d.rp) + miss));
    }
    // And without pauses: more cycles than the base may lag behind.
    let busy: Vec<Arrival> =
        (0..3000).map(|i| arrival(i * 1_000_000, &d, 0, 0, i as u32 % 2, 0, false)).collect();
    let slow = Dram { refi: 0, ..d };
    let most = u64::from(slow.rp) + miss;
    let late =
        run(&slow, &busy).ends.iter().zip(&busy).skip(1).filter(|(e, a)| e.unwrap() - a.at != most).count();
    assert_eq!(late, 0);
}
