//! `utility-cache`: gives each way of the last-level cache to the task that has most hits by it.
//!
//! ```text
//! hits by recency position   a: 9 8 1 0 0 0   b: 5 0 0 0 12 0      6 ways
//! one way each               a: 1             b: 1                 4 left
//! most hits per way          a: 8 by 1 more   b: 12 by 4 more: 3 a way -> a gets 1, 3 left
//!                            a: 1 by 1 more   b: 0 by 3 more           -> a gets 1, 2 left
//! ```
//!
//! Looking ahead over several ways finds steps in the hits that one way more never shows. Tasks compete if
//! they use the same cache, or caches of tasks that do.

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Action, CacheUtility, Delivery, Event, Migration, Plan, Reason, Sensor, Sensors, View, Wake,
};
use memtide_core::{CacheId, Machine, TaskId, Time};

use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "utility-cache",
        summary: "moves no page; divides the last-level cache's ways among programs by the hits they bring",
        when: "programs that run together use the last-level cache unequally well",
        source: "Qureshi and Patt, MICRO 2006, lookahead algorithm; memos section IV: its rival",
        figures: false,
        parameters: &[Parameter::integer(
            "epoch_ms",
            "ms",
            "time between two partitions; 5 million cycles of 2.5 GHz",
            [1, 2, 600_000],
        )],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(UtilityCache::new(machine, values)),
};

struct UtilityCache {
    epoch: Time,
    /// Whether the machine's last level is shared.
    is_shared: bool,
}

impl UtilityCache {
    fn new(machine: &Machine, values: &Values) -> UtilityCache {
        UtilityCache {
            epoch: Time::from_ms(values.u32("epoch_ms").into()),
            is_shared: machine.caches.last().is_some_and(|cache| cache.is_shared()),
        }
    }
}

impl Migration for UtilityCache {
    fn sensors(&self) -> Sensors {
        if !self.is_shared {
            return Sensors::new(Delivery::Deployable, Time::NEVER);
        }
        Sensors::new(Delivery::Deployable, self.epoch).require(Sensor::CacheUtility)
    }

    fn on_event(&mut self, _: &Event, _: &View, _: &mut Plan) {}

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        if !self.is_shared {
            return Wake::Never;
        }
        let groups = competing(&view.cache_utility);
        let mut changes: Vec<Change> = groups.iter().flat_map(|group| changes(group)).collect();
        // Ways must be free before others get them.
        changes.sort_by_key(Change::needs_ways);
        for Change { task, to, .. } in changes {
            plan.push(Action::CacheQuota(task, to), Reason::CacheUtility);
        }
        Wake::After(self.epoch)
    }
}

/// Change of a task's quota.
#[derive(Clone, Copy, Debug)]
struct Change {
    task: TaskId,
    from: Option<NonZeroU16>,
    to: Option<NonZeroU16>,
}

impl Change {
    /// Whether the new quota is larger; a task without a quota owns no way.
    fn needs_ways(&self) -> bool {
        self.to > self.from
    }
}

/// Tasks that share caches, directly or by others, in the tasks' order.
fn competing(all: &[CacheUtility]) -> Vec<Vec<&CacheUtility>> {
    let mut groups: Vec<(BTreeSet<CacheId>, Vec<&CacheUtility>)> = Vec::new();
    for utility in all.iter().filter(|utility| !utility.caches.is_empty()) {
        let used: BTreeSet<CacheId> = utility.caches.iter().copied().collect();
        let (shared, others): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(caches, _)| !caches.is_disjoint(&used));
        groups = others;
        let (mut caches, mut tasks) = (used, vec![utility]);
        for (more, members) in shared {
            caches.extend(more);
            tasks.extend(members);
        }
        tasks.sort_by_key(|utility| utility.task);
        groups.push((caches, tasks));
    }
    groups.into_iter().map(|(_, tasks)| tasks).collect()
}

/// Changes of the quotas of tasks that compete. A task alone, and more tasks than ways, have no quotas.
fn changes(group: &[&CacheUtility]) -> Vec<Change> {
    let ways = group.iter().map(|utility| utility.hits.len()).min().unwrap_or(0);
    let quotas = match group.len() {
        2.. if group.len() <= ways => {
            let hits: Vec<&[u64]> = group.iter().map(|utility| &utility.hits[..ways]).collect();
            lookahead(&hits).into_iter().map(|ways| NonZeroU16::new(ways as u16)).collect()
        }
        _ => vec![None; group.len()],
    };
    let change = |(of, to): (&&CacheUtility, _)| Change { task: of.task, from: of.quota_ways, to };
    group.iter().zip(quotas).map(change).filter(|change| change.from != change.to).collect()
}

/// Further ways of a task, and the hits that they bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    ways: usize,
    hits: u128,
}

impl Step {
    /// Whether it brings more hits per way than another.
    fn beats(self, other: Step) -> bool {
        self.hits * other.ways as u128 > other.hits * self.ways as u128
    }
}

/// Ways of each task, from its hits by recency position: at least one, and all of them in sum. There are at
/// least as many ways as tasks.
fn lookahead(hits: &[&[u64]]) -> Vec<usize> {
    let mut ways = vec![1; hits.len()];
    let mut left = hits[0].len() - hits.len();
    while left > 0 {
        let steps = (0..hits.len()).map(|task| (task, best_step(hits[task], ways[task], left)));
        let (task, step) = steps
            .reduce(|best, other| {
                let is_better = match (other.1.beats(best.1), best.1.beats(other.1)) {
                    (false, false) => rank(hits[other.0], ways[other.0]) < rank(hits[best.0], ways[best.0]),
                    (beats, _) => beats,
                };
                if is_better { other } else { best }
            })
            .expect("a task");
        ways[task] += step.ways;
        left -= step.ways;
    }
    ways
}

/// Order of tasks to which a way brings equally many hits: those with hits first, then those with few ways.
fn rank(hits: &[u64], ways: usize) -> (bool, usize) {
    (hits.iter().all(|hits| *hits == 0), ways)
}

/// The step from a number of ways that brings most hits per way, the smallest of equal ones.
fn best_step(hits: &[u64], ways: usize, left: usize) -> Step {
    let mut best = Step { ways: 1, hits: 0 };
    let mut sum = 0;
    for (more, hits) in (1..=left).zip(&hits[ways..]) {
        sum += u128::from(*hits);
        let step = Step { ways: more, hits: sum };
        if step.beats(best) {
            best = step;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::Planned;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{bmpm, with_last_level};

    /// A machine whose last level has 16 ways, shared by the CPUs of a socket.
    fn shared() -> Machine {
        with_last_level(bmpm(2.0))
    }

    fn utility(task: u32, cache: u16, quota: u16, hits: &[u64]) -> CacheUtility {
        let (caches, quota_ways) = (vec![CacheId(cache)], NonZeroU16::new(quota));
        CacheUtility { task: TaskId(task), caches, quota_ways, hits: hits.to_vec(), misses: 0 }
    }

    /// Planned quotas, 0 for none.
    fn planned(machine: &Machine, cache_utility: Vec<CacheUtility>) -> Vec<(u32, u16)> {
        let mut policy = crate::parse("local+utility-cache").expect("a policy").migration(machine);
        let view = View { cache_utility, ..View::default() };
        let mut plan = Plan::default();
        policy.decide(&view, &mut plan);
        let quota = |planned: &Planned| match planned.action {
            Action::CacheQuota(task, ways) => (task.0, ways.map_or(0, NonZeroU16::get)),
            _ => panic!("{planned:?}"),
        };
        plan.actions().iter().map(quota).collect()
    }

    /// Hits of 16 recency positions: this many at each of the given ones, else none.
    fn at(positions: impl IntoIterator<Item = usize>, hits: u64) -> [u64; 16] {
        let mut all = [0; 16];
        positions.into_iter().for_each(|position| all[position] = hits);
        all
    }

    /// One way after another to the task to which it brings most hits.
    fn greedy(hits: &[&[u64]]) -> Vec<usize> {
        let mut ways = vec![1; hits.len()];
        for _ in hits.len()..hits[0].len() {
            let gains = |task: &usize| hits[*task].get(ways[*task]);
            let best = (0..hits.len()).rev().max_by_key(gains).expect("a task");
            ways[best] += 1;
        }
        ways
    }

    fn hits_with(hits: &[&[u64]], ways: &[usize]) -> u64 {
        hits.iter().zip(ways).map(|(hits, ways)| hits[..*ways].iter().sum::<u64>()).sum()
    }

    /// A task that gains nothing until it has 12 ways, beside one that gains a little by each.
    #[test]
    fn lookahead_finds_a_step_that_greedy_misses() {
        let (step, slope) = (at([11], 1200), at(0..16, 10));
        let hits = [&step[..], &slope[..]];
        assert_eq!(greedy(&hits), [1, 15]);
        assert_eq!(lookahead(&hits), [12, 4]);
        let best = (1..16).map(|first| hits_with(&hits, &[first, 16 - first])).max();
        assert_eq!(Some(hits_with(&hits, &lookahead(&hits))), best);
        assert_eq!(best, Some(1240));
    }

    #[test]
    fn streaming_program_gets_one_way() {
        let (friendly, streaming) = (at(0..10, 50), [0; 16]);
        assert_eq!(lookahead(&[&streaming, &friendly]), [1, 15], "ways that bring no hits, too");
        assert_eq!(lookahead(&[&streaming, &friendly, &streaming, &friendly]), [1, 7, 1, 7]);
    }

    #[test]
    fn equal_programs_get_equal_shares() {
        for hits in [at(0..16, 5), at([7], 9), at(0..3, 100), [0; 16]] {
            assert_eq!(lookahead(&[&hits[..]; 2]), [8, 8], "{hits:?}");
            assert_eq!(lookahead(&[&hits[..]; 4]).iter().sum::<usize>(), 16);
        }
        assert_eq!(lookahead(&[&at(0..16, 5)[..]; 4]), [4; 4]);
    }

    #[test]
    fn saturating_program_leaves_the_rest_to_the_other() {
        let (few, many) = (at(0..3, 1000), at(0..16, 10));
        assert_eq!(lookahead(&[&few, &many]), [3, 13]);
    }

    #[test]
    fn changes_alone_are_planned_and_reductions_first() {
        let (few, many) = (at(0..3, 1000), at(0..16, 10));
        let tasks = |quotas: [u16; 2]| vec![utility(1, 0, quotas[0], &many), utility(4, 0, quotas[1], &few)];
        assert_eq!(planned(&shared(), tasks([0, 0])), [(1, 13), (4, 3)]);
        assert_eq!(planned(&shared(), tasks([13, 3])), []);
        assert_eq!(planned(&shared(), tasks([8, 8])), [(4, 3), (1, 13)]);
    }

    #[test]
    fn programs_of_other_caches_do_not_compete() {
        let hits = at(0..16, 10);
        let task = |number, cache| utility(number, cache, 0, &hits);
        assert_eq!(planned(&shared(), vec![task(1, 0), task(2, 1)]), []);
        let four = vec![task(1, 0), task(2, 1), task(3, 0), task(4, 1)];
        assert_eq!(planned(&shared(), four), [(1, 8), (3, 8), (2, 8), (4, 8)]);
        let across = CacheUtility { caches: vec![CacheId(0), CacheId(1)], ..task(3, 0) };
        let mut quotas = planned(&shared(), vec![task(1, 0), task(2, 1), across]);
        quotas.sort_unstable();
        assert_eq!(quotas, [(1, 6), (2, 5), (3, 5)], "a cache has the ways of all three");
    }

    #[test]
    fn nothing_is_planned_for_one_program_or_without_a_shared_cache() {
        let hits = at(0..16, 10);
        assert_eq!(planned(&shared(), vec![utility(1, 0, 0, &hits)]), []);
        assert_eq!(planned(&shared(), vec![utility(1, 0, 9, &hits)]), [(1, 0)], "once the other has ended");
        let two = || vec![utility(1, 0, 0, &hits), utility(2, 0, 0, &hits)];
        assert_eq!(planned(&bmpm(2.0), two()), []);
        let policy = crate::parse("local+utility-cache").expect("a policy").migration(&bmpm(2.0));
        assert_eq!((policy.sensors().first_epoch, policy.sensors().iter().count()), (Time::NEVER, 0));
        let many = (0..17).map(|task| utility(task, 0, 0, &hits)).collect();
        assert_eq!(planned(&shared(), many), [], "more programs than ways");
    }

    proptest! {
        #[test]
        fn ways_sum_to_the_associativity_and_each_program_has_one(
            hits in (1usize..40).prop_flat_map(|ways| {
                let task = prop_oneof![0u64..4, any::<u64>()];
                proptest::collection::vec(proptest::collection::vec(task, ways), 1..=ways.min(6))
            })
        ) {
            let hits: Vec<&[u64]> = hits.iter().map(Vec::as_slice).collect();
            let ways = lookahead(&hits);
            prop_assert_eq!(ways.iter().sum::<usize>(), hits[0].len());
            prop_assert!(ways.iter().all(|ways| *ways >= 1));
        }
    }
}
