//! What programs did in the latest windows: W of bdm's algorithms.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::policy::View;
use memtide_core::{TaskId, ThreadId, Time};
use serde::{Deserialize, Serialize};

/// The latest windows, the newest last.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Windows {
    most: usize,
    windows: VecDeque<Vec<(TaskId, Program)>>,
    /// The last view's time, and its counts since the programs' start.
    time: Time,
    bytes: Vec<(TaskId, ThreadId, u64)>,
    page_faults: Vec<(TaskId, u64)>,
}

/// What a program did in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Program {
    /// Mean bandwidth of its threads, and that of the busiest, in bytes per second.
    mean: u64,
    busiest: u64,
    page_faults: u64,
}

impl Windows {
    /// None yet; at most this many, at least one.
    pub fn new(most: usize) -> Windows {
        let (windows, bytes, page_faults) = Default::default();
        Windows { most: most.max(1), windows, time: Time::ZERO, bytes, page_faults }
    }

    /// Takes another's maximum.
    pub fn limit_to(&mut self, other: &Windows) {
        self.most = other.most;
        self.windows.drain(..self.windows.len().saturating_sub(self.most));
    }

    /// Adds the window that ends with a view: algorithm 2.
    pub fn add(&mut self, view: &View) {
        let elapsed = view.time.since(self.time.min(view.time)).0.max(1);
        let before: BTreeMap<(TaskId, ThreadId), u64> =
            self.bytes.iter().map(|&(task, thread, bytes)| ((task, thread), bytes)).collect();
        let faults: BTreeMap<TaskId, u64> = self.page_faults.iter().copied().collect();
        self.bytes.clear();
        let mut rates: BTreeMap<TaskId, Vec<u64>> = BTreeMap::new();
        for thread in &view.threads {
            let Some(traffic) = thread.traffic else { continue };
            let bytes = traffic.read_bytes.saturating_add(traffic.written_bytes);
            let known = before.get(&(thread.task, thread.thread)).copied().unwrap_or_default();
            let rate = u128::from(bytes.saturating_sub(known)) * 1_000_000_000_000 / u128::from(elapsed);
            rates.entry(thread.task).or_default().push(rate.min(u64::MAX.into()) as u64);
            self.bytes.push((thread.task, thread.thread, bytes));
        }
        self.page_faults =
            view.tasks.iter().filter_map(|task| Some((task.task, task.page_faults?))).collect();
        let program = |(task, rates): (TaskId, Vec<u64>)| {
            let now = self.page_faults.iter().find(|(known, _)| *known == task).map_or(0, |(_, now)| *now);
            let all: u128 = rates.iter().copied().map(u128::from).sum();
            let program = Program {
                mean: (all / rates.len() as u128) as u64,
                busiest: rates.into_iter().max().unwrap_or_default(),
                page_faults: now.saturating_sub(faults.get(&task).copied().unwrap_or_default()),
            };
            (task, program)
        };
        self.windows.push_back(rates.into_iter().map(program).collect());
        self.windows.drain(..self.windows.len().saturating_sub(self.most));
        self.time = view.time;
    }

    /// The programs of the newest window, by predicted bandwidth that their threads share evenly, highest
    /// first, without those that fault more often than the mean: `regressionAndSort` and the filter of
    /// algorithm 3.
    pub fn by_even_bandwidth(&self) -> Vec<TaskId> {
        let Some(newest) = self.windows.back() else { return Vec::new() };
        let faults: u128 = newest.iter().map(|(_, program)| u128::from(program.page_faults)).sum();
        let rarely = |program: &Program| u128::from(program.page_faults) * newest.len() as u128 <= faults;
        let rarely = newest.iter().filter(|(_, program)| rarely(program));
        let mut ranked: Vec<(TaskId, f64)> =
            rarely.map(|(task, program)| (*task, self.predicted(*task) * program.evenness())).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().filter(|(_, score)| *score > 0.0).map(|(task, _)| task).collect()
    }

    /// Mean bandwidth of a program's threads in the next window, by linear regression over the latest ones.
    fn predicted(&self, task: TaskId) -> f64 {
        let of = |window: &Vec<(TaskId, Program)>| {
            window.iter().find(|(known, _)| *known == task).map(|(_, program)| program.mean as f64)
        };
        let seen: Vec<(f64, f64)> = (0..)
            .map(f64::from)
            .zip(&self.windows)
            .filter_map(|(at, window)| Some((at, of(window)?)))
            .collect();
        let count = seen.len() as f64;
        let mean_at = seen.iter().map(|(at, _)| at).sum::<f64>() / count;
        let mean = seen.iter().map(|(_, bandwidth)| bandwidth).sum::<f64>() / count;
        let spread: f64 = seen.iter().map(|(at, _)| (at - mean_at) * (at - mean_at)).sum();
        let along: f64 = seen.iter().map(|(at, bandwidth)| (at - mean_at) * (bandwidth - mean)).sum();
        let slope = if spread > 0.0 { along / spread } else { 0.0 };
        mean + slope * (self.windows.len() as f64 - mean_at)
    }
}

impl Program {
    /// Mean over highest bandwidth of its threads: 1 if all draw the same.
    fn evenness(&self) -> f64 {
        if self.busiest > 0 { self.mean as f64 / self.busiest as f64 } else { 0.0 }
    }
}
