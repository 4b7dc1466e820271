//! Applications' messages, isolated memory, and the policy `pms` on them.

use crate::runs;
use memtide_core::policy::MessageKind;
use memtide_core::{Access, Machine, PAGE_BYTES, PageSize, Then, Vpn};
use memtide_sim::{Report, run_shared};

use crate::runs::simulate;
use crate::support::{MachineText, Script, after, alone, doing, follow, map, store};

/// 16 MiB of local memory, and as much that is isolated.
fn machine() -> Machine {
    let text = MachineText::new("").last_level(64, 2).socket("s", 2);
    let text = text.node("local", 0, "s", 16, 90.0, 20_000.0).node("remote", 1, "s", 16, 900.0, 2_000.0);
    let mut machine = text.machine();
    machine.nodes[1].isolated = true;
    machine
}

/// Base pages of a program's two buffers, which follow each other, and its rounds over both.
const BUFFER: u64 = 100;

fn says(kind: MessageKind) -> memtide_core::Batch {
    after([], Then::Message(kind))
}

/// Stores to both buffers, messages, and reads of both for some ms.
fn program(messages: &[MessageKind], later: &[MessageKind]) -> Script {
    let reads = || doing((0..40_000).map(|n| follow(n % (2 * BUFFER) * PAGE_BYTES)));
    let touched = doing((0..2 * BUFFER).map(|page| store(page * PAGE_BYTES)));
    let start = [map(0, 2 * BUFFER * PAGE_BYTES, PageSize::Base), touched];
    let messages = messages.iter().map(|kind| says(*kind));
    let later = later.iter().map(|kind| says(*kind));
    alone(start.into_iter().chain(messages).chain([reads()]).chain(later).chain([reads()]))
}

/// Pages moved away, and back.
fn moved(report: &Report) -> [u64; 2] {
    [(0, 1), (1, 0)].map(|(from, to)| {
        let of = report.pages.moves.iter().filter(|of| (of.from.0, of.to.0) == (from, to));
        of.map(|of| of.pages).sum()
    })
}

const REGISTER: MessageKind = MessageKind::Register { priority: 1 };
const FIRST: Vpn = Vpn(0);
const SECOND: Vpn = Vpn(BUFFER);

fn send(start: Vpn) -> MessageKind {
    MessageKind::Send { start, pages: BUFFER }
}

/// All of local memory but 1 % must be free, so that what may leave does.
const ALL_LEAVES: &str = "local+pms:migrate=100,return=100,epoch_ms=1";

#[test]
fn nothing_is_allocated_on_isolated_memory() {
    let plain = || program(&[], &[]);
    for policy in ["local", "interleave", "ratio", "bw-random"] {
        let report = simulate(&machine(), policy, plain());
        assert_eq!(report.nodes[1].pages, 0, "{policy}");
    }
    // 5,000 pages where local memory has 4,096: they are swapped, though as many are free.
    let large = alone([
        map(0, 5000 * PAGE_BYTES, PageSize::Base),
        doing((0..5000).map(|page| store(page * PAGE_BYTES))),
    ]);
    let report = simulate(&machine(), "local", large);
    assert_eq!(report.nodes[1].pages, 0);
    assert!(report.pages.swapped_out > 900, "{}", report.pages.swapped_out);
}

/// Stores to 2 MiB behind a link of 200 MB/s, line after line, alone or in one pass of several policies.
fn overwriting(policies: &[&str]) -> Vec<Report> {
    let text = MachineText::new("").last_level(64, 2).socket("s", 2);
    let text = text.node("local", 0, "s", 16, 90.0, 20_000.0).node("far", 1, "", 16, 90.0, 20_000.0);
    let mut machine = text.link("s", "far", 1000.0, 200.0).machine();
    machine.core.write_streaming_lines = 3;
    let stores = || doing((0..(2 << 20) / 16).map(|n| Access { size: 16, ..store(n * 16) }));
    let script = || alone([map(0, 2 << 20, PageSize::Base), stores(), stores()]);
    match policies {
        [one] => vec![simulate(&machine, one, script())],
        several => {
            let policies = several.iter().map(|name| runs::policy(&machine, name)).collect();
            let jobs = vec![runs::job(script(), &[])];
            run_shared(&machine, jobs, policies, 1, &|_, _| true)
                .into_iter()
                .map(|report| report.expect("it runs"))
                .collect()
        }
    }
}

#[test]
fn overwritten_lines_wait_for_the_link() {
    let lines = f64::from(2 * (2 << 20) / 64);
    let alone = overwriting(&["bind:node=far"]).remove(0);
    assert_eq!(alone.nodes[1].reads, 6, "the first three lines of each run are fetched");
    assert!(alone.links[0].forward_share <= 1.01, "{}", alone.links[0].forward_share);
    runs::assert_near(alone.time_ms, lines * 64.0 / 200e3, 0.05, "time of the lines on the link");
    let near = overwriting(&["bind:node=local"]).remove(0);
    assert!(near.time_ms < alone.time_ms / 10.0, "{}", near.time_ms);
    let both = overwriting(&["bind:node=far", "bind:node=local"]);
    for (one_pass, alone) in both.iter().zip([alone, near]) {
        runs::assert_near(one_pass.time_ms, alone.time_ms, 0.01, "in one pass");
    }
}

#[test]
fn only_sent_buffers_leave() {
    let report = simulate(&machine(), ALL_LEAVES, program(&[REGISTER, send(SECOND)], &[]));
    assert_eq!(moved(&report), [BUFFER, 0]);
    assert_eq!(report.nodes[1].pages, BUFFER);
    let unsent = simulate(&machine(), ALL_LEAVES, program(&[REGISTER], &[]));
    assert_eq!(moved(&unsent), [0, 0]);
    let unregistered = simulate(&machine(), ALL_LEAVES, program(&[send(FIRST)], &[]));
    assert_eq!(moved(&unregistered), [0, 0]);
}

#[test]
fn pages_leave_no_faster_than_the_link_carries_them() {
    let text = MachineText::new("").last_level(64, 2).socket("s", 2);
    let text = text.node("local", 0, "s", 16, 90.0, 20_000.0).node("far", 1, "", 16, 90.0, 20_000.0);
    let machine = text.link("s", "far", 100.0, 50.0).machine();
    let touched = doing((0..2 * BUFFER).map(|page| store(page * PAGE_BYTES)));
    // Reads of the buffer that stays, which end long before the link has carried the other one, in 8.2 ms.
    let reads = doing((0..30_000).map(|n| follow(n % BUFFER * PAGE_BYTES)));
    let start =
        [map(0, 2 * BUFFER * PAGE_BYTES, PageSize::Base), touched, says(REGISTER), says(send(SECOND))];
    let report = simulate(&machine, ALL_LEAVES, alone(start.into_iter().chain([reads])));
    let link = &report.links[0];
    assert!((0.3..=1.01).contains(&link.forward_share), "{link:?}");
    let carried = report.time_ms * link.forward_mbps * 1e3 / PAGE_BYTES as f64;
    assert!(
        moved(&report)[0] as f64 <= carried + 1.0 && moved(&report)[0] > 5,
        "{carried}: {:?}",
        moved(&report)
    );
}

#[test]
fn locked_buffer_comes_home() {
    let messages = [REGISTER, send(FIRST), send(SECOND)];
    let report = simulate(&machine(), ALL_LEAVES, program(&messages, &[MessageKind::Lock { start: FIRST }]));
    assert_eq!(moved(&report), [2 * BUFFER, BUFFER]);
    assert_eq!(report.nodes[1].pages, BUFFER);
}

#[test]
fn buffer_stays_where_it_is_after_its_release_and_cleanup() {
    let messages = [REGISTER, send(FIRST), send(SECOND)];
    let after = [MessageKind::Release { start: FIRST }, MessageKind::Cleanup];
    let report = simulate(&machine(), ALL_LEAVES, program(&messages, &after));
    assert_eq!(moved(&report), [2 * BUFFER, 0]);
}
