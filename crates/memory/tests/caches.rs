//! Caches match plain reference implementations, access by access.

use std::collections::{BTreeMap, BTreeSet};

use memtide_core::Time;
use memtide_memory::{Access, Cache, PrivateCaches, Victim};
use proptest::prelude::*;

use crate::support::{Zipf, level, machine, node, socket};

/// A textbook cache: a list of lines per set, most recently used first.
#[derive(Clone)]
struct Plain {
    ways: usize,
    sets: Vec<Vec<Line>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    number: u64,
    dirty: bool,
}

impl Plain {
    fn new(kib: u64, ways: usize) -> Plain {
        Plain { ways, sets: vec![Vec::new(); (kib * 16) as usize / ways] }
    }

    fn set(&mut self, number: u64) -> &mut Vec<Line> {
        let count = self.sets.len() as u64;
        &mut self.sets[(number % count) as usize]
    }

    fn touch(&mut self, number: u64, write: bool) -> bool {
        let set = self.set(number);
        let Some(at) = set.iter().position(|line| line.number == number) else { return false };
        let line = set.remove(at);
        set.insert(0, Line { number, dirty: line.dirty || write });
        true
    }

    fn fill(&mut self, number: u64, dirty: bool) -> Option<Victim> {
        let ways = self.ways;
        let set = self.set(number);
        let victim = if set.len() == ways { set.pop() } else { None };
        set.insert(0, Line { number, dirty });
        victim.map(|line| Victim { line: line.number, dirty: line.dirty })
    }

    fn write_back(&mut self, number: u64) -> Option<Victim> {
        match self.set(number).iter_mut().find(|line| line.number == number) {
            Some(line) => {
                line.dirty = true;
                None
            }
            None => self.fill(number, true),
        }
    }

    fn evict(&mut self, number: u64) -> bool {
        let set = self.set(number);
        let before = set.len();
        set.retain(|line| line.number != number);
        set.len() < before
    }

    fn dirty(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().flatten().filter(|line| line.dirty).map(|line| line.number)
    }
}

/// Capacities in KiB and ways that give whole sets, often not a power of two.
fn geometry() -> impl Strategy<Value = (u64, u16)> {
    (1u64..=12, 1u16..=20).prop_filter("whole sets", |&(kib, ways)| (kib * 16).is_multiple_of(ways.into()))
}

/// Applies an access (1: a store, 2 and 3: a load), a write-back (0) or an eviction (4) to both, and compares
/// the results.
fn both(cache: &mut Cache, plain: &mut Plain, line: u64, kind: u8) {
    if kind == 4 {
        assert_eq!(cache.evict(line), plain.evict(line), "eviction of line {line}");
        return;
    }
    if kind == 0 {
        assert_eq!(cache.write_back(line), plain.write_back(line), "write-back of line {line}");
        return;
    }
    let write = kind == 1;
    let expected = match plain.touch(line, write) {
        true => Access::Hit,
        false => Access::Miss(plain.fill(line, write)),
    };
    assert_eq!(cache.access(line, write), expected, "access to line {line}");
}

proptest! {
    #[test]
    fn loads_stores_write_backs_and_evictions_have_the_same_hits_and_victims(
        (kib, ways) in geometry(),
        base in prop_oneof![Just(0u64), Just(1 << 31), Just((1 << 33) + 5)],
        accesses in proptest::collection::vec((0u64..500, 0u8..5), 0..1500),
    ) {
        let mut cache = Cache::new(kib, ways);
        let mut plain = Plain::new(kib, ways.into());
        let base = base % (Cache::line_limit(kib, ways) - 500);
        for (line, kind) in accesses {
            both(&mut cache, &mut plain, base + line, kind);
        }
        for line in base..base + 500 {
            prop_assert_eq!(cache.holds(line), plain.set(line).iter().any(|l| l.number == line));
        }
    }
}

#[test]
fn long_skewed_stream_has_equal_hits_and_victims() {
    for (kib, ways) in [(32, 8), (48, 12), (640, 20), (33, 11)] {
        let mut zipf = Zipf::new(1 << 16, 0.99, kib);
        let mut cache = Cache::new(kib, ways);
        let mut plain = Plain::new(kib, ways.into());
        for _ in 0..200_000 {
            let kind = if zipf.chance(3) { 1 } else { 2 };
            both(&mut cache, &mut plain, zipf.draw(), kind);
        }
    }
}

/// Number of distinct lines of its set since a line's last access, for every access (Mattson's stack
/// distance), counted with a Fenwick tree over time.
fn stack_distances(lines: &[u64], sets: u64) -> Vec<Option<usize>> {
    let mut distances = vec![None; lines.len()];
    let mut by_set: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        by_set.entry(line % sets).or_default().push(at);
    }
    for accesses in by_set.values() {
        let mut tree = vec![0i64; accesses.len() + 1];
        let add = |tree: &mut Vec<i64>, at: usize, by: i64| {
            let mut at = at + 1;
            while at < tree.len() {
                tree[at] += by;
                at += at & at.wrapping_neg();
            }
        };
        let sum = |tree: &Vec<i64>, end: usize| {
            let (mut at, mut total) = (end, 0);
            while at > 0 {
                total += tree[at];
                at &= at - 1;
            }
            total
        };
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for (now, &at) in accesses.iter().enumerate() {
            if let Some(before) = last.insert(lines[at], now) {
                distances[at] = Some((sum(&tree, now) - sum(&tree, before + 1)) as usize);
                add(&mut tree, before, -1);
            }
            add(&mut tree, now, 1);
        }
    }
    distances
}

#[test]
fn hit_ratio_of_skewed_stream_matches_stack_distances() {
    let mut zipf = Zipf::new(1 << 18, 0.99, 7);
    let lines: Vec<u64> = (0..400_000).map(|_| zipf.draw()).collect();
    for sets in [1, 48, 1024] {
        let distances = stack_distances(&lines, sets);
        for ways in [1u64, 4, 16] {
            let ways = if sets == 1 { 4 * ways } else { ways };
            let mut cache = Cache::new(sets * ways / 16, ways as u16);
            let mut hits = 0;
            for (&line, distance) in lines.iter().zip(&distances) {
                let hit = cache.access(line, false) == Access::Hit;
                assert_eq!(hit, distance.is_some_and(|d| d < ways as usize), "{sets} sets, {ways} ways");
                hits += u64::from(hit);
            }
            assert!(hits > 0);
        }
    }
}

/// Textbook private levels, built on the plain cache.
struct PlainLevels(Vec<Plain>);

impl PlainLevels {
    /// The level that hit, and the dirty lines evicted from the last one.
    fn access(&mut self, line: u64, write: bool) -> (Option<usize>, Vec<u64>) {
        let hit = (0..self.0.len()).find(|&level| self.0[level].touch(line, write && level == 0));
        let mut spilled = Vec::new();
        for level in (0..hit.unwrap_or(self.0.len())).rev() {
            let mut victim = self.0[level].fill(line, write && level == 0);
            let mut next = level + 1;
            while let Some(Victim { line, dirty: true }) = victim {
                if next == self.0.len() {
                    spilled.push(line);
                    break;
                }
                victim = self.0[next].write_back(line);
                next += 1;
            }
        }
        (hit, spilled)
    }
}

fn private_levels(geometries: &[(u64, u16)]) -> (PrivateCaches, PlainLevels) {
    let caches: String = (1..)
        .zip(geometries)
        .map(|(at, &(kib, ways))| level(&format!("L{at}"), kib, ways, 10 * at, 1))
        .collect();
    let machine = machine(&format!("{caches}{}{}", socket("s", 1), node("n", Some("s"), 100.0, 1e4)));
    let plain = geometries.iter().map(|&(kib, ways)| Plain::new(kib, ways.into())).collect();
    (PrivateCaches::new(&machine), PlainLevels(plain))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn private_levels_match_reference_and_keep_dirty_lines(
        geometries in proptest::collection::vec(geometry(), 1..=3),
        accesses in proptest::collection::vec((0u64..700, any::<bool>()), 0..2000),
    ) {
        let (mut caches, mut plain) = private_levels(&geometries);
        let mut written = BTreeSet::new();
        for (line, write) in accesses {
            let mut spilled = Vec::new();
            let latency = caches.access(line, write, &mut spilled);
            let (hit, expected) = plain.access(line, write);
            prop_assert_eq!(latency, hit.map(|level| Time::from_ns(10.0 * (level as f64 + 1.0))));
            prop_assert_eq!(&spilled, &expected);
            if write {
                written.insert(line);
            }
            let dirty: BTreeSet<u64> = plain.0.iter().flat_map(Plain::dirty).collect();
            for line in &spilled {
                prop_assert!(written.contains(line), "line {} left dirty and was not written", line);
            }
            // Dirty copies of one line in two levels may leave at one access.
            written.retain(|line| dirty.contains(line) || !spilled.contains(line));
            prop_assert_eq!(&dirty, &written);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn first_level_taken_out_changes_nothing(
        geometries in proptest::collection::vec(geometry(), 1..=3),
        accesses in proptest::collection::vec((0u64..700, any::<bool>()), 0..2000),
    ) {
        let (mut whole, _) = private_levels(&geometries);
        let mut others = whole.clone();
        let mut first = others.take_first().expect("a level");
        for (line, write) in accesses {
            let (mut spilled, mut expected) = (Vec::new(), Vec::new());
            let latency = match first.access(line, write) {
                Access::Hit => Some(Time::from_ns(10.0)),
                Access::Miss(victim) => others.missed_first(line, victim, &mut spilled),
            };
            prop_assert_eq!(latency, whole.access(line, write, &mut expected));
            prop_assert_eq!(spilled, expected);
        }
    }
}

#[test]
fn dirty_copies_of_two_levels_may_leave_at_one_access() {
    let (mut caches, mut plain) = private_levels(&[(7, 1), (3, 1), (1, 1)]);
    let mut twice = false;
    let mut line = 1u64;
    for _ in 0..200_000 {
        line = (line * 1_103_515_245 + 12_345) % (1 << 31);
        let (at, write) = ((line >> 8) % 700, line & 128 != 0);
        let mut spilled = Vec::new();
        caches.access(at, write, &mut spilled);
        assert_eq!(spilled, plain.access(at, write).1);
        twice |= spilled.len() == 2 && spilled[0] == spilled[1];
    }
    assert!(twice, "no line left twice at one access");
}

#[test]
fn every_written_line_leaves_when_others_fill_all_levels() {
    let (mut caches, _) = private_levels(&[(1, 2), (3, 3), (8, 8)]);
    let mut spilled = Vec::new();
    for line in 0..300 {
        caches.access(line, line % 3 == 0, &mut spilled);
    }
    for line in 10_000..12_000 {
        caches.access(line, false, &mut spilled);
    }
    spilled.sort_unstable();
    assert_eq!(spilled, (0..300).step_by(3).collect::<Vec<u64>>());
}

#[test]
fn without_private_levels_a_store_is_not_lost() {
    let machine = machine(&format!("{}{}", socket("s", 1), node("n", Some("s"), 100.0, 1e4)));
    let mut caches = PrivateCaches::new(&machine);
    let mut spilled = Vec::new();
    assert_eq!(caches.access(5, false, &mut spilled), None);
    assert_eq!(spilled, []);
    assert_eq!(caches.access(6, true, &mut spilled), None);
    assert_eq!(spilled, [6]);
}
