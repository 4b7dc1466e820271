use super::script::{SCRIPT, Step, UNPLUG};
use super::*;
use crate::epoch::{Host as _, Limits, PolicyRunner};
use crate::ids::{CpuId, NodeId};

const EPOCH: Time = Time::from_ms(10);
const TASK: TaskId = TaskId(0);

fn layout() -> Layout {
    Layout::from(VirtAddr(1 << 30), 5000)
}

/// Runs a script on the fake host.
fn run(script: &'static [Phase]) -> Log {
    let (policy, log) = ConformancePolicy::new(script, layout(), EPOCH);
    let mut host = FakeHost::new(&[8192, 4096], &policy.sensors()).expect("it answers every sensor");
    host.action_time = Time::from_us(1);
    let mut runner = PolicyRunner::new(Box::new(policy), Limits::default());
    host.start_task(TASK, "script");
    for phase in script {
        for epoch in 0..EPOCHS {
            if epoch == 0 {
                phase.steps.iter().for_each(|step| carry_out(&mut host, *step));
            }
            read_hot(&mut host);
            if epoch == PLAN_AT + 1 && phase.steps.contains(&Step::EndUnderway) {
                host.end_task(TASK);
            }
            host.advance(EPOCH);
            if phase.steps.contains(&Step::EndUnderway) {
                // Nothing is made before the task ends.
                host.action_time = EPOCH * 2;
            }
            let wake = runner.epoch(&mut host, &mut ());
            assert_eq!(wake, Wake::After(EPOCH));
        }
    }
    log
}

fn carry_out(host: &mut FakeHost, step: Step) {
    let pages = |area| {
        let Placed { start, pages } = layout().of(area);
        (0..pages).map(move |at| Vpn(start.page().0 + at))
    };
    match step {
        Step::Fill(area) => pages(area).for_each(|page| host.map(TASK, page, PageSize::Base, NodeId(0))),
        Step::Unmap(area) => pages(area).for_each(|page| host.unmap(TASK, page)),
        Step::UnplugSlow => host.unplug(script::SLOW),
        Step::EndUnderway => {}
    }
}

fn read_hot(host: &mut FakeHost) {
    let Placed { start, pages } = layout().of(Area::Hot);
    for at in 0..pages {
        if let Some(page) = host.page(TASK, Vpn(start.page().0 + at)) {
            page.reads += 1;
            host.hint_fault(TASK, Vpn(start.page().0 + at), CpuId(0));
        }
    }
}

#[test]
fn fake_host_conforms() {
    run(SCRIPT).check(SCRIPT, &layout()).unwrap_or_else(|wrong| panic!("{wrong}"));
    run(UNPLUG).check(UNPLUG, &layout()).unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[test]
fn log_of_another_script_does_not_conform() {
    let wrong = run(UNPLUG).check(SCRIPT, &layout()).expect_err("phases are missing");
    for missing in ["hint faults tell", "moves are made", "a task that ends"] {
        assert!(wrong.contains(missing), "{wrong}");
    }
}

#[test]
fn fake_host_keeps_its_tables_after_every_script() {
    let (policy, _) = ConformancePolicy::new(SCRIPT, layout(), EPOCH);
    let mut host = FakeHost::new(&[64, 32], &policy.sensors()).expect("it answers every sensor");
    host.start_task(TASK, "one");
    host.map(TASK, Vpn(8), PageSize::Base, NodeId(0));
    host.end_task(TASK);
    let mut view = View::default();
    host.observe(&mut view, &mut Vec::new());
    assert_eq!(view.nodes.iter().map(|node| node.free_pages).collect::<Vec<_>>(), [64, 32]);
    assert_eq!(view.check(2), Ok(()));
}
