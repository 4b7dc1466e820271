//! Clients: what they may see and control, pause and resume.

use std::sync::mpsc::TryRecvError;

use memtide_core::{NodeId, PAGE_BYTES, Time};

use super::bench::{Bench, Settings, me, migrate, status};
use super::fake::page;
use crate::End;
use crate::control::{Reply, Request};
use crate::status::Status;

const SLOW: NodeId = NodeId(1);

#[test]
fn paused_daemon_moves_nothing_until_resumed() {
    let bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 64, SLOW);
    let running = bench.run();
    running.until("the process is watched", |status| status.epochs > 2);
    assert_eq!(running.ask(&Request::Pause), Reply::Done("paused".into()));
    let epochs = running.status().epochs;
    running.world().heat(task, 0..64);
    let begun = running.world().now();
    running.until("epochs pass", |_| running.world().now().since(begun) >= Time::from_ms(200));
    let paused = running.status();
    assert!(paused.paused && paused.moved.is_empty() && paused.epochs == epochs, "{paused:?}");
    assert_eq!(running.world().footprint(task), [0, 64]);
    assert_eq!(running.ask(&migrate(4_000_001, "2", "0")), Reply::Paused);
    assert_eq!(running.ask(&Request::Resume), Reply::Done("at work".into()));
    let resumed = running.until("hot pages are promoted", |status| !status.moved.is_empty());
    assert!(!resumed.paused, "{resumed:?}");
    running.stop();
}

#[test]
fn daemon_ends_after_200_days_but_not_while_paused() {
    let running = Bench::new(&Settings::default()).run();
    assert_eq!(running.ask(&Request::Pause), Reply::Done("paused".into()));
    running.world().host.advance(Time::from_ms(200 * 24 * 3600 * 1000));
    for _ in 0..3 {
        assert!(running.status().paused);
    }
    assert_eq!(running.ask(&Request::Resume), Reply::Done("at work".into()));
    assert_eq!(running.end(), End::ClockFull);
}

#[test]
fn nodes_have_memory_before_first_epoch() {
    let mut bench = Bench::new(&Settings::default());
    let first = status(bench.ask(0, Request::Status));
    assert_eq!(first.epochs, 0);
    let memory = |status: &Status| status.nodes.iter().map(|node| node.memory).collect::<Vec<_>>();
    let before = memory(&first);
    assert!(
        !before.is_empty() && before.iter().all(|memory| memory.is_some_and(|(all, _)| all > 0)),
        "{before:?}"
    );
    bench.epochs(1);
    assert_eq!(memory(&status(bench.ask(0, Request::Status))), before);
}

#[test]
fn users_see_and_control_only_their_processes_and_root_all() {
    let mut bench = Bench::new(&Settings::default());
    let (mine, other) = (me(), me() + 1000);
    bench.world().start(4_000_001, mine, 4, SLOW);
    bench.world().start(4_000_002, other, 4, SLOW);
    bench.epochs(2);
    let mut pids = |uid| -> Vec<i32> {
        status(bench.ask(uid, Request::Status)).processes.iter().map(|process| process.pid).collect()
    };
    // A root daemon watches all processes, another user's only its own.
    let all = if mine == 0 { vec![4_000_001, 4_000_002] } else { vec![4_000_001] };
    assert_eq!(pids(0), all);
    assert_eq!(pids(mine), if mine == 0 { all.clone() } else { vec![4_000_001] });
    assert_eq!(pids(other), if mine == 0 { vec![4_000_002] } else { vec![] });
    assert_eq!(pids(other + 1), Vec::<i32>::new());
    let address = page(0).0 * PAGE_BYTES;
    let why = |pid| Request::Why { pid, address };
    assert!(matches!(bench.ask(0, why(4_000_001)), Reply::Done(_)));
    let refused = |reply: Reply| match reply {
        Reply::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    };
    let not_watched = refused(bench.ask(other + 1, why(4_000_001)));
    let gone = refused(bench.ask(other + 1, why(4_000_009)));
    assert_eq!(not_watched.replace("4000001", "4000009"), gone, "does not reveal whether it exists");
    let foreign = refused(bench.ask(other + 1, migrate(4_000_001, "2", "0")));
    let gone = refused(bench.ask(other + 1, migrate(4_000_009, "2", "0")));
    assert_eq!(foreign.replace("4000001", "4000009"), gone, "does not reveal whether it exists");
    let own = bench.send(other, migrate(4_000_002, "2", "0"));
    assert_eq!(own.try_recv(), Err(TryRecvError::Empty), "one's own process is admitted");
    let root = bench.send(0, migrate(4_000_001, "2", "0"));
    assert_eq!(root.try_recv(), Err(TryRecvError::Empty), "root's requests are admitted");
}

#[test]
fn process_that_starts_set_uid_program_becomes_roots_alone() {
    let mut bench = Bench::new(&Settings::with("max_rate_mbps = 1"));
    let user = if me() == 0 { 1000 } else { me() };
    let pid = 4_000_001;
    bench.world().start(pid, user, 3000, SLOW);
    bench.epochs(1);
    let why = || Request::Why { pid, address: page(0).0 * PAGE_BYTES };
    let seen = |bench: &mut Bench, uid| status(bench.ask(uid, Request::Status)).processes.len();
    assert_eq!(seen(&mut bench, user), 1);
    assert!(matches!(bench.ask(user, why()), Reply::Done(_)));
    let own = bench.send(user, migrate(pid, "2", "0"));
    // No epoch since then: the last view does not count.
    bench.world().start_privileged(pid);
    assert_eq!((seen(&mut bench, user), seen(&mut bench, 0)), (0, 1));
    let refused = bench.ask(user, why());
    assert!(matches!(&refused, Reply::Refused(why) if why.contains("not yours")), "{refused:?}");
    assert!(matches!(bench.ask(0, why()), Reply::Done(_)));
    let (_, last) = bench.finish(&own, |_| ());
    assert!(matches!(&last, Reply::Refused(_)), "its user's migration ends: {last:?}");
    let refused = bench.ask(user, migrate(pid, "2", "0"));
    assert!(matches!(&refused, Reply::Refused(why) if why.contains("not yours")), "{refused:?}");
    let root = bench.send(0, migrate(pid, "2", "0"));
    assert_eq!(root.try_recv(), Err(TryRecvError::Empty), "root's request is admitted");
}

#[test]
fn only_root_and_daemon_user_pause_it() {
    let mut bench = Bench::new(&Settings::default());
    let other = me() + 1000;
    for request in [Request::Pause, Request::Resume] {
        let reply = bench.ask(other, request.clone());
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("only root")), "{reply:?}");
        assert!(matches!(bench.ask(0, request.clone()), Reply::Done(_)));
        assert!(matches!(bench.ask(me(), request), Reply::Done(_)));
    }
}

#[test]
fn troubles_are_shown_to_root_and_daemon_user_alone() {
    let mut bench = Bench::new(&Settings::default());
    bench.world().troubles.push("a sensor failed".to_owned());
    bench.epochs(1);
    let mut shown = |uid| status(bench.ask(uid, Request::Status)).troubles.len();
    assert_eq!((shown(0), shown(me()), shown(me() + 1000)), (1, 1, 0));
}

#[test]
fn why_shows_last_decision_on_a_page() {
    let mut bench = Bench::new(&Settings::default());
    let task = bench.world().start(4_000_001, me(), 8, SLOW);
    bench.world().heat(task, 0..4);
    bench.epochs(6);
    let mut why = |at: u64| {
        let address = page(at).0 * PAGE_BYTES + 8;
        match bench.ask(0, Request::Why { pid: 4_000_001, address }) {
            Reply::Done(value) => serde_json::from_value::<crate::status::Why>(value).expect("a reason"),
            other => panic!("no reason: {other:?}"),
        }
    };
    let hot = why(1);
    let last = hot.last.expect("a decision");
    assert_eq!((hot.node.as_deref(), last.from.as_str(), last.to.as_str()), (Some("dram"), "nvm", "dram"));
    assert_eq!(last.refused, None);
    let idle = why(6);
    assert!(idle.node.as_deref() == Some("nvm") && idle.last.is_none(), "{idle:?}");
    assert_eq!(idle.region.map(|(start, pages, ..)| (start, pages)), Some((page(6).0 * PAGE_BYTES, 1)));
}
