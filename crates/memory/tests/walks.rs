//! Page walks: their cost by where the page table's lines are, and how many run at once.

use memtide_core::Time;
use memtide_core::machine::Machine;
use memtide_memory::{PageKey, PageWalkers, PrivateCaches, Walk};

use crate::support::{machine, node, socket};

/// Lines of the private cache.
const LINES: u64 = 32;
/// Pages whose entries share a line of the page table.
const PER_LINE: u64 = 8;

/// Walks of 10 ns, or 100 ns from memory; one private cache of 32 lines.
fn walking(tlb: &str) -> Machine {
    machine(&format!(
        "[[cache]]\nname = \"L1\"\ncapacity_kib = 2\nways = 4\nlatency_cycles = 4\n[[tlb]]\nname = \"L1\"\n\
         entries = 8\nways = 4\nwalk_cycles = 10\n{tlb}{}{}",
        socket("s", 1),
        node("n", Some("s"), 100.0, 1e4)
    ))
}

/// Durations of walks to pages, each after the one before.
fn durations(machine: &Machine, pages: impl IntoIterator<Item = u64>) -> Vec<Time> {
    let (mut walkers, mut caches) = (PageWalkers::new(machine), PrivateCaches::new(machine));
    let mut now = Time::ZERO;
    let mut walk = |page| {
        let Walk { takes, .. } =
            walkers.walk(PageKey::new(0, page, false), now, &mut caches, &mut Vec::new());
        now += takes;
        takes
    };
    pages.into_iter().map(&mut walk).collect()
}

/// Mean duration of walks to one page of each of so many lines of the page table, in the second pass.
fn second_pass_ns(machine: &Machine, table_lines: u64) -> f64 {
    let pass = || (0..table_lines).map(|line| line * PER_LINE);
    let both = durations(machine, pass().chain(pass()));
    let second = &both[table_lines as usize..];
    second.iter().map(|takes| takes.as_ns()).sum::<f64>() / second.len() as f64
}

#[test]
fn nested_walks_need_twice_the_space() {
    let native = walking("cold_walk_cycles = 100\n");
    let nested = walking("cold_walk_cycles = 100\nnested_walks = true\n");
    assert_eq!([LINES, LINES + 8].map(|lines| second_pass_ns(&native, lines)), [10.0, 100.0]);
    let half = LINES / 2;
    assert_eq!([half, half + 4].map(|lines| second_pass_ns(&nested, lines)), [10.0, 100.0]);
}

#[test]
fn pages_of_one_table_line_need_one_cold_walk() {
    let ns = |tlb| -> Vec<f64> {
        durations(&walking(tlb), 0..2 * PER_LINE).into_iter().map(|takes| takes.as_ns()).collect()
    };
    for tlb in ["cold_walk_cycles = 100\n", "cold_walk_cycles = 100\nnested_walks = true\n"] {
        let found = ns(tlb);
        let cold: Vec<usize> = (0..found.len()).filter(|&page| found[page] == 100.0).collect();
        assert_eq!(cold, [0, PER_LINE as usize], "{tlb}");
    }
}

#[test]
fn table_lines_and_data_evict_each_other() {
    let machine = walking("cold_walk_cycles = 100\n");
    let (mut walkers, mut caches) = (PageWalkers::new(&machine), PrivateCaches::new(&machine));
    let mut walk = |caches: &mut PrivateCaches, line: u64| {
        let key = PageKey::new(0, line * PER_LINE, false);
        walkers.walk(key, Time::ZERO, caches, &mut Vec::new()).takes.as_ns()
    };
    let load = |caches: &mut PrivateCaches, line| caches.access(line, false, &mut Vec::new()).is_some();
    assert!(
        (0..LINES).all(|line| !load(&mut caches, line)) && (0..LINES).all(|line| load(&mut caches, line))
    );
    assert!((0..LINES).all(|line| walk(&mut caches, line) == 100.0));
    assert!((0..LINES).all(|line| walk(&mut caches, line) == 10.0));
    assert_eq!(caches.hits().sum::<u64>(), LINES, "walks are not the program's hits");
    assert!((0..LINES).all(|line| !load(&mut caches, line)), "the tables are where the data was");
}

#[test]
fn without_cold_cost_walks_read_no_lines() {
    let machine = walking("");
    assert!(
        durations(&machine, (0..1000).map(|page| page * PER_LINE)).iter().all(|takes| takes.as_ns() == 10.0)
    );
    let (mut walkers, mut caches) = (PageWalkers::new(&machine), PrivateCaches::new(&machine));
    for page in 0..1000 {
        walkers.walk(PageKey::new(0, page * PER_LINE, false), Time::ZERO, &mut caches, &mut Vec::new());
        assert_eq!(caches.access(page % LINES, false, &mut Vec::new()).is_some(), page >= LINES);
    }
}

#[test]
fn walks_wait_for_a_walker() {
    for walkers in [1, 2, 4] {
        let machine = walking(&format!("walkers = {walkers}\n"));
        let (mut free, mut caches) = (PageWalkers::new(&machine), PrivateCaches::new(&machine));
        for number in 0..8 {
            let walk = free.walk(PageKey::new(0, number, false), Time::ZERO, &mut caches, &mut Vec::new());
            assert_eq!(walk.from, Time::from_ns((10 * (number / walkers)) as f64));
        }
    }
}

#[test]
fn nested_walks_without_cold_cost_are_refused() {
    let text = "nested_walks = true\n";
    let refused = std::panic::catch_unwind(|| walking(text)).expect_err("a refusal");
    let message = refused.downcast_ref::<String>().expect("a message");
    assert!(message.contains("has no effect without `cold_walk_cycles`"), "{message}");
}
