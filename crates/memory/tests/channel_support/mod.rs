//! Devices, and a plain checker of command logs, for tests of the channel.
pub mod plain;
pub mod random;
pub mod rules;

use memtide_core::machine::{Dram, Machine, Node};
use memtide_core::{Bandwidth, LINE_BYTES, Time};
use memtide_memory::channel::{Channel, Command, Place};
use memtide_memory::node::Completion;

/// The DDR4-2400 channel of the accuracy tests.
pub fn matched() -> Node {
    let text = include_str!("../../../../machines/ddr4-2400.toml");
    Machine::parse("ddr4-2400.toml", text).expect("the repository's machine is right").nodes.remove(0)
}

/// Its device, without refresh.
pub fn ddr4() -> Dram {
    Dram { refi: 0, ..matched().dram.expect("a dram node") }
}

/// A request and its arrival in cycles.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at: u64,
    pub place: Place,
    pub write: bool,
}

/// A read or write of rank 0.
pub fn arrival(at: u64, dram: &Dram, group: u16, bank: u16, row: u32, column: u16, write: bool) -> Arrival {
    Arrival { at, place: Place { bank: group * u16::from(dram.banks) + bank, column, row }, write }
}

/// Result of a run.
pub struct Run {
    pub commands: Vec<(u64, Command)>,
    /// Ends of reads, in cycles; `None` for writes and for reads that did not end.
    pub ends: Vec<Option<u64>>,
    pub channel: Channel<Vec<(u64, Command)>>,
}

/// Pushes all requests, and runs until nothing is queued.
pub fn run(dram: &Dram, arrivals: &[Arrival]) -> Run {
    let mut channel = Channel::with_observer(dram, Vec::new());
    let mut done = Vec::new();
    for (id, arrival) in arrivals.iter().enumerate() {
        channel.push(dram.cycles(arrival.at), arrival.place, arrival.write, id as u64);
    }
    while channel.next_event() != Time::NEVER {
        channel.advance(channel.next_event(), &mut done);
    }
    Run { commands: channel.observer().clone(), ends: ends(dram, arrivals.len(), &done), channel }
}

/// Cycles of the column commands, in order.
pub fn columns(run: &Run) -> Vec<u64> {
    run.commands.iter().filter(|c| matches!(c.1, Command::Column { .. })).map(|c| c.0).collect()
}

/// Cycles of the activates, in order.
pub fn activates(run: &Run) -> Vec<u64> {
    run.commands.iter().filter(|c| matches!(c.1, Command::Activate { .. })).map(|c| c.0).collect()
}

/// Distance of the column commands of two requests, to open rows of the given banks.
pub fn column_distance(d: &Dram, first: (u16, bool), then: (u16, bool)) -> u64 {
    let request = |at, (bank, write): (u16, bool), column| {
        let place = Place { bank, column, row: 1 };
        Arrival { at, place, write }
    };
    let open = |(bank, _)| request(0, (bank, false), 0);
    let arrivals = [open(first), open(then), request(1000, first, 1), request(1001, then, 1)];
    let columns = columns(&run(d, &arrivals));
    columns[3] - columns[2]
}

/// Completions by request; fails if a request has two.
pub fn ends(dram: &Dram, requests: usize, done: &[Completion]) -> Vec<Option<u64>> {
    let mut ends = vec![None; requests];
    for completion in done {
        assert_eq!(completion.at.0 % u64::from(dram.t_ck_ps), 0);
        let end = &mut ends[completion.id as usize];
        assert_eq!(*end, None, "read {} ended twice", completion.id);
        *end = Some(completion.at.0 / u64::from(dram.t_ck_ps));
    }
    ends
}

/// Rate of lines that take `cycles` each.
pub fn rate(dram: &Dram, cycles: f64) -> Bandwidth {
    Bandwidth(LINE_BYTES as f64 * 1e6 / (cycles * f64::from(dram.t_ck_ps)))
}

/// Fails unless `got` is within `share` of `expected`.
#[track_caller]
pub fn near(what: &str, got: f64, expected: f64, share: f64) {
    let off = got / expected - 1.0;
    assert!(off.abs() <= share, "{what}: {got:.3}, expected {expected:.3}: {:+.2} %", off * 100.0);
}
