//! `memtide migrate` through the daemon.

use std::io::Write;
use std::os::unix::net::UnixStream;

use memtide_core::policy::Refusal;
use memtide_core::{NodeId, PAGE_BYTES, Time};

use super::bench::{Bench, Settings, me, migrate, moved_bytes, progress};
use super::fake::{Clock, NODE_PAGES};
use crate::control::Reply;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const PID: i32 = 4_000_001;

/// Settings of a daemon that only moves pages on users' requests.
fn without_policy() -> Settings {
    Settings { policy: "none".to_owned(), ..Settings::with("max_rate_mbps = 100000") }
}

#[test]
fn migrate_moves_all_pages_of_a_process_and_replies_with_a_tally() {
    let bench = Bench::new(&Settings::with("max_rate_mbps = 100000"));
    let task = bench.world().start(PID, me(), 2000, FAST);
    let other = bench.world().start(PID + 1, me(), 10, FAST);
    let running = bench.run();
    let done = progress(&running.ask(&migrate(PID, "0", "2")));
    let tally = done.tally;
    assert_eq!((tally.seen_pages, tally.found_pages, tally.moved_pages), (2000, 2000, 2000));
    assert!(tally.refused_pages.is_empty() && done.share == 1.0, "{tally:?}");
    assert_eq!(running.world().footprint(task), [0, 2000]);
    assert_eq!(running.world().footprint(other), [10, 0]);
    let status = running.status();
    assert_eq!(status.moved, [("dram".to_owned(), "nvm".to_owned(), 2000)]);
    assert!(running.world().requested.is_empty(), "the request is over");
    running.stop();
}

#[test]
fn tally_counts_moves_that_complete_later() {
    let mut bench = Bench::new(&Settings::with("max_rate_mbps = 100000"));
    let task = bench.world().start(PID, me(), 600, FAST);
    let second = bench.world().start(PID + 1, me(), 600, FAST);
    bench.world().host.action_time = Time::from_ms(1);
    let first = bench.send(0, migrate(PID, "0", "2"));
    let other = bench.send(0, migrate(PID + 1, "0", "2"));
    let (_, last) = bench.finish(&first, |_| ());
    assert_eq!(progress(&last).tally.moved_pages, 600);
    let (_, last) = bench.finish(&other, |_| ());
    assert_eq!(progress(&last).tally.moved_pages, 600);
    for task in [task, second] {
        assert_eq!(bench.world().footprint(task), [0, 600]);
    }
}

#[test]
fn rate_limited_migrate_reports_progress() {
    let mut bench = Bench::new(&Settings::with("max_rate_mbps = 1"));
    bench.world().start(PID, me(), 500, FAST);
    let replies = bench.send(0, migrate(PID, "0", "2"));
    // At most 25 pages every 20 ms, and a report every 200 ms.
    let (reports, last) = bench.finish(&replies, |_| ());
    assert!(!reports.is_empty() && reports[0].tally.moved_pages < 500, "{reports:?}");
    assert!(reports.is_sorted_by_key(|report| report.tally.moved_pages), "{reports:?}");
    assert_eq!(progress(&last).tally.moved_pages, 500);
}

#[test]
fn migrate_and_policy_share_one_rate() {
    let rate_mbps = 1.0;
    let mut bench = Bench::new(&Settings::with(&format!("max_rate_mbps = {rate_mbps}")));
    bench.world().clock = Clock::Epochs(Time::from_ms(60));
    let leaves = bench.world().start(PID, me(), 300, FAST);
    let hot = bench.world().start(PID + 1, me(), 200, SLOW);
    bench.world().heat(hot, 0..200);
    let replies = bench.send(0, migrate(PID, "0", "2"));
    let mut both = false;
    let (_, last) = bench.finish(&replies, |bench| {
        let (status, now) = (bench.status(), bench.world().now());
        // Up to 100 ms of credit accumulates, and one page may exceed it.
        let allowed = (now + Time::from_ms(100)).as_seconds() * rate_mbps * 1e6 + PAGE_BYTES as f64;
        assert!(moved_bytes(&status) as f64 <= allowed, "{} > {allowed}", moved_bytes(&status));
        both |= status.moved.len() == 2;
    });
    assert!(both, "only one of them moved pages");
    assert_eq!(progress(&last).tally.moved_pages, 300);
    assert_eq!(bench.world().footprint(leaves), [0, 300]);
}

#[test]
fn second_migrate_of_a_process_is_refused() {
    let mut bench = Bench::new(&Settings::default());
    bench.world().start(PID, me(), 100, FAST);
    let first = bench.send(0, migrate(PID, "0", "2"));
    let second = bench.ask(0, migrate(PID, "0", "2"));
    assert!(matches!(&second, Reply::Refused(why) if why.contains("already")), "{second:?}");
    let (_, last) = bench.finish(&first, |_| ());
    assert_eq!(progress(&last).tally.moved_pages, 100);
    let again = bench.send(0, migrate(PID, "2", "0"));
    let (_, last) = bench.finish(&again, |_| ());
    assert_eq!(progress(&last).tally.moved_pages, 100, "admitted once the first has ended");
}

#[test]
fn root_migrates_while_many_users_do() {
    let mut bench = Bench::new(&Settings::with("max_rate_mbps = 1"));
    let users: Vec<i32> = (1..=8).collect();
    let begun: Vec<bool> = users
        .iter()
        .map(|&user| {
            bench.world().start(PID + user, 4_000_000 + user as u32, 100, FAST);
            let replies = bench.send(4_000_000 + user as u32, migrate(PID + user, "0", "2"));
            !matches!(replies.try_recv(), Ok(Reply::Refused(_)))
        })
        .collect();
    assert_eq!(begun, [true, true, true, true, true, true, true, false]);
    bench.world().start(PID, me(), 4, FAST);
    let replies = bench.send(0, migrate(PID, "0", "2"));
    let (_, last) = bench.finish(&replies, |_| ());
    assert_eq!(progress(&last).tally.moved_pages, 4);
}

#[test]
fn client_disconnect_ends_its_migration() {
    let bench = Bench::new(&Settings::with("max_rate_mbps = 1"));
    let task = bench.world().start(PID, me(), 3000, FAST);
    let running = bench.run();
    let mut client = UnixStream::connect(running.socket()).expect("a connection");
    let mut request = serde_json::to_vec(&migrate(PID, "0", "2")).expect("text");
    request.push(b'\n');
    client.write_all(&request).expect("a request");
    running.until("the migration begins", |_| !running.world().requested.is_empty());
    drop(client);
    running.until("the migration ends", |_| running.world().requested.is_empty());
    assert!(running.world().footprint(task)[0] > 0, "it ended before all had moved");
    running.stop();
}

#[test]
fn pages_without_free_memory_go_to_next_node() {
    let mut bench = Bench::new(&Settings { machine: "ddr5-cxl", nodes: &[0, 1, 2], ..without_policy() });
    let task = bench.world().start(PID, me(), 1000, NodeId(2));
    bench.world().start(PID + 1, me(), NODE_PAGES - 300, FAST);
    let replies = bench.send(0, migrate(PID, "2", "0,1"));
    let (_, last) = bench.finish(&replies, |_| ());
    let tally = progress(&last).tally;
    assert_eq!((tally.moved_pages, tally.refused_pages.len()), (1000, 0), "{tally:?}");
    assert_eq!(bench.world().footprint(task), [300, 700, 0]);
}

#[test]
fn pages_without_free_memory_anywhere_are_refused() {
    let mut bench = Bench::new(&without_policy());
    let task = bench.world().start(PID, me(), 100, SLOW);
    bench.world().start(PID + 1, me(), NODE_PAGES - 30, FAST);
    let replies = bench.send(0, migrate(PID, "2", "0"));
    let (_, last) = bench.finish(&replies, |_| ());
    let tally = progress(&last).tally;
    assert_eq!((tally.moved_pages, tally.refused_pages.get(&Refusal::NoRoom)), (30, Some(&70)), "{tally:?}");
    assert_eq!(bench.world().footprint(task), [30, 70]);
}

#[test]
fn process_exit_ends_its_migration() {
    let mut bench = Bench::new(&Settings::with("max_rate_mbps = 1"));
    bench.world().start(PID, me(), 3000, FAST);
    let replies = bench.send(0, migrate(PID, "0", "2"));
    bench.daemon.step_transfers();
    bench.world().end(PID);
    let (_, last) = bench.finish(&replies, |_| ());
    assert!(matches!(&last, Reply::Refused(why) if why.contains("4000001: it has ended")), "{last:?}");
    assert!(bench.world().requested.is_empty());
}

#[test]
fn invalid_requests_are_refused() {
    let mut bench = Bench::new(&Settings::default());
    bench.world().start(PID, me(), 4, FAST);
    for (pid, from, to, part) in [
        (PID, "0", "1", "to:"),
        (PID, "0", "0,2", "both name node 0"),
        (PID, "x", "2", "from:"),
        (PID + 7, "0", "2", "does not exist"),
        (-1, "0", "2", "does not exist"),
        (rustix::process::getpid().as_raw_nonzero().get(), "0", "2", "own pages"),
    ] {
        let reply = bench.ask(0, migrate(pid, from, to));
        assert!(matches!(&reply, Reply::Refused(why) if why.contains(part)), "{part}: {reply:?}");
    }
    let mut dry = Bench::new(&Settings::with("dry_run = true"));
    dry.world().start(PID, me(), 4, FAST);
    let reply = dry.ask(0, migrate(PID, "0", "2"));
    assert!(matches!(&reply, Reply::Refused(why) if why.contains("dry run")), "{reply:?}");
}
