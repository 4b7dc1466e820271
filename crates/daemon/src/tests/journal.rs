//! A recorded journal replays to the same decisions.

use memtide_core::{NodeId, Time};

use super::bench::{Bench, POLICY, Settings, me};
use crate::journal::replay::replay;

#[test]
fn journal_replays_to_same_decisions() {
    let bench = Bench::new(&Settings::with("journal = 'journal'\nmax_rate_mbps = 20"));
    let hot = bench.world().start(4_000_001, me(), 200, NodeId(1));
    bench.world().start(4_000_002, me(), 50, NodeId(0));
    bench.world().host.action_time = Time::from_ms(3);
    bench.world().heat(hot, 0..150);
    let running = bench.run();
    running.until("some pages are promoted", |status| status.processes[0].moved_pages >= 50);
    running.world().end(4_000_001);
    running.until("the process has gone", |status| status.processes.len() == 1);
    let mut bench = running.stop();
    let epochs = bench.status().epochs;
    let bytes = std::fs::read(bench.file("journal")).expect("a journal");
    let replayed = replay(&bytes, None).expect("a journal that replays");
    assert_eq!((replayed.parts.len(), replayed.difference, replayed.torn_bytes), (1, None, 0));
    let part = &replayed.parts[0];
    assert_eq!((part.policy.as_str(), part.epochs, part.differing), (POLICY, epochs, 0));
    assert!(part.recorded_pages >= 50 && part.planned_pages == part.recorded_pages, "{part:?}");
    let other = replay(&bytes, Some("none")).expect("another policy");
    assert!(other.difference.is_some(), "another policy decides otherwise");
}
