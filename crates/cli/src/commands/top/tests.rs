use memtide_core::policy::Answer;
use memtide_daemon::status::{NodeStatus, RecentMoves, Status, WatchedProcess};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::screen::{Order, Screen, text};
use super::*;

/// A status after some epochs, of which each moved 1,000 pages up; `fast` is the share of accesses on DRAM.
fn status(epochs: u64, fast: f64) -> Status {
    let node = |name: &str, tier, free, accesses| NodeStatus {
        name: name.to_owned(),
        tier,
        memory: Some((1024, free)),
        traffic_mbps: None,
        accesses_percent: Some(accesses),
    };
    let process = |pid: i32, name: &str, resident_mib, moved_pages, fast: f64| WatchedProcess {
        pid,
        name: name.to_owned(),
        uid: 0,
        resident_mib,
        moved_pages,
        pages: Some(vec![3, 1]),
        accesses_percent: Some(vec![fast, 100.0 - fast]),
    };
    let moves = |refused: Option<&str>| RecentMoves {
        pid: 71,
        name: "redis-server".to_owned(),
        from: "cxl".to_owned(),
        to: "dram".to_owned(),
        reason: "hot".to_owned(),
        refused: refused.map(str::to_owned),
        pages: 1000,
        seconds_ago: 1.0,
    };
    Status {
        pid: 7,
        config: None,
        policy: "relative-heat".to_owned(),
        monitor: Some("damon".to_owned()),
        why_not_better: None,
        tells_writes: false,
        sensors: vec![("access-samples".to_owned(), Answer::Observed("one of 64".to_owned()))],
        paused: false,
        dry_run: false,
        epochs,
        uptime_s: epochs as f64 / 2.0,
        processor_s: Some(0.3),
        journal: None,
        nodes: vec![node("dram", 0, 256, fast), node("cxl", 1, 1024, 100.0 - fast)],
        moved: vec![("cxl".to_owned(), "dram".to_owned(), epochs * 1000)],
        refused: [("cooling".to_owned(), 1)].into(),
        recent: vec![moves(None), moves(Some("cooling"))],
        troubles: Vec::new(),
        processes: vec![process(72, "small", 20, 9, 1.0), process(71, "redis-server", 300, 4, 95.0)],
    }
}

fn screen(shown: &[Status]) -> Screen<'_> {
    Screen { shown, newer: 0, is_live: true, is_stopped: false, order: Order::Resident, error: None }
}

fn top(statuses: Vec<Status>) -> Top {
    let at = statuses.len() - 1;
    let (order, interval) = (Order::Resident, Duration::from_secs(1));
    Top { source: Source::Journal, interval, statuses, at, is_stopped: false, order, error: None }
}

#[test]
fn narrow_screen_shows_everything_in_80_columns() {
    let statuses: Vec<Status> = (1..=4).map(|epochs| status(epochs, 20.0 * epochs as f64)).collect();
    let expected = "\
memtide top  relative-heat, damon, epoch 4, 2 s

node tier memory, MiB free, MiB used       in, MB/s out, MB/s accesses, %
dram    0        1024       256 ████████░░      8.2       0.0        80.0
cxl     1        1024      1024 ░░░░░░░░░░      0.0       8.2        20.0

accesses on the fastest tier: 80.0 %; the last 2 s, 0 to 100 %:
  ▁▄
▃▆██
2 processes, by resident size ──────────────────────────────────────────────────
process  name            resident, MiB fast pages, % fast accesses, % moved, MB
71       redis-server              300          75.0             95.0       0.0
72       small                      20          75.0              1.0       0.0

last moves, pages of 4 KiB ─────────────────────────────────────────────────────
s ago process name          from     to         pages reason      not made
    1 71      redis-server  cxl      dram        1000 hot
    1 71      redis-server  cxl      dram        1000 hot         cooling
";
    assert_eq!(text(&screen(&statuses), 80), expected);
}

#[test]
fn wide_screen_has_moves_beside_processes() {
    let shown = [status(4, 80.0)];
    let text = text(&screen(&shown), 200);
    let line = text.lines().find(|line| line.contains("by resident size")).expect("a title");
    assert!(line.contains("last moves") && line.chars().count() == 200, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
}

#[test]
fn screen_says_why_nothing_moves_and_that_there_are_no_samples() {
    let mut status = status(4, 80.0);
    status.recent.remove(0);
    let says = |status: &Status| text(&screen(std::slice::from_ref(status)), 120);
    assert!(
        says(&status)
            .contains("pages moved in the last 10 s: planned moves are not made, most for 'cooling'")
    );
    status.recent.clear();
    assert!(says(&status).contains("the policy plans nothing: no move is certain to pay"));
    status.paused = true;
    assert!(says(&status).contains("the daemon is paused"));
    status.nodes.iter_mut().for_each(|node| node.accesses_percent = None);
    status.sensors = vec![("access-samples".to_owned(), Answer::Refused("no such processor".to_owned()))];
    assert!(says(&status).contains("no samples (no such processor)"), "{}", says(&status));
}

#[test]
fn narrow_screen_leaves_columns_out_and_wraps_the_reason() {
    let mut status = status(4, 80.0);
    status.nodes.iter_mut().for_each(|node| node.traffic_mbps = Some((28.0, 14.0)));
    status.recent.remove(0);
    let text = text(&screen(&[status]), 80);
    let head = text.lines().find(|line| line.starts_with("node ")).expect("a head");
    assert_eq!(head, "node memory, MiB free, MiB reads, MB/s writes, MB/s accesses, %");
    assert!(text.contains("(1000 pages)."), "{text}");
}

#[test]
fn every_size_of_terminal_has_a_screen() {
    let shown: Vec<Status> = (1..=3).map(|epochs| status(epochs, 50.0)).collect();
    for (width, height) in [(1, 1), (20, 3), (79, 10), (80, 24), (150, 12), (300, 80)] {
        let mut terminal =
            ratatui::Terminal::new(ratatui::backend::TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| screen(&shown).draw(frame)).expect("a screen");
    }
}

#[test]
fn keys_move_through_a_journal_and_sort() {
    let mut top = top((1..=3).map(|epochs| status(epochs, 50.0)).collect());
    let press = |top: &mut Top, code| top.is_end(KeyEvent::new(code, KeyModifiers::NONE));
    press(&mut top, KeyCode::Home);
    assert_eq!((top.at, top.is_stopped), (0, true));
    top.advance();
    assert_eq!(top.at, 0, "stopped");
    press(&mut top, KeyCode::Left);
    press(&mut top, KeyCode::Right);
    press(&mut top, KeyCode::Char(' '));
    (0..3).for_each(|_| top.advance());
    assert_eq!((top.at, top.is_stopped), (2, false), "at the end");
    press(&mut top, KeyCode::Char('s'));
    let text = text(&top.screen(), 80);
    assert!(text.contains("by pages moved") && text.find("small") < text.find("redis"), "{text}");
    assert!(press(&mut top, KeyCode::Char('q')));
}
