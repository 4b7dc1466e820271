//! pms (Skordalakis 2019): applications register buffers that may move to remote memory, and lock those that
//! must be local.

use std::collections::{BTreeMap, BTreeSet};

use memtide_core::epoch::Limits;
use memtide_core::policy::{
    Action, Delivery, Event, Message, MessageKind, Migration, Outcome, Page, Plan, Reason, Refusal, Sensor,
    Sensors, TaskEvent, View, Wake,
};
use memtide_core::{ActionId, NodeId, PageSize, TaskId, Time, Vpn};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, TASK, move_of, pages};

/// Migrates while local memory has fewer free pages than `free_min`.
#[derive(Default)]
struct Pms {
    free_min: u64,
    /// Pages, and whether they are locked, by task and first page.
    buffers: BTreeMap<(TaskId, Vpn), (u64, bool)>,
    under_way: BTreeMap<ActionId, Page>,
    pinned: BTreeSet<Page>,
}

impl Pms {
    fn unpin(&mut self, plan: &mut Plan, is_unpinned: impl Fn(&Page) -> bool) {
        for page in self.pinned.iter().filter(|page| is_unpinned(page)) {
            plan.push(Action::Unpin(*page), Reason::Request);
        }
        self.pinned.retain(|page| !is_unpinned(page));
    }
}

impl Migration for Pms {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::Deployable, EPOCH);
        sensors.require(Sensor::Messages).require(Sensor::TaskLifecycle).require(REGIONS)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        match event {
            Event::Message(Message { task, kind, .. }) => match *kind {
                MessageKind::Send { start, pages } => {
                    self.buffers.insert((*task, start), (pages, false));
                }
                MessageKind::Lock { start } => {
                    self.buffers.entry((*task, start)).and_modify(|buffer| buffer.1 = true);
                }
                MessageKind::Release { start } => {
                    let pages = self.buffers.remove(&(*task, start)).map_or(0, |buffer| buffer.0);
                    let buffer = start..Vpn(start.0 + pages);
                    self.unpin(plan, |page| page.task == *task && buffer.contains(&page.page));
                }
                MessageKind::Register { .. } | MessageKind::Cleanup => {}
            },
            Event::Task(TaskEvent { task, started: false, .. }) => {
                self.buffers.retain(|(owner, _), _| owner != task);
                self.unpin(plan, |page| page.task == *task);
            }
            Event::Completion(done) => _ = self.under_way.remove(&done.planned.id),
            _ => {}
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let mut missing = self.free_min.saturating_sub(view.nodes[FAST.index()].free_pages);
        for (&(task, start), &(length, locked)) in &self.buffers {
            let (from, to, reason) =
                if locked { (SLOW, FAST, Reason::Request) } else { (FAST, SLOW, Reason::MakeRoom) };
            let regions = view.regions.of_task(task);
            let placed = regions.flat_map(|region| pages(&region).map(move |page| (page, region.node)));
            let in_buffer = placed.filter(|(at, _)| (start.0..start.0 + length).contains(&at.page.0));
            for (page, node) in in_buffer {
                if self.under_way.values().all(|moving| *moving != page) {
                    if locked && node == FAST && self.pinned.insert(page) {
                        plan.push(Action::Pin(page), Reason::Request);
                    } else if node == from && (locked || missing > 0) {
                        self.under_way.insert(plan.push_move(move_of(page, from, to), reason), page);
                        missing = missing.saturating_sub(u64::from(!locked));
                    }
                }
            }
        }
        Wake::After(EPOCH)
    }
}

const UNREGISTERED: std::ops::Range<u64> = 0..8;
const FIRST: std::ops::Range<u64> = 100..108;
const SECOND: std::ops::Range<u64> = 200..208;

fn say(run: &mut Run, kind: MessageKind) {
    run.host.event(Event::Message(Message { time: Time::ZERO, task: TASK, kind }));
}

fn send(run: &mut Run, buffer: std::ops::Range<u64>) {
    say(run, MessageKind::Send { start: Vpn(buffer.start), pages: buffer.end - buffer.start });
}

fn lock(run: &mut Run, buffer: std::ops::Range<u64>) {
    say(run, MessageKind::Lock { start: Vpn(buffer.start) });
}

fn release(run: &mut Run, buffer: std::ops::Range<u64>) {
    say(run, MessageKind::Release { start: Vpn(buffer.start) });
}

/// Local memory has 26 pages, of which 24 are in use.
fn registered(free_min: u64) -> Run {
    let mut run = Run::new(Pms { free_min, ..Pms::default() }, &[26, 64], Limits::default());
    for pages in [UNREGISTERED, FIRST, SECOND] {
        run.map(pages, FAST);
    }
    send(&mut run, FIRST);
    send(&mut run, SECOND);
    run
}

/// Pages on local memory: unregistered, first buffer, second buffer.
fn local(run: &mut Run) -> [usize; 3] {
    [UNREGISTERED, FIRST, SECOND]
        .map(|pages| run.nodes_of(pages).iter().filter(|node| **node == FAST).count())
}

/// Outcome of a user's request for a page.
fn user_moves(run: &mut Run, page: u64, to: NodeId) -> Outcome {
    let from = run.page(page).node;
    let page = Page { task: TASK, page: Vpn(page), size: PageSize::Base };
    run.runner.request(&mut run.host, &mut (), &[move_of(page, from, to)]);
    run.runner.take_answered()[0].outcome
}

#[test]
fn registered_buffers_are_demoted_when_local_memory_is_low() {
    let mut run = registered(2);
    run.epoch();
    assert_eq!(local(&mut run), [8, 8, 8], "2 pages are free");
    run.map(300..302, FAST);
    run.epoch();
    assert_eq!((local(&mut run), run.host.node(FAST).free_pages), ([8, 6, 8], 2));
    let mut run = registered(100);
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!(local(&mut run), [8, 0, 0], "what was not registered stays");
    assert_eq!((run.moved(FAST, SLOW), run.moved_in_all()), (16, 16));
}

#[test]
fn locked_buffer_is_promoted_and_pinned_until_released() {
    let mut run = registered(100);
    run.epoch();
    assert_eq!(local(&mut run), [8, 0, 0]);
    lock(&mut run, FIRST);
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!(local(&mut run), [8, 8, 0], "though local memory is short");
    assert_eq!(user_moves(&mut run, FIRST.start, SLOW), Outcome::Refused(Refusal::Pinned));
    assert_eq!(user_moves(&mut run, UNREGISTERED.start, SLOW), Outcome::MADE);
    release(&mut run, FIRST);
    release(&mut run, SECOND);
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!(local(&mut run), [7, 8, 0], "nothing is brought home");
    assert_eq!((run.moved(SLOW, FAST), run.moved(FAST, SLOW)), (8, 16 + 1));
    assert_eq!(user_moves(&mut run, FIRST.start, SLOW), Outcome::MADE);
}

#[test]
fn buffer_locked_during_demotion_is_pinned_after_its_return() {
    let mut run = registered(100);
    run.host.action_time = EPOCH;
    run.epoch();
    lock(&mut run, FIRST);
    (0..60).for_each(|_| _ = run.epoch());
    assert_eq!(local(&mut run), [8, 8, 0]);
    let outcomes = FIRST.map(|page| user_moves(&mut run, page, SLOW)).collect::<Vec<_>>();
    assert_eq!(outcomes, [Outcome::Refused(Refusal::Pinned); 8]);
}

#[test]
fn task_that_ends_is_forgotten() {
    let mut run = registered(2);
    lock(&mut run, FIRST);
    (0..2).for_each(|_| _ = run.epoch());
    assert_eq!(user_moves(&mut run, FIRST.start, SLOW), Outcome::Refused(Refusal::Pinned));
    run.host.end_task(TASK);
    run.epoch();
    // A task with the same id has nothing registered and nothing pinned.
    run.host.start_task(TASK, "another");
    for pages in [UNREGISTERED, FIRST, SECOND] {
        run.map(pages, FAST);
    }
    run.map(300..302, FAST);
    let before = run.moved_in_all();
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!((local(&mut run), run.moved_in_all()), ([8, 8, 8], before));
    assert_eq!(user_moves(&mut run, FIRST.start, SLOW), Outcome::MADE);
}
