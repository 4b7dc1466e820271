//! bdm (Lee 2019): a task whose threads draw equal bandwidth is frozen while its recently used pages move to
//! HBM.

use std::collections::{BTreeMap, BTreeSet};

use memtide_core::epoch::Limits;
use memtide_core::policy::{
    Action, Delivery, Event, Migration, Outcome, Plan, Reason, Refusal, Region, Sensor, Sensors, TaskView,
    ThreadView, Traffic, View, Wake,
};
use memtide_core::{ActionId, PageSize, TaskId, ThreadId, Vpn};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, TASK, move_of, pages};

#[derive(Default)]
struct Bdm {
    /// Bytes moved by each thread until the last epoch.
    bytes: BTreeMap<ThreadId, u64>,
    /// The frozen task, and its moves in flight.
    frozen: Option<(TaskId, BTreeSet<ActionId>)>,
}

impl Bdm {
    /// Whether the bandwidths of a task's threads differ by less than a tenth.
    fn is_even(&self, task: &TaskView, view: &View) -> bool {
        let threads = view.threads.iter().filter(|thread| thread.task == task.task);
        let drawn: Vec<u64> = threads
            .filter_map(|thread| Some(bytes(thread)? - self.bytes.get(&thread.thread).copied()?))
            .collect();
        let (Some(&least), Some(&most)) = (drawn.iter().min(), drawn.iter().max()) else { return false };
        drawn.len() > 1 && least * 10 > most * 9
    }
}

fn bytes(thread: &ThreadView) -> Option<u64> {
    thread.traffic.map(|traffic| traffic.read_bytes + traffic.written_bytes)
}

impl Migration for Bdm {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::Deployable, EPOCH);
        sensors.require(Sensor::Threads).require(Sensor::ThreadTraffic).require(REGIONS)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        let (Event::Completion(done), Some((task, moves))) = (event, &mut self.frozen) else { return };
        if moves.remove(&done.planned.id) && moves.is_empty() {
            plan.push(Action::Thaw(*task), Reason::Bandwidth);
            self.frozen = None;
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let even = view.tasks.iter().find(|task| self.is_even(task, view)).filter(|_| self.frozen.is_none());
        if let Some(TaskView { task, .. }) = even {
            let is_recent = |region: &Region| matches!(region, Region { age: 0, node: SLOW, .. });
            let recent: Vec<_> =
                view.regions.of_task(*task).filter(is_recent).flat_map(|r| pages(&r)).collect();
            if !recent.is_empty() {
                plan.push(Action::Freeze(*task), Reason::Bandwidth);
                let moves = recent.into_iter().map(|page| move_of(page, SLOW, FAST));
                let moves = moves.map(|wanted| plan.push_move(wanted, Reason::Bandwidth)).collect();
                self.frozen = Some((*task, moves));
            }
        }
        self.bytes = view.threads.iter().filter_map(|thread| Some((thread.thread, bytes(thread)?))).collect();
        Wake::After(EPOCH)
    }
}

const UNEVEN: TaskId = TaskId(2);

/// Two tasks of two threads, each with pages 0 to 7 on DDR4, of which 0 to 5 are in use.
fn two_tasks(hbm_pages: u64) -> Run {
    let mut run = Run::new(Bdm::default(), &[hbm_pages, 64], Limits::default());
    run.host.start_task(UNEVEN, "uneven");
    for task in [TASK, UNEVEN] {
        (0..8).for_each(|page| run.host.map(task, Vpn(page), PageSize::Base, SLOW));
        let threads = &mut run.host.task(task).expect("it was started").threads;
        let second = ThreadView { thread: ThreadId(task.0 + 10), ..threads[0].clone() };
        threads.push(second);
    }
    run
}

/// Runs the tasks for an epoch, unless frozen; returns whether [`TASK`] ran.
fn work(run: &mut Run) -> bool {
    for (task, gigabytes) in [(TASK, [20, 19]), (UNEVEN, [38, 1])] {
        let of_task = run.host.task(task).expect("it was started");
        if of_task.frozen {
            continue;
        }
        for (thread, gigabytes) in of_task.threads.iter_mut().zip(gigabytes) {
            thread.traffic.get_or_insert(Traffic::default()).read_bytes += gigabytes << 30;
        }
        (0..6).for_each(|page| run.host.page(task, Vpn(page)).expect("it is mapped").reads += 1);
    }
    !is_frozen(run)
}

fn is_frozen(run: &mut Run) -> bool {
    run.host.task(TASK).expect("it was started").frozen
}

fn on_hbm(run: &mut Run, task: TaskId) -> usize {
    (0..8).filter(|page| run.host.page(task, Vpn(*page)).expect("it is mapped").node == FAST).count()
}

#[test]
fn even_task_is_frozen_until_its_recent_pages_have_moved() {
    let mut run = two_tasks(64);
    let mut worked = Vec::new();
    run.host.action_time = EPOCH;
    for _ in 0..14 {
        let moved = on_hbm(&mut run, TASK);
        worked.push(work(&mut run));
        assert!(!(1..6).contains(&moved) || is_frozen(&mut run), "{moved} have moved");
        run.epoch();
    }
    assert_eq!([TASK, UNEVEN].map(|task| on_hbm(&mut run, task)), [6, 0]);
    assert_eq!(run.moved(SLOW, FAST), 6);
    // Planned in epoch 1, frozen in 2, moves made from 3 to 8, thawed in 9.
    let frozen: Vec<usize> = (0..14).filter(|at| !worked[*at]).collect();
    assert_eq!(frozen, (3..=9).collect::<Vec<_>>());
    assert_eq!(run.outcomes(), [Outcome::MADE; 8], "freeze, six moves, thaw");
}

#[test]
fn task_is_thawed_even_if_moves_are_refused() {
    let mut run = two_tasks(4);
    (0..2).for_each(|_| {
        work(&mut run);
        run.epoch();
    });
    assert!(is_frozen(&mut run) && on_hbm(&mut run, TASK) == 4);
    assert_eq!(run.runner.governor().recorded().refused[&Refusal::NoRoom], 2);
    run.epoch();
    assert!(!is_frozen(&mut run));
}
