//! The policy's epochs: moves, status, the time of the next epoch, the log.

use std::time::Instant;

use memtide_core::policy::{Delivery, Event, Migration, Plan, Sensors, View, Wake};
use memtide_core::{NodeId, Time};

use super::bench::{Bench, Settings, me};
use super::fake::Clock;

const SLOW: NodeId = NodeId(1);

#[test]
fn hot_pages_are_promoted_and_status_counts_them() {
    let bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 100, SLOW);
    bench.world().heat(task, 10..40);
    let running = bench.run();
    let moves = [("nvm".to_owned(), "dram".to_owned(), 30)];
    let shows = |status: &crate::status::Status| {
        status.moved == moves && status.processes[0].pages.as_deref() == Some(&[30, 70])
    };
    let status = running.until("30 pages are promoted", shows);
    assert_eq!(running.world().footprint(task), [30, 70]);
    let process = &status.processes[0];
    assert_eq!((process.pid, process.name.as_str(), process.uid), (4_000_001, "program4000001", me()));
    assert_eq!(process.moved_pages, 30);
    let sensors: Vec<_> = status.sensors.iter().map(|(name, answer)| format!("{name}: {answer}")).collect();
    assert!(sensors.len() == 2 && sensors[0].contains("set by the test"), "{sensors:?}");
    assert!(sensors[1].contains("the test counts no traffic"), "{sensors:?}");
    let memory: Vec<_> = status.nodes.iter().map(|node| (node.name.as_str(), node.memory)).collect();
    assert_eq!(memory, [("dram", Some((16, 15))), ("nvm", Some((16, 15)))]);
    assert!(status.nodes.iter().all(|node| node.traffic_mbps.is_none()), "{status:?}");
    assert!(status.troubles.is_empty() && status.refused.is_empty(), "{status:?}");
    running.stop();
}

#[test]
fn cancelled_moves_are_not_counted_as_moved() {
    let mut bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 4, SLOW);
    bench.world().start(4_000_002, me(), 4, SLOW);
    bench.world().host.action_time = Time::from_ms(1000);
    bench.world().heat(task, 0..4);
    bench.epochs(4);
    bench.world().end(4_000_001);
    bench.epochs(2);
    let status = bench.status();
    assert!(status.moved.is_empty(), "{status:?}");
    assert_eq!(status.refused.get("task-ended"), Some(&4), "{status:?}");
}

#[test]
fn dry_run_moves_nothing_and_logs_each_move_once() {
    let mut bench = Bench::new(&Settings::with("dry_run = true"));
    let task = bench.world().start(4_000_001, me(), 64, SLOW);
    bench.world().heat(task, 0..32);
    bench.epochs(10);
    let would: Vec<_> = bench.logged().into_iter().filter(|line| line.starts_with("would move")).collect();
    assert_eq!(would.len(), 1, "{would:?}");
    assert!(would[0].contains("32 pages"), "{would:?}");
    assert_eq!(bench.world().footprint(task), [0, 64]);
    let status = bench.status();
    assert!(status.dry_run && status.moved.is_empty(), "{status:?}");
    assert!(status.refused.values().sum::<u64>() >= 32, "{status:?}");
}

#[test]
fn own_memory_stays_on_the_fastest_tier_where_there_is_another() {
    for (machine, expected) in [("hinuma", vec![vec![NodeId(4)]; 2]), ("bmpm-1", vec![])] {
        let settings = Settings { machine, nodes: &[4, 2], ..Settings::default() };
        let mut bench = Bench::new(&settings);
        bench.world().start(4_000_001, me(), 4, SLOW);
        bench.epochs(33);
        assert_eq!(bench.world().own_memory, expected, "{machine}");
    }
}

#[test]
fn repeated_trouble_is_logged_once() {
    let mut bench = Bench::new(&Settings::default());
    for epoch in 0..6 {
        bench.world().troubles.push("the monitor lost events".to_owned());
        if epoch == 3 {
            bench.world().troubles.push("another trouble".to_owned());
        }
        bench.epochs(1);
    }
    assert_eq!(bench.logged(), ["the monitor lost events", "another trouble"]);
    let troubles = bench.status().troubles;
    let what: Vec<_> = troubles.iter().map(|trouble| trouble.what.as_str()).collect();
    assert_eq!(what, ["another trouble", "the monitor lost events"], "the latest comes last");
    assert!(troubles[1].seconds_ago < troubles[0].seconds_ago, "{troubles:?}");
}

#[test]
fn unwatched_system_is_reported_once() {
    let bench = Bench::new(&Settings::default());
    bench.world().clock = Clock::Epochs(Time::from_ms(7000));
    let running = bench.run();
    let begun = running.world().now();
    running.until("6 s pass", |_| running.world().now().since(begun) > Time::from_ms(30_000));
    let logged = running.stop().logged();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with("no process is watched yet"), "{logged:?}");
}

/// A policy that moves nothing, and requests wake-ups after these times, then none.
struct Sleeper(Vec<Time>);

impl Migration for Sleeper {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, Time::from_ms(1))
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, _: &View, _: &mut Plan) -> Wake {
        self.0.pop().map_or(Wake::Never, Wake::After)
    }
}

#[test]
fn policy_is_woken_no_sooner_than_requested() {
    let wakes_ms = [10, 200, 20, 5, 100];
    let mut bench = Bench::new(&Settings::default());
    bench.world().start(4_000_001, me(), 1, SLOW);
    let wakes = wakes_ms.iter().rev().map(|&ms| Time::from_ms(ms)).collect();
    bench.daemon.runner.set_policy(Box::new(Sleeper(wakes)));
    bench.world().clock = Clock::Since(Instant::now());
    let running = bench.run();
    running.until("the policy asks for all its wakes", |status| status.epochs as usize > wakes_ms.len());
    let observed = running.stop().world().observed.clone();
    let mut due = Time::ZERO;
    for (at, (&observed, wake_ms)) in observed[1..].iter().zip(wakes_ms).enumerate() {
        due += Time::from_ms(wake_ms);
        assert!(observed >= due, "epoch {}: at {observed}, due at {due}", at + 1);
    }
}
