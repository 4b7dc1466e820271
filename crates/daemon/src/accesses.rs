//! Where sampled accesses went, by task and node.

use std::collections::BTreeMap;

use memtide_core::TaskId;
use memtide_core::policy::Event;

/// Weight of earlier accesses, by epoch.
const KEPT: f64 = 0.8;

/// Accesses below which a task is forgotten.
const FORGOTTEN: f64 = 1.0;

/// Sampled accesses of tasks on each node, which count less with each epoch.
#[derive(Debug, Default)]
pub struct Accesses(BTreeMap<TaskId, Vec<f64>>);

impl Accesses {
    /// Ends an epoch.
    pub fn end_epoch(&mut self, events: &[Event]) {
        self.0.values_mut().flatten().for_each(|accesses| *accesses *= KEPT);
        for event in events {
            let Event::AccessSample(sample) = event else { continue };
            let nodes = self.0.entry(sample.task).or_default();
            nodes.resize(nodes.len().max(sample.node.index() + 1), 0.0);
            nodes[sample.node.index()] += f64::from(sample.period);
        }
        self.0.retain(|_, nodes| nodes.iter().sum::<f64>() >= FORGOTTEN);
    }

    /// Share of a task's accesses on each of `nodes` nodes, in percent; `None` without samples.
    pub fn of_task(&self, task: TaskId, nodes: usize) -> Option<Vec<f64>> {
        shares(self.0.get(&task).into_iter(), nodes)
    }

    /// The same of all tasks.
    pub fn of_all(&self, nodes: usize) -> Option<Vec<f64>> {
        shares(self.0.values(), nodes)
    }
}

fn shares<'a>(tasks: impl Iterator<Item = &'a Vec<f64>>, nodes: usize) -> Option<Vec<f64>> {
    let mut sum = vec![0.0; nodes];
    for task in tasks {
        sum.iter_mut().zip(task).for_each(|(sum, accesses)| *sum += accesses);
    }
    let all: f64 = sum.iter().sum();
    (all > 0.0).then(|| sum.into_iter().map(|accesses| accesses / all * 100.0).collect())
}

#[cfg(test)]
mod tests {
    use memtide_core::policy::AccessSample;
    use memtide_core::{NodeId, PageSize, ThreadId, Time, Vpn};

    use super::*;

    fn samples(task: u32, node: u8, number: usize) -> Vec<Event> {
        let (task, thread, node, period) = (TaskId(task), ThreadId(task), NodeId(node), 100);
        let (time, latency, size) = (Time::ZERO, None, PageSize::Base);
        let of = Event::AccessSample(AccessSample {
            time,
            task,
            thread,
            page: Vpn(1),
            size,
            node,
            latency,
            period,
            write: false,
        });
        vec![of; number]
    }

    #[test]
    fn shares_are_those_of_recent_accesses() {
        let mut accesses = Accesses::default();
        assert_eq!(accesses.of_all(2), None);
        accesses.end_epoch(&[samples(1, 0, 30), samples(1, 1, 10), samples(2, 1, 40)].concat());
        assert_eq!(accesses.of_task(TaskId(1), 2), Some(vec![75.0, 25.0]));
        assert_eq!(accesses.of_task(TaskId(3), 2), None);
        assert_eq!(accesses.of_all(3), Some(vec![37.5, 62.5, 0.0]));
        (0..20).for_each(|_| accesses.end_epoch(&samples(1, 1, 10)));
        assert!(accesses.of_task(TaskId(1), 2).is_some_and(|shares| shares[1] > 98.0));
        (0..60).for_each(|_| accesses.end_epoch(&[]));
        assert_eq!((accesses.of_all(2), accesses.0.len()), (None, 0));
    }
}
