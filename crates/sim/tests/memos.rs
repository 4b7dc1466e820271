//! Page samples, frames of a wished colour and bank, and the policies `memos` and `vertical` on them.

use crate::runs;
use memtide_core::machine::bundled;
use memtide_core::{Access, Batch, Machine, PAGE_BYTES, PageSize};

use crate::runs::{job, simulate, try_jobs};
use crate::support::{Script, alone, doing, follow, load, map, mixed, store, touch};

/// memos' machine at a quarter of its size: 4 page colours.
fn memos() -> Machine {
    Machine { scale: 4, ..bundled::machine("memos").unwrap().unwrap() }
}

/// Fewer than the cache holds: pages of a larger program that accesses all alike would count as streaming.
const PAGES: u64 = 400;

/// Stores to two pages of four and loads from the others, at random.
fn written_and_read() -> Script {
    let access = |n: u64| {
        let bits = mixed(n);
        let page = bits % PAGES;
        let at = page * PAGE_BYTES + (bits >> 32) % (PAGE_BYTES / 64) * 64;
        if page % 4 < 2 { Access { producer: 1, ..store(at) } } else { follow(at) }
    };
    let rounds = (0..60u64).map(|round| doing((0..50_000).map(|n| access(round * 50_000 + n))));
    alone([map(0, PAGES * PAGE_BYTES, PageSize::Base), touch(0, PAGES)].into_iter().chain(rounds))
}

const SHORT: &str = "sampling_ms=1,samplings=10,reads=stay";

#[test]
fn written_pages_end_on_dram_and_read_pages_on_nvm() {
    let machine = memos();
    let after = simulate(&machine, &format!("interleave+memos:{SHORT}"), written_and_read());
    assert_eq!([after.nodes[0].pages, after.nodes[1].pages], [PAGES / 2; 2], "{:?}", after.pages);
    let to_nvm = after.pages.moves.iter().find(|moves| moves.from.0 == 0 && moves.to.0 == 1);
    assert!(to_nvm.is_some_and(|moves| moves.pages >= PAGES / 4), "{:?}", after.pages.moves);
}

#[test]
fn sampling_costs_an_entry_s_walk_each() {
    let mut machine = memos();
    let cost = |machine: &Machine| {
        let report = simulate(machine, "interleave+memos:sampling_ms=10,samplings=2", written_and_read());
        (report.spent.kernel_threads_ms, report.time_ms)
    };
    machine.kernel.walk_entry_ns = 0.0;
    let (free, _) = cost(&machine);
    machine.kernel.walk_entry_ns = 100.0;
    let (walked, time_ms) = cost(&machine);
    // A quarter of 10 ms between two walks over all entries.
    let expected_ms = time_ms / 2.5 * PAGES as f64 * 100e-6;
    runs::assert_near(walked - free, expected_ms, 0.3, "time of the walks");
}

/// Loads at random from a working set of half the cache, and loads of lines in sequence.
fn friendly() -> Script {
    let pages = 256;
    let access = |n: u64| follow(mixed(n) % (pages * PAGE_BYTES / 64) * 64);
    let rounds = (0..10u64).map(|round| doing((0..60_000).map(|n| access(round * 60_000 + n))));
    alone([map(0, pages * PAGE_BYTES, PageSize::Base), touch(0, pages)].into_iter().chain(rounds))
}

fn streaming() -> Script {
    let pages = 8192;
    let lines = pages * PAGE_BYTES / 64;
    let round = |round: u64| doing((0..300_000).map(|n| load((round * 300_000 + n) % lines * 64)));
    let rounds: Vec<Batch> = (0..12).map(round).collect();
    alone([map(0, pages * PAGE_BYTES, PageSize::Base)].into_iter().chain(rounds))
}

/// Time of the friendly program beside the streaming one, in ms.
fn beside_stream(policy: &str) -> f64 {
    let jobs = vec![job(friendly(), &[0]), job(streaming(), &[1])];
    let report = try_jobs(&memos(), policy, jobs).unwrap();
    report.program_times_ms[0]
}

#[test]
fn vertical_parts_protect_a_program_from_one_that_streams() {
    let shared = beside_stream("interleave");
    let divided = beside_stream("interleave+vertical:epoch_ms=2,bank_bits=0,cache_bits=1");
    assert!(divided < shared * 0.95, "{divided} instead of {shared} ms");
}
