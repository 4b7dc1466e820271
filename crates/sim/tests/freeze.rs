//! Tasks that a policy stops.

use crate::runs;
use crate::support;
use memtide_core::policy::{Action, Delivery, Event, Migration, Outcome, Plan, Reason, Sensors, View, Wake};
use memtide_core::{PageSize, TaskId, Time};
use memtide_sim::{Policy, Report, run, run_shared};

use crate::runs::{assert_near, job};
use crate::support::{doing, follow, map, mixed, two_sockets};

const EPOCH: Time = Time::from_us(100);

/// Stops a task at one epoch and lets it go on at another, from its start on.
struct Stops {
    task: TaskId,
    from: u32,
    to: u32,
    epoch: u32,
}

impl Migration for Stops {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        if let Event::Completion(done) = event {
            assert_eq!(done.outcome, Outcome::MADE);
        }
    }

    fn decide(&mut self, _: &View, plan: &mut Plan) -> Wake {
        self.epoch += 1;
        if self.epoch == self.from {
            plan.push(Action::Freeze(self.task), Reason::Request);
        } else if self.epoch == self.to {
            plan.push(Action::Thaw(self.task), Reason::Request);
        }
        Wake::After(EPOCH)
    }
}

/// A chase on one CPU, of 100 ns for each load.
fn chase(loads: u64) -> support::Script {
    let line = |step: u64| mixed(step) % (1 << 16) * 64;
    support::alone([map(0, 4 << 20, PageSize::Huge), doing((0..loads).map(move |step| follow(line(step))))])
}

fn policy(stopped: Option<(u32, u32)>) -> Policy {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let (from, to) = stopped.unwrap_or((0, 0));
    let stops = Stops { task: TaskId(1), from, to, epoch: 0 };
    Policy::new(runs::policy(&machine, "local").placement, Some(Box::new(stops)))
}

/// Two programs on these CPUs, the second of which is stopped. CPU 2 is of the other socket.
fn times(cpus: [u16; 2], stopped: Option<(u32, u32)>) -> Report {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let jobs = cpus.map(|cpu| job(chase(20_000), &[cpu])).into();
    run(&machine, jobs, policy(stopped), 1, &mut |_| true).expect("it runs")
}

#[test]
fn stopped_task_takes_as_much_longer_as_it_stands_and_others_do_not() {
    let (free, stopped) = (times([0, 2], None), times([0, 2], Some((3, 13))));
    let [first, second] = [0, 1].map(|at| (free.program_times_ms[at], stopped.program_times_ms[at]));
    assert_near(second.1 - second.0, 1.0, 0.01, "ten epochs of 100 us, ms");
    assert_near(first.1, first.0, 0.001, "the other's time, ms");
    assert_eq!((free.instructions, free.accesses), (stopped.instructions, stopped.accesses));
    assert_near(
        stopped.spent.idle_ms - free.spent.idle_ms,
        2.0,
        0.03,
        "its own idle time and the other's, ms",
    );
}

#[test]
fn another_task_has_the_cpu_of_a_stopped_one() {
    let (free, stopped) = (times([0, 0], None), times([0, 0], Some((3, 13))));
    assert_near(stopped.time_ms, free.time_ms, 0.001, "the CPU is never idle, ms");
    assert!(stopped.program_times_ms[0] < free.program_times_ms[0] + 0.01);
}

#[test]
fn one_pass_stops_tasks_too() {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let jobs = [0, 1].map(|_| job(chase(20_000), &[])).into();
    let reports = run_shared(&machine, jobs, vec![policy(None), policy(Some((3, 13)))], 1, &|_, _| true);
    let [free, stopped] = &reports[..] else { panic!("two policies") };
    let [free, stopped] = [free, stopped].map(|report| report.as_ref().expect("it runs").time_ms);
    assert_near(stopped - free, 1.0, 0.01, "ten epochs of 100 us, ms");
}

#[test]
fn task_that_is_never_let_go_ends_the_run_with_a_reason() {
    let machine = two_sockets("", 2, [64, 64], [20e3, 20e3]);
    let jobs = [0, 1].map(|cpu| job(chase(1_100), &[cpu])).into();
    let error = run(&machine, jobs, policy(Some((1, 0))), 1, &mut |_| true)
        .map(|report| report.time_ms)
        .expect_err("it cannot end");
    assert!(error.to_string().contains("no access to memory"), "{error}");
}
