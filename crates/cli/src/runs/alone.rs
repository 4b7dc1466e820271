//! Each program of a mix alone on the machine: what its slow-down is measured against.

use std::sync::Arc;

use memtide_core::{InitiatorId, Time};
use memtide_policies::Policy;

use super::Runs;
use crate::failure::Failure;
use crate::parallel;
use crate::progress::Progress;

/// The programs of a mix, each distinct one once. Equal programs whose CPUs are alike count as one, copies
/// with their different seeds, too.
pub struct Alone {
    /// Runs of one program each, on CPUs that it has in the mix.
    runs: Vec<Runs>,
    /// Number of the run of each program of the mix.
    of_program: Vec<usize>,
    /// Whether policies share a pass, as in the mix.
    exact: bool,
}

impl Runs {
    /// The programs alone, with policies run as [`Runs::run_each`] does; without runs for a single program.
    pub fn alone(&self, policies: usize, exact: bool) -> Result<Alone, Failure> {
        let jobs = self.jobs()?;
        let exact = exact || policies == 1 || !memtide_sim::can_share(&self.machine, &jobs);
        let mut alone = Alone { runs: Vec::new(), of_program: Vec::new(), exact };
        if jobs.len() < 2 {
            return Ok(alone);
        }
        let reduced = self.machine.reduced();
        let sources = self.programs.iter().flat_map(|source| (0..self.copies).map(move |_| source));
        let mut known: Vec<(_, Vec<InitiatorId>)> = Vec::new();
        for (source, cpus) in sources.zip(memtide_sim::assigned_cpus(&self.machine, &jobs)) {
            let initiators = cpus.iter().map(|&cpu| reduced.initiator_of(cpu)).collect();
            let key = (&source.what, initiators);
            let number = known.iter().position(|other| *other == key).unwrap_or(known.len());
            if number == known.len() {
                known.push(key);
                alone.runs.push(Runs {
                    machine: self.machine.clone(),
                    programs: Arc::new([source.clone()]),
                    starts: Arc::new([Time::ZERO]),
                    cpus,
                    copies: 1,
                    options: self.options,
                    seed: self.seed,
                });
            }
            alone.of_program.push(number);
        }
        Ok(alone)
    }
}

impl Alone {
    /// Parts of the progress that [`Alone::times_ms`] needs.
    pub fn parts(&self, policies: usize) -> usize {
        self.runs.len() * policies
    }

    /// Time of each program of the mix alone, in ms, by policy; empty for a single program. `first` is the
    /// first part of the progress.
    pub fn times_ms(
        &self,
        policies: &[Policy],
        progress: &Progress,
        first: usize,
    ) -> Result<Vec<Vec<f64>>, Failure> {
        if self.runs.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.of_runs(policies, progress, first)?;
        let of_policy = |policy: usize| self.of_program.iter().map(|&run| all[run][policy]).collect();
        Ok((0..policies.len()).map(of_policy).collect())
    }

    /// Times by run, then by policy.
    fn of_runs(
        &self,
        policies: &[Policy],
        progress: &Progress,
        first: usize,
    ) -> Result<Vec<Vec<f64>>, Failure> {
        let part = |run: usize| first + run * policies.len();
        if !self.exact {
            let times = |(number, run): (usize, &Runs)| {
                let reports = run.run_parts(policies, progress, part(number), false)?;
                Ok(reports.iter().map(|report| report.program_times_ms[0]).collect())
            };
            return self.runs.iter().enumerate().map(times).collect();
        }
        let each: Vec<(usize, usize)> = (0..self.runs.len())
            .flat_map(|run| (0..policies.len()).map(move |policy| (run, policy)))
            .collect();
        let times = parallel::map(&each, |_, &(run, policy)| {
            let report = self.runs[run].run(&policies[policy], progress, part(run) + policy)?;
            Ok(report.program_times_ms[0])
        });
        let times = times.into_iter().collect::<Result<Vec<f64>, Failure>>()?;
        Ok(times.chunks(policies.len()).map(<[f64]>::to_vec).collect())
    }
}
