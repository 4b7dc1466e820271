//! The program that a profile describes.

use memtide_core::{LINE_BYTES, PAGE_BYTES};

use super::{Locality, Profile, Stage};
use crate::WorkloadError;
use crate::array::{Array, Space};
use crate::memory::{Loaded, Memory};
use crate::params::Settings;
use crate::random::Random;
use crate::workload::{Phase, Workload, block};

const LINE_WORDS: u64 = LINE_BYTES / 8;
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
/// Lines of an item.
const BLOCK: u64 = 512;

/// Threads that compute, access lines in a burst and wait for each other, period after period.
pub struct Synthetic {
    threads: usize,
    seed: u64,
    locality: Locality,
    /// How likely a line is written: each that is accessed is read, and those written are written back.
    store_share: f64,
    stages: Vec<Burst>,
    /// Rounds of all stages.
    rounds: usize,
    data: Array<u64>,
}

/// A period of a stage.
#[derive(Clone, Copy, Debug)]
struct Burst {
    periods: usize,
    /// Pages that are accessed: the first, and how many.
    first_page: u64,
    pages: u64,
    /// Lines of each thread.
    lines: u64,
    /// Instructions of each thread before its first line, and for each line.
    ahead: u64,
    each: f64,
}

#[derive(Clone, Copy)]
pub enum Step {
    Touch,
    Period { stage: usize },
}

/// What a thread keeps.
pub struct Local {
    thread: usize,
    random: Random,
    /// How many lines of the period it has accessed.
    done: u64,
    /// Lines that its walk has come by.
    walked: u64,
    /// The last access that was not part of the walk.
    last: Loaded<usize>,
}

impl Synthetic {
    /// The program that a profile describes, with the settings of its own parameters.
    pub fn new(
        profile: &Profile,
        settings: &Settings,
        seed: u64,
        space: &mut Space,
    ) -> Result<Self, WorkloadError> {
        let threads = settings.threads();
        let pages = settings.footprint_bytes() as u64 / PAGE_BYTES;
        let whole = [Stage { periods: 1, draw: 1.0, window: [0.0, 1.0] }];
        let phases = if profile.phases.is_empty() { &whole[..] } else { &profile.phases };
        let periods: usize = phases.iter().map(|stage| stage.periods).sum();
        let mean = phases.iter().map(|stage| stage.periods as f64 * stage.draw).sum::<f64>() / periods as f64;

        let intensity = settings.number("instructions_per_line");
        let lines = (profile.burst.period_instructions / intensity).max(1.0);
        let duty = profile.burst.duty;
        let burst = |stage: &Stage| {
            let [from, to] = stage.window.map(|share| (share * pages as f64) as u64);
            let own = libm::round(lines * stage.draw / mean).max(1.0);
            Burst {
                periods: stage.periods,
                first_page: from,
                pages: (to - from).max(1),
                lines: own as u64,
                ahead: (lines * intensity * (1.0 - duty)) as u64,
                each: lines * intensity * duty / own,
            }
        };
        let stages: Vec<_> = phases.iter().map(burst).collect();
        let round_lines: u64 = stages.iter().map(|burst| burst.lines * burst.periods as u64).sum();
        Ok(Synthetic {
            threads,
            seed,
            locality: profile.locality,
            store_share: profile.write_mbps / profile.read_mbps,
            stages,
            rounds: settings.size("operations").div_ceil(round_lines as usize * threads),
            data: space.array("data", (pages * PAGE_BYTES / 8) as usize)?,
        })
    }

    /// The next line of the thread's walk through its part of the window's pages.
    fn walk(&self, burst: &Burst, local: &mut Local) -> u64 {
        let own = block(burst.pages as usize, local.thread, self.threads);
        let (start, pages) = (own.start as u64, own.len().max(1) as u64);
        local.walked += 1;
        (burst.first_page + start) * PAGE_LINES + local.walked % (pages * PAGE_LINES)
    }

    /// A random line of the window: one of a hot page, which lie evenly spread, or any.
    fn draw(&self, burst: &Burst, local: &mut Local) -> u64 {
        let random = &mut local.random;
        let page = if random.unit() < self.locality.hot_share {
            let hot = ((burst.pages as f64 * self.locality.hot_footprint_share) as u64).max(1);
            random.below(hot) * burst.pages / hot
        } else {
            random.below(burst.pages)
        };
        (burst.first_page + page) * PAGE_LINES + random.below(PAGE_LINES)
    }

    fn access<M: Memory>(&self, m: &mut M, burst: &Burst, local: &mut Local) {
        let due = |lines: u64| (lines as f64 * burst.each) as u64;
        m.work((due(local.done + 1) - due(local.done)).saturating_sub(1));
        local.done += 1;
        let walks = local.random.unit() < self.locality.sequential_share;
        let waits = !walks && local.random.unit() < self.locality.dependent_share;
        let line = if walks { self.walk(burst, local) } else { self.draw(burst, local) };
        let word = (line * LINE_WORDS) as usize;
        let index = if waits { local.last.map(|zero| zero + word) } else { word.into() };
        if local.random.unit() < self.store_share {
            m.clear(&self.data, index);
        } else {
            let loaded = m.probe(&self.data, index);
            if !walks {
                local.last = loaded;
            }
        }
    }
}

impl Workload for Synthetic {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let pages = self.data.len() / (PAGE_LINES * LINE_WORDS) as usize;
        let period = |(stage, burst): (usize, &Burst)| {
            let items = burst.lines.div_ceil(BLOCK) as usize;
            std::iter::repeat_n(Phase::grouped(Step::Period { stage }, self.threads, items), burst.periods)
        };
        let round: Vec<_> = self.stages.iter().enumerate().flat_map(period).collect();
        std::iter::once(Phase::new(Step::Touch, pages)).chain(round.repeat(self.rounds)).collect()
    }

    fn local(&self, thread: usize) -> Local {
        let random = Random::new(self.seed, thread as u64);
        Local { thread, random, done: 0, walked: 0, last: 0.into() }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Period { stage } = step {
            local.done = 0;
            m.work(self.stages[stage].ahead);
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Touch => m.clear(&self.data, item * (PAGE_LINES * LINE_WORDS) as usize),
            Step::Period { stage } => {
                let burst = &self.stages[stage];
                for _ in 0..BLOCK.min(burst.lines - local.done) {
                    self.access(m, burst, local);
                }
            }
        }
    }

    fn result(&self) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::profiles;
    use crate::run::TracedProgram;
    use crate::testing::{Recorded, record};

    fn run(profile: &'static Profile, params: &str) -> Recorded {
        let settings = Settings::new(&profile.info(), &params.parse().unwrap()).unwrap();
        let mut space = Space::new(settings.page());
        let synthetic = Synthetic::new(profile, &settings, 1, &mut space).unwrap();
        record(&mut TracedProgram::new(synthetic, space), true)
    }

    /// Each thread's accesses after it has touched its pages.
    fn bursts(recorded: &Recorded) -> impl Iterator<Item = &[memtide_core::Access]> {
        let pages = recorded.mappings[0].bytes / PAGE_BYTES;
        let threads = recorded.streams.len();
        let streams = recorded.streams.iter().enumerate();
        streams.map(move |(thread, stream)| &stream[block(pages as usize, thread, threads).len()..])
    }

    fn near(found: f64, expected: f64, tolerance: f64) -> bool {
        (found - expected).abs() <= tolerance * expected.max(0.05)
    }

    #[test]
    fn every_profile_has_its_mix_intensity_and_dependences() {
        for profile in profiles() {
            let recorded = run(profile, "operations=200000,footprint_mib=8");
            let count = |test: &dyn Fn(&memtide_core::Access) -> bool| {
                bursts(&recorded).flatten().filter(|access| test(access)).count() as f64
            };
            let lines = count(&|_| true);
            assert!(lines >= 200_000.0);
            let stores = count(&|access| access.write) / lines;
            assert!(near(stores, profile.write_mbps / profile.read_mbps, 0.05), "{}: {stores}", profile.name);
            let intensity = recorded.instructions() as f64 / lines;
            assert!(near(intensity, profile.instructions_per_line, 0.02), "{}: {intensity}", profile.name);
            let Locality { sequential_share, dependent_share, .. } = profile.locality;
            let waiting = count(&|access| access.producer > 0) / lines;
            assert!(
                near(waiting, (1.0 - sequential_share) * dependent_share, 0.05),
                "{}: {waiting}",
                profile.name
            );
        }
    }

    #[test]
    fn walks_go_from_line_to_line_and_hot_pages_get_their_share() {
        let profile = profiles().iter().find(|profile| profile.name == "bmpm-canneal").unwrap();
        let recorded = run(profile, "operations=400000,footprint_mib=16,threads=4");
        let Locality { sequential_share, hot_share, hot_footprint_share, .. } = profile.locality;
        let mut steps = 0;
        let mut pages = vec![0_u32; 4096];
        let mut lines = 0.0;
        for stream in bursts(&recorded) {
            let mut walked = std::collections::BTreeSet::new();
            for access in stream {
                let line = access.address.0 / LINE_BYTES;
                steps += u32::from(walked.contains(&line));
                walked.insert(line + 1);
                pages[((access.address.0 - recorded.mappings[0].start.0) / PAGE_BYTES) as usize] += 1;
                lines += 1.0;
            }
        }
        assert!(f64::from(steps) / lines >= sequential_share);
        pages.sort_by(|a, b| b.cmp(a));
        let hot = (4096.0 * hot_footprint_share) as usize;
        let share = f64::from(pages[..hot].iter().sum::<u32>()) / lines;
        let random = 1.0 - sequential_share;
        let expected = random * (hot_share + (1.0 - hot_share) * hot_footprint_share)
            + sequential_share * hot_footprint_share;
        assert!(near(share, expected, 0.06), "{share} for {expected}");
        assert!(pages[4095] > 0);
    }

    #[test]
    fn a_period_is_work_a_burst_and_a_barrier() {
        let profile = profiles().iter().find(|profile| profile.name == "bmpm-streamcluster").unwrap();
        let recorded = run(profile, "operations=400000,footprint_mib=8");
        let lines = profile.burst.period_instructions / profile.instructions_per_line;
        for (stream, barriers) in bursts(&recorded).zip(&recorded.barriers) {
            let ahead = profile.burst.period_instructions * (1.0 - profile.burst.duty);
            let starts = stream.iter().filter(|access| f64::from(access.instructions) > ahead).count();
            assert_eq!(starts, *barriers);
            assert!(near(stream.len() as f64 / starts as f64, lines, 0.01));
        }
    }

    #[test]
    fn stages_keep_to_their_windows_and_share_out_the_lines() {
        let profile = profiles().iter().find(|profile| profile.name == "bdm-mg").unwrap();
        let settings = Settings::new(&profile.info(), &"footprint_mib=64".parse().unwrap()).unwrap();
        let synthetic = Synthetic::new(profile, &settings, 1, &mut Space::new(settings.page())).unwrap();
        let [fine, coarse] = synthetic.stages[..] else { panic!("two stages") };
        assert_eq!((fine.first_page, fine.pages), (0, 14336));
        assert_eq!((coarse.first_page, coarse.pages), (14336, 2048));
        assert_eq!(fine.lines, coarse.lines);
    }
}
