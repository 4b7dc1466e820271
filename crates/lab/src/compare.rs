//! A comparison: one program under several subjects, each in a fresh, identical virtual machine.

use std::io::{sink, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memtide_lab_protocol::agent::Write;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use crate::error::LabError;
use crate::guest::Supervision;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::options::{Options, Output};
use crate::outcome::RunOutcome;
use crate::result_cache::{self, ResultCache};
use crate::run::run_guest;
use crate::spec::GuestSpec;
use crate::subjects::{Setting, Subject};
use crate::time_scale::TimeScale;
use crate::tools::Tools;

/// `randomize_va_space`: full address space randomisation, from the run's seed.
const RANDOMIZE: &str = "/proc/sys/kernel/randomize_va_space";

/// What to compare.
pub struct Comparison {
    /// Options of each run; each subject adds its own settings.
    pub options: Options,
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// Runs per subject, each with a different memory layout; at least 1.
    pub layouts: u32,
    /// The subjects' time scale.
    pub time_scale: TimeScale,
    /// Folder of cached results; created if missing.
    pub results: PathBuf,
}

/// Runs of one subject.
pub struct Compared {
    /// The subject.
    pub subject: Subject,
    /// Its settings in the guest.
    pub setting: Setting,
    /// Whether it needs tiers and Linux sees only one on this machine: [`Subject::lacks_tiers`].
    pub lacks_tiers: bool,
    /// One outcome per memory layout.
    pub outcomes: Vec<RunOutcome>,
}

/// A finished run.
pub struct Step<'a> {
    /// Finished runs, including this one.
    pub done: usize,
    /// Runs in all.
    pub of: usize,
    /// Its subject.
    pub subject: &'a Subject,
    /// Its outcome.
    pub outcome: &'a RunOutcome,
    /// Host time; `None` if the result was cached.
    pub took: Option<Duration>,
}

impl Comparison {
    /// Performs the runs whose results are not cached. The program's standard error is forwarded, its
    /// standard output dropped. `report` is called after each run; `stop` is polled for cancellation.
    ///
    /// # Errors
    /// If runs cannot be equal, a subject is not available on this machine, or a run or its program fails.
    pub fn run(
        &self,
        tools: &Tools,
        report: &mut dyn FnMut(&Step),
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Compared>, LabError> {
        self.check()?;
        let layout = Layout::with(&self.options.machine, self.options.vcpus, &self.options.memory)?;
        let settings: Vec<Setting> = self.settings(tools, &layout)?;
        let clock = tools.clock_for(self.options.timing)?;
        let base = GuestSpec::new(&self.options, layout, clock, tools);
        let cache = ResultCache::open(&self.results)?;
        let (mut done, of) = (0, self.subjects.len() * self.layouts as usize);
        let mut all = Vec::new();
        for (subject, setting) in self.subjects.iter().zip(settings) {
            let mut outcomes = Vec::new();
            for number in 0..self.layouts {
                let guest = self.guest_of(&base, &setting, number);
                let (outcome, took) = self.one(&guest, subject, &cache, stop)?;
                done += 1;
                report(&Step { done, of, subject, outcome: &outcome, took });
                outcomes.push(outcome);
            }
            all.push(Compared {
                subject: subject.clone(),
                setting,
                lacks_tiers: subject.lacks_tiers(&base.layout),
                outcomes,
            });
        }
        Ok(all)
    }

    /// Checks that runs differ in nothing but the subject.
    fn check(&self) -> Result<(), LabError> {
        let is_shared = |memory: &Memory| matches!(memory, Memory::Shared(_));
        let shared = self.options.memory.iter().find(|(_, memory)| is_shared(memory));
        let what = match shared {
            Some((node, _)) => {
                format!("cannot share node '{node}': each run would see what previous runs left in its file")
            }
            None if self.options.parallel => {
                "cannot run virtual CPUs in parallel: it compares times on the guest's clock, which is then \
                 the host's and ignores the modelled memory"
                    .to_owned()
            }
            None => return Ok(()),
        };
        Err(LabError::Comparison(what))
    }

    fn settings(&self, tools: &Tools, layout: &Layout) -> Result<Vec<Setting>, LabError> {
        let timed = self.options.timing != Some(false) && tools.clock.is_some();
        let setting = |subject: &Subject| {
            if subject.needs_accessed_bits() && !timed {
                return Err(stale(subject, "the run is not timed"));
            }
            subject.setting(&self.options.machine, layout, tools, self.time_scale)
        };
        self.subjects.iter().map(setting).collect()
    }

    /// The guest of a subject with a memory layout.
    fn guest_of(&self, base: &GuestSpec, setting: &Setting, number: u32) -> GuestSpec {
        let mut guest = GuestSpec { setting: setting.clone(), ..base.clone() };
        if self.layouts > 1 {
            guest.seed = seed_of(base.seed, number);
            guest.fragment_memory = Some(guest.seed);
            guest.setting.writes.push(Write { file: RANDOMIZE.into(), text: "2".into() });
        }
        guest
    }

    /// The outcome of a run, and its host time if it was not cached.
    fn one(
        &self,
        guest: &GuestSpec,
        subject: &Subject,
        cache: &ResultCache,
        stop: &dyn Fn() -> bool,
    ) -> Result<(RunOutcome, Option<Duration>), LabError> {
        let key = result_cache::key(guest)?;
        if let Some(outcome) = cache.find(&key) {
            return Ok((outcome, None));
        }
        let started = Instant::now();
        let output = Output { out: Box::new(sink()), err: Box::new(stderr()) };
        // Absent nodes stay absent: results would depend on the time of plugging.
        let supervision = Supervision { hotplug: false, ..Supervision::new(&self.options) };
        let outcome = run_guest(guest, supervision, output, stop)?;
        check(subject, &outcome)?;
        cache.store(&key, &outcome)?;
        Ok((outcome, Some(started.elapsed())))
    }
}

/// The seed of a memory layout, distinct across the comparison's seeds.
fn seed_of(seed: u64, number: u32) -> u64 {
    let mut seeds = SplitMix64::seed_from_u64(seed);
    for _ in 0..number {
        seeds.next_u64();
    }
    seeds.next_u64()
}

fn check(subject: &Subject, outcome: &RunOutcome) -> Result<(), LabError> {
    let untimed = outcome.timing.as_ref().filter(|timing| !timing.hook);
    if let Some(timing) = untimed.filter(|_| subject.needs_accessed_bits()) {
        return Err(stale(subject, timing.why.as_deref().unwrap_or("QEMU's clock was not found")));
    }
    if outcome.status == 0 {
        return Ok(());
    }
    let mut what = match outcome.signal {
        Some(signal) => format!("signal {signal} ended the program"),
        None => format!("the program ended with exit status {}", outcome.status),
    };
    for note in &outcome.notes {
        what += &format!("; {note}");
    }
    Err(LabError::Subject { subject: subject.name().to_owned(), what })
}

fn stale(subject: &Subject, why: &str) -> LabError {
    let what = format!(
        "it uses the accessed bits of page tables, which are valid only while the clock plugin drives QEMU's \
         TLB: {why}"
    );
    LabError::Subject { subject: subject.name().to_owned(), what }
}
