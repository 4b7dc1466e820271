//! Counters by channel and bank.

use memtide_core::Time;
use memtide_core::machine::{Machine, bundled};
use memtide_memory::channel::AddressMap;
use memtide_memory::dram::DramNode;
use memtide_memory::node::{MemoryNode, Request};
use memtide_memory::{BankCounters, Counters};

/// Lines of a page.
const LINES: u64 = 64;

/// memos' NVM: one channel, eight banks, whose rows are pages.
fn nvm() -> DramNode {
    DramNode::new(machine().nodes[1].dram.as_ref().expect("a dram node"))
}

fn machine() -> Machine {
    bundled::machine("memos").expect("a bundled machine").expect("a sound file")
}

/// Pushes requests at the start, and lets the node finish.
fn run(node: &mut DramNode, requests: impl Iterator<Item = (u64, bool)>) -> Counters {
    for (id, (line, write)) in (0..).zip(requests) {
        node.push(Time::ZERO, Request { line, write, id });
    }
    let end = Time::from_ms(100);
    node.advance(end, &mut Vec::new());
    node.counters(end)
}

#[test]
fn writes_to_pages_of_one_bank_count_there_alone() {
    let mut node = nvm();
    // One line of each eighth page: the same bank, another row each time.
    let counters = run(&mut node, (0..1000).map(|n| ((8 * n + 3) * LINES, true)));
    let banks = &node.bank_counters()[0];
    let written = counters.writes;
    assert!(written > 900, "{counters:?}");
    let expected = BankCounters { reads: 0, writes: written, row_conflicts: written - 1, activates: written };
    for (number, bank) in banks.iter().enumerate() {
        assert_eq!(*bank, if number == 3 { expected } else { BankCounters::default() }, "bank {number}");
    }
}

#[test]
fn banks_add_up_to_their_node() {
    let mut node = nvm();
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let counters = run(&mut node, (0..20_000).map(|n| (scattered(n), n % 3 == 0)));
    let banks = node.bank_counters();
    assert_eq!((banks.len(), banks[0].len()), (1, 8));
    let sum = banks.iter().flatten().copied().fold(BankCounters::default(), BankCounters::plus);
    let Counters { reads, writes, row_conflicts, activates, .. } = counters;
    assert_eq!(sum, BankCounters { reads, writes, row_conflicts, activates });
    assert!(banks[0].iter().all(|bank| bank.reads > 1000 && bank.writes > 500));
}

#[test]
fn energy_by_cause_adds_up() {
    let mut node = nvm();
    let energy = machine().nodes[1].energy;
    let counters = run(&mut node, (0..300).map(|n| (n * LINES, n < 100)));
    let time = Time::from_ms(2);
    let causes = counters.energy(&energy, time);
    assert_eq!(causes.read_nj, counters.reads as f64 * 23.293);
    assert_eq!(causes.write_nj, counters.writes as f64 * 57.686);
    assert!((causes.standby_nj - 0.002 * 584.764e6).abs() < 1e-3);
    assert_eq!(causes.total_nj(), counters.energy_nj(&energy, time));
    let of_banks: f64 = node.bank_counters()[0].iter().map(|bank| bank.dynamic_nj(&energy)).sum();
    assert!((of_banks - causes.dynamic_nj()).abs() < 1e-6);
}

#[test]
fn pages_are_in_one_bank_if_the_map_leaves_them_whole() {
    let map = |text: &str| {
        let dram = machine().nodes[1].dram.clone().expect("a dram node");
        let channels = if text.contains("channel") { 2 } else { 1 };
        AddressMap::new(&memtide_core::machine::Dram { address_map: text.into(), channels, ..dram })
    };
    assert_eq!(map("row|bank|column").locate_page(21), Some((0, Some(5))));
    assert_eq!(map("row|channel|bank|column").locate_page(21), Some((0, Some(5))));
    assert_eq!(map("row|channel|bank|column").locate_page(13), Some((1, Some(5))));
    assert_eq!(map("row|channel|column:3|bank|column:3").locate_page(13), Some((1, None)));
    assert_eq!(map("row|bank|column:3|channel|column:3").locate_page(13), None);
}
