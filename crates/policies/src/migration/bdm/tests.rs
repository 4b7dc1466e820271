use memtide_core::policy::{Action, Completion, Outcome, Planned, Region, TaskView, ThreadView, Traffic};
use memtide_core::{PageSize, ThreadId};

use super::*;
use crate::testing::{node, node_view};

const MB: u64 = 1_000_000;

/// HBM of 1,000 pages beside DDR4.
fn policy(parameters: &str) -> Box<dyn Migration> {
    let machine = crate::testing::machine(&[node(0, 0, 400e3), node(1, 0, 100e3)]);
    crate::parse(&format!("interleave+bdm{parameters}")).unwrap().migration(&machine)
}

/// A program of a test: bytes that each of its threads has moved, faults, and pages on DDR4, of which the
/// first half is in use.
#[derive(Clone)]
struct Run {
    bytes: Vec<u64>,
    page_faults: u64,
    pages: u64,
}

fn run(megabytes: &[u64], page_faults: u64) -> Run {
    Run { bytes: megabytes.iter().map(|mb| mb * MB).collect(), page_faults, pages: 8 }
}

/// The view at the end of a window of 100 ms.
fn view(window: u64, free_on_hbm: u64, runs: &[Run]) -> View {
    let mut view = View { time: Time::from_ms(100 * window), ..View::default() };
    view.nodes = vec![node_view(NodeId(0), 1000, free_on_hbm), node_view(NodeId(1), 4000, 2000)];
    for (number, run) in (1..).zip(runs) {
        let task = TaskId(number);
        view.tasks.push(TaskView {
            task,
            name: format!("p{number}"),
            owner: None,
            priority: None,
            resident_pages: run.pages,
            page_faults: Some(run.page_faults),
            footprint: vec![0, run.pages],
            rule: None,
        });
        for (thread, bytes) in (0..).zip(&run.bytes) {
            let traffic = Some(Traffic { read_bytes: *bytes, written_bytes: 0 });
            view.threads.push(ThreadView {
                thread: ThreadId(number * 10 + thread),
                task,
                cpu: None,
                traffic,
            });
        }
        for (start, reads) in [(0, 3), (run.pages / 2, 0)] {
            view.regions.push(Region {
                task,
                start: Vpn(start),
                pages: run.pages / 2,
                size: PageSize::Base,
                node: NodeId(1),
                reads,
                writes: 0,
                age: 0,
            });
        }
    }
    view
}

fn decide(policy: &mut dyn Migration, view: &View) -> Vec<Planned> {
    let mut plan = Plan::default();
    assert_eq!(policy.decide(view, &mut plan), Wake::After(Time::from_ms(100)));
    plan.actions().to_vec()
}

/// The program that a plan moves.
fn moved(actions: &[Planned]) -> Option<u32> {
    actions.iter().find_map(|planned| Some(planned.action.moves().first()?.task.0))
}

#[test]
fn of_like_bandwidths_the_even_one_is_selected() {
    // bdm fig-4: both draw 400 MB.
    let runs = [run(&[340, 20, 20, 20], 0), run(&[100, 100, 100, 100], 0)];
    assert_eq!(moved(&decide(policy("").as_mut(), &view(1, 1000, &runs))), Some(2));
    let runs = [run(&[100, 100], 0), run(&[90, 90], 0)];
    assert_eq!(moved(&decide(policy("").as_mut(), &view(1, 1000, &runs))), Some(1), "the larger one");
}

#[test]
fn regression_predicts_the_next_window() {
    // The first falls from 300 MB a window to 200, the second rises from 100 to 190: it will have 280.
    let runs = |first: u64, second: u64| [run(&[first, first], 0), run(&[second, second], 0)];
    let selected = |parameters: &str| {
        let mut policy = policy(parameters);
        // Nothing fits in the first window.
        decide(policy.as_mut(), &view(1, 0, &runs(300, 100)));
        moved(&decide(policy.as_mut(), &view(2, 1000, &runs(500, 290))))
    };
    assert_eq!(selected(""), Some(2));
    assert_eq!(selected(":windows=1"), Some(1), "without a past, the present counts");
}

#[test]
fn programs_that_fault_more_than_the_mean_are_passed_over() {
    let runs = [run(&[200, 200], 9), run(&[100, 100], 2), run(&[50, 50], 1)];
    assert_eq!(moved(&decide(policy("").as_mut(), &view(1, 1000, &runs))), Some(2), "the mean is 4");
    let alike = [run(&[200, 200], 9), run(&[100, 100], 9)];
    assert_eq!(moved(&decide(policy("").as_mut(), &view(1, 1000, &alike))), Some(1));
}

#[test]
fn recent_pages_of_one_program_move_while_it_is_stopped() {
    let runs = [run(&[100, 100], 0), run(&[90, 90], 0)];
    let actions = decide(policy("").as_mut(), &view(1, 1000, &runs));
    let task = TaskId(1);
    assert_eq!(actions.first().map(|planned| &planned.action), Some(&Action::Freeze(task)));
    assert_eq!(actions.last().map(|planned| &planned.action), Some(&Action::Thaw(task)));
    let moves: Vec<&Move> = actions.iter().flat_map(|planned| planned.action.moves()).collect();
    assert_eq!(
        moves.iter().map(|wanted| wanted.page.0).collect::<Vec<_>>(),
        [0, 1, 2, 3],
        "not the idle half"
    );
    assert!(moves.iter().all(|wanted| wanted.task == task && wanted.to == NodeId(0)));
}

#[test]
fn threshold_includes_the_whole_program() {
    let runs = [Run { pages: 100, ..run(&[100, 100], 0) }];
    // 90 % of 1,000 pages: 800 in use and 100 more fit, 801 and 100 do not.
    assert!(moved(&decide(policy("").as_mut(), &view(1, 200, &runs))).is_some());
    assert!(decide(policy("").as_mut(), &view(1, 199, &runs)).is_empty());
    assert!(moved(&decide(policy(":threshold=91").as_mut(), &view(1, 199, &runs))).is_some());
}

#[test]
fn next_program_moves_once_the_last_has() {
    let mut policy = policy("");
    let runs = |bytes: u64| [run(&[bytes, bytes], 0)];
    let first = decide(policy.as_mut(), &view(1, 1000, &runs(100)));
    assert!(decide(policy.as_mut(), &view(2, 1000, &runs(200))).is_empty(), "in flight");
    for planned in first {
        let done = Completion { time: Time::from_ms(250), planned, outcome: Outcome::MADE };
        policy.on_event(&Event::Completion(done), &View::default(), &mut Plan::default());
    }
    assert!(moved(&decide(policy.as_mut(), &view(3, 1000, &runs(300)))).is_some());
}

#[test]
fn random_selection_depends_on_the_seed_alone() {
    let runs: Vec<Run> = (0..8).map(|number| run(&[number * 10, 0], number)).collect();
    let drawn = |seed: u32| {
        moved(&decide(policy(&format!(":select=random,seed={seed}")).as_mut(), &view(1, 1000, &runs)))
    };
    let all: BTreeSet<Option<u32>> = (0..200).map(drawn).collect();
    assert_eq!(all, (1..=8).map(Some).collect(), "any program, whatever its bandwidth");
    assert_eq!(drawn(7), drawn(7));
}

#[test]
fn idle_programs_and_those_without_recent_pages_stay() {
    assert!(decide(policy("").as_mut(), &view(1, 1000, &[run(&[0, 0], 0)])).is_empty());
    assert!(decide(policy("").as_mut(), &View::default()).is_empty());
}
