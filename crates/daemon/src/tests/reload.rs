//! Configuration reload at run time.

use memtide_core::NodeId;

use super::bench::{Bench, POLICY, Settings, me};
use crate::journal::replay::replay;

const SLOW: NodeId = NodeId(1);
const OTHER: &str = "hot-cold:epoch_ms=40:sampling_us=1000:cold_epochs=10000:write_weight=2";

fn other_policy(more: &str) -> Settings {
    Settings { policy: OTHER.to_owned(), ..Settings::with(more) }
}

#[test]
fn wrong_file_keeps_old_configuration_and_reports_why() {
    let mut bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 10, SLOW);
    bench.epochs(2);
    for (wrong, part) in [
        (Settings::with("max_rate_mbps = 0"), "max_rate_mbps"),
        (Settings::with("no_such_key = 1"), "no_such_key"),
        (Settings { policy: "hot-colt".to_owned(), ..Settings::default() }, "hot-cold"),
        (Settings { machine: "laptop", ..Settings::default() }, "memory nodes"),
        (Settings { policy: "anb".to_owned(), ..Settings::default() }, "in the kernel"),
    ] {
        bench.reload(&wrong);
        let status = bench.status();
        assert_eq!(status.policy, POLICY);
        let trouble = &status.troubles.last().expect("a trouble").what;
        assert!(
            trouble.starts_with("the old configuration stays in effect: ") && trouble.contains(part),
            "{trouble}"
        );
        assert_eq!(bench.logged().last(), Some(trouble));
    }
    let wrong = Settings::with("stall_ms = 0");
    bench.reload(&wrong);
    let logged = bench.logged().len();
    bench.reload(&wrong);
    assert_eq!(bench.logged().len(), logged + 1, "each reload that fails is reported");
    assert!(bench.world().sensors_set.is_empty(), "the sensors are as before");
    bench.world().heat(task, 0..10);
    bench.epochs(4);
    assert_eq!(bench.world().footprint(task), [10, 0], "the old policy goes on");
    bench.reload(&Settings::default());
    assert!(bench.status().troubles.is_empty(), "forgotten once a reload succeeds");
}

#[test]
fn other_policy_begins_journal_part_and_same_one_does_not() {
    let mut bench = Bench::new(&Settings::with("journal = 'journal'"));
    bench.world().start(4_000_001, me(), 10, SLOW);
    bench.epochs(3);
    bench.reload(&Settings::with("journal = 'journal'\nmax_rate_mbps = 7"));
    bench.epochs(2);
    bench.reload(&other_policy("journal = 'journal'"));
    bench.epochs(4);
    assert_eq!(bench.status().policy, OTHER);
    let bytes = std::fs::read(bench.file("journal")).expect("a journal");
    let replayed = replay(&bytes, None).expect("a journal that replays");
    let parts: Vec<_> = replayed.parts.iter().map(|part| (part.policy.as_str(), part.epochs)).collect();
    assert_eq!(parts, [(POLICY, 5), (OTHER, 4)]);
    assert_eq!(replayed.difference, None);
}

#[test]
fn refused_sensors_restore_old_ones() {
    let mut bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 10, SLOW);
    bench.epochs(2);
    bench.world().sensor_failures = 1;
    bench.reload(&other_policy(""));
    assert_eq!(bench.world().sensors_set.len(), 2, "the new ones, then the old ones");
    let status = bench.status();
    assert_eq!(status.policy, POLICY);
    let trouble = &status.troubles[0].what;
    assert!(trouble.contains("the test refuses it") && !trouble.contains("as before"), "{trouble}");
    bench.world().heat(task, 0..10);
    bench.epochs(4);
    assert_eq!(bench.world().footprint(task), [10, 0], "the old policy goes on");
    bench.world().sensor_failures = 2;
    bench.reload(&other_policy(""));
    let troubles = bench.status().troubles;
    assert!(troubles.last().is_some_and(|trouble| trouble.what.contains("the previous monitor failed too")));
    bench.reload(&other_policy(""));
    assert_eq!(bench.status().policy, OTHER, "a later reload succeeds");
}

#[test]
fn other_socket_is_refused() {
    let mut bench = Bench::new(&Settings::default());
    let file = bench.file("memtide.toml");
    let text =
        std::fs::read_to_string(&file).expect("a file").replace("socket = 'socket'", "socket = 'other'");
    std::fs::write(&file, text).expect("a file");
    bench.daemon.reload();
    let troubles = bench.status().troubles;
    assert!(troubles[0].what.contains("socket: a change"), "{troubles:?}");
}
