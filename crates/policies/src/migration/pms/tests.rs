use memtide_core::policy::{Completion, MessageKind, Outcome, TaskView};
use memtide_core::{NodeId, PageSize, Vpn};

use super::*;
use crate::testing::{bmpm, node_view, task_view};

const LOCAL: NodeId = NodeId(0);
const REMOTE: NodeId = NodeId(1);
/// Base pages of local memory.
const PAGES: u64 = 100;

/// A host with processes whose pages move at once.
struct Host {
    policy: Box<dyn Migration>,
    /// Node of each page, by process and page.
    pages: std::collections::BTreeMap<(u32, u64), NodeId>,
    room: u64,
}

impl Host {
    fn new(parameters: &str) -> Host {
        let text = format!("local+pms:{parameters}");
        let policy = crate::parse(&text).expect("a policy").migration(&bmpm(2.0));
        Host { policy, pages: Default::default(), room: 1000 }
    }

    fn say(&mut self, task: u32, kind: MessageKind) {
        let message = Message { time: Time::ZERO, task: TaskId(task), kind };
        self.policy.on_event(&Event::Message(message), &View::default(), &mut Plan::default());
    }

    /// A process with a buffer of local pages from page 10 on.
    fn process(&mut self, task: u32, priority: u8, pages: u64) {
        self.say(task, MessageKind::Register { priority });
        self.say(task, MessageKind::Send { start: Vpn(10), pages });
        self.pages.extend((10..10 + pages).map(|page| ((task, page), LOCAL)));
    }

    fn on(&self, task: u32, node: NodeId) -> usize {
        self.pages.iter().filter(|((of, _), on)| *of == task && **on == node).count()
    }

    fn away<const N: usize>(&self, tasks: [u32; N]) -> [usize; N] {
        tasks.map(|task| self.on(task, REMOTE))
    }

    fn view(&self, free: u64) -> View {
        let away = self.pages.values().filter(|node| **node == REMOTE).count() as u64;
        let nodes: Vec<NodeView> =
            vec![node_view(LOCAL, PAGES, free), node_view(REMOTE, 1000, self.room - away)];
        let mut view = View { nodes, ..View::default() };
        for (&(task, page), &node) in &self.pages {
            let (start, size) = (Vpn(page), PageSize::Base);
            let task = TaskId(task);
            view.regions.push(Region { task, start, pages: 1, size, node, reads: 0, writes: 0, age: 0 });
            if view.task(task).is_none() {
                view.tasks.push(TaskView { task, ..task_view(1) });
            }
        }
        view
    }

    /// An event of the monitor with this much local memory free; returns the moves' reasons.
    fn event(&mut self, free: u64) -> Vec<Reason> {
        let plan = self.decide(free);
        for planned in plan.actions() {
            let [wanted] = planned.action.moves() else { panic!("{planned:?}") };
            self.pages.insert((wanted.task.0, wanted.page.0), wanted.to);
            self.complete(planned);
        }
        plan.actions().iter().map(|planned| planned.reason).collect()
    }

    fn decide(&mut self, free: u64) -> Plan {
        let mut plan = Plan::default();
        self.policy.decide(&self.view(free), &mut plan);
        plan
    }

    fn complete(&mut self, planned: &memtide_core::policy::Planned) {
        let done = Completion { time: Time::ZERO, planned: planned.clone(), outcome: Outcome::MADE };
        self.policy.on_event(&Event::Completion(done), &View::default(), &mut Plan::default());
    }
}

#[test]
fn pages_leave_below_the_migration_threshold_and_return_above_the_other() {
    let mut host = Host::new("migrate=10,return=20,pages=4");
    host.process(1, 1, 30);
    assert_eq!(host.event(10), [], "10 % are free");
    assert_eq!(host.event(9), [Reason::MakeRoom; 4]);
    assert_eq!(host.event(20), [], "between the thresholds");
    assert_eq!(host.event(23), [Reason::Return; 3], "no more than down to the threshold");
    assert_eq!(host.away([1]), [1]);
}

#[test]
fn step_goes_no_further_than_the_return_threshold() {
    let mut host = Host::new("migrate=10,return=12,pages=50");
    host.process(1, 1, 30);
    assert_eq!(host.event(9).len(), 3);
    assert_eq!(host.event(12), []);
}

#[test]
fn lower_service_levels_leave_first_and_return_last() {
    let mut host = Host::new("migrate=50,return=60,pages=4");
    for (task, priority) in [(1, 5), (2, 1), (3, 2), (4, 1)] {
        host.process(task, priority, 20);
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        host.event(0);
        seen.push(host.away([1, 2, 3, 4]));
    }
    // A quota of 0: processes 2 and 4 of level 1, 3 of level 2, 1 of level 5. Then one of 4 more.
    let expected = [[0, 4, 0, 0], [0, 4, 0, 4], [0, 4, 4, 4], [4, 4, 4, 4], [4, 8, 4, 4], [4, 8, 4, 8]];
    assert_eq!(seen, expected);
    let mut seen = Vec::new();
    for _ in 0..6 {
        host.event(100);
        seen.push(host.away([1, 2, 3, 4]));
    }
    // Level 1 has pages beyond the quota of 4; then, with a quota of 0, level 5 before the others.
    let expected = [[4, 4, 4, 8], [4, 4, 4, 4], [0, 4, 4, 4], [0, 4, 0, 4], [0, 0, 0, 4], [0, 0, 0, 0]];
    assert_eq!(seen, expected);
}

#[test]
fn locked_buffer_comes_home_first_and_stays() {
    let mut host = Host::new("migrate=50,return=60,pages=4");
    host.process(1, 1, 6);
    host.process(2, 1, 6);
    (0..4).for_each(|_| _ = host.event(0));
    assert_eq!(host.away([1, 2]), [6, 6]);
    host.say(1, MessageKind::Lock { start: Vpn(10) });
    assert_eq!(host.event(3), [Reason::Request; 3], "as many as there is room for");
    assert_eq!(host.event(4), [Reason::Request; 3]);
    assert_eq!(host.away([1, 2]), [0, 6]);
    assert_eq!(host.event(0), [], "there is nothing else to send");
    assert_eq!(host.away([1, 2]), [0, 6]);
}

#[test]
fn released_buffer_is_forgotten_where_it_is() {
    let mut host = Host::new("migrate=50,return=60,pages=40");
    host.process(1, 1, 8);
    assert_eq!(host.event(0).len(), 8);
    host.say(1, MessageKind::Release { start: Vpn(10) });
    assert_eq!(host.event(100), []);
    assert_eq!(host.away([1]), [8]);
}

#[test]
fn only_buffers_of_registered_living_processes_move() {
    let mut host = Host::new("migrate=50,return=60,pages=40");
    host.say(1, MessageKind::Send { start: Vpn(10), pages: 5 });
    host.pages.extend((0..30).map(|page| ((1, page), LOCAL)));
    assert_eq!(host.event(0), [], "it is not registered");
    host.process(1, 1, 5);
    assert_eq!(host.event(0).len(), 5);
    assert!((10..15).all(|page| host.pages[&(1, page)] == REMOTE));
    host.say(1, MessageKind::Cleanup);
    assert_eq!(host.event(100), []);
    host.process(2, 1, 5);
    host.pages.retain(|(task, _), _| *task != 2);
    assert_eq!(host.event(0), [], "process 2 has died");
}

#[test]
fn full_remote_memory_gets_nothing() {
    let mut host = Host::new("migrate=50,return=60,pages=40");
    host.room = 3;
    host.process(1, 1, 8);
    let left = |plan: &Plan| plan.left().iter().map(|(node, pages)| (*node, *pages)).collect::<Vec<_>>();
    assert_eq!(left(&host.decide(0)), [(REMOTE, 5)], "of a step of 8, 3 have room");
    let mut host = Host { room: 3, ..Host::new("migrate=50,return=60,pages=40") };
    host.process(1, 1, 8);
    assert_eq!(host.event(0).len(), 3);
    assert_eq!(left(&host.decide(0)), [(REMOTE, 5)]);
    assert_eq!(left(&host.decide(58)), [], "the migration threshold is not reached");
    assert_eq!(left(&host.decide(49)), [(REMOTE, 5)]);
    host.say(1, MessageKind::Release { start: Vpn(10) });
    assert_eq!(left(&host.decide(0)), [], "no page could move");
}

#[test]
fn locked_pages_that_stay_away_are_reported() {
    let mut host = Host::new("migrate=50,return=60,pages=40");
    host.process(1, 1, 6);
    assert_eq!(host.event(0).len(), 6);
    host.say(1, MessageKind::Lock { start: Vpn(10) });
    let plan = host.decide(2);
    assert_eq!((plan.actions().len(), plan.left().get(&LOCAL)), (2, Some(&4)));
}

#[test]
fn next_step_waits_for_the_end_of_the_last() {
    let mut host = Host::new("migrate=50,return=60,pages=4");
    host.process(1, 1, 20);
    let plan = host.decide(0);
    assert_eq!(plan.actions().len(), 4);
    for planned in plan.actions() {
        assert!(host.decide(0).actions().is_empty());
        host.complete(planned);
    }
    assert_eq!(host.decide(0).actions().len(), 4);
}

#[test]
fn far_quota_is_reached_at_once_and_state_is_restored() {
    let mut host = Host::new("migrate=50,return=60,pages=1");
    host.process(1, 2, 20);
    (0..20).for_each(|_| _ = host.event(0));
    let state = host.policy.state();
    assert!(state.contains("\"quota\":19"), "{state}");
    // A quota that some 10^18 turns bring down.
    let far = state.replace("\"quota\":19", "\"quota\":1000000000000000019");
    host.policy.resume(&far).expect("a state");
    assert_eq!(host.event(100), [Reason::Return]);
    for wrong in
        [state.replace("\"level\":", "\"level\":7"), state.replace("\"priority\":2", "\"priority\":0")]
    {
        assert_ne!(wrong, state);
        host.policy.resume(&wrong).expect_err("no such level");
    }
}

#[test]
fn thresholds_out_of_order_are_refused() {
    let refused = crate::parse("local+pms:migrate=20,return=20").expect_err("refused").to_string();
    assert!(refused.contains("return=20 must be above migrate=20"), "{refused}");
    let mut all = Host::new("migrate=100,return=100,pages=40");
    all.process(1, 1, 8);
    assert_eq!(all.event(100), [], "nothing is used");
    assert_eq!(all.event(99), [Reason::MakeRoom], "whatever is used may leave");
    assert_eq!(all.event(100), [], "and never returns");
}
