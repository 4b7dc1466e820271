//! Runs whose pages are placed and moved with the future known.

use std::sync::Mutex;

use memtide_sim::{Report, Window};

use super::{Runs, watcher};
use crate::failure::Failure;
use crate::parallel;
use crate::progress::Progress;

/// Plans that are tried at most: parts of the progress that [`Runs::oracle`] needs.
pub const ORACLE_PARTS: usize = memtide_sim::ORACLE_PLANS;

impl Runs {
    /// The fastest of the runs whose pages are placed and moved by their reads; `None` if the machine has one
    /// node, and nothing to place.
    pub fn oracle(
        &self,
        windows: &[Window],
        progress: &Progress,
        first: usize,
        exact: bool,
    ) -> Result<Option<Report>, Failure> {
        if self.machine.nodes.len() < 2 {
            return Ok(None);
        }
        let policies = memtide_sim::oracle_policies(&self.machine, windows);
        (policies.len()..ORACLE_PARTS).for_each(|part| progress.set(first + part, 1.0));
        let jobs = self.jobs()?;
        let reports = if exact || !memtide_sim::can_share(&self.machine, &jobs) {
            drop(jobs);
            let policies: Vec<_> = policies.into_iter().map(|policy| Mutex::new(Some(policy))).collect();
            parallel::map(&policies, |part, policy| {
                let policy = policy.lock().expect("no holder panics").take().expect("run once");
                let mut watch = watcher(progress, first + part);
                Ok(memtide_sim::run(&self.machine, self.jobs()?, policy, self.seed, &mut watch))
            })
        } else {
            let watch = |part: usize, done: Option<f64>| watcher(progress, first + part)(done);
            let reports = memtide_sim::run_shared(&self.machine, jobs, policies, self.seed, &watch);
            reports.into_iter().map(Ok).collect()
        };
        let mut best: Option<Report> = None;
        for report in reports {
            let report = report?.map_err(|error| self.failure_of("oracle", error))?;
            if best.as_ref().is_none_or(|best| report.time_ms < best.time_ms) {
                best = Some(report);
            }
        }
        Ok(best)
    }
}
