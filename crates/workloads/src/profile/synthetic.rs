//! The program of a profile.

use memtide_core::{LINE_BYTES, PAGE_BYTES};

use super::domains::{Heat, PageDomains};
use super::{Profile, Stage, share_65536};
use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::memory::{Loaded, Memory};
use crate::params::Settings;
use crate::random::{Random, scale};
use crate::workload::{Phase, Workload, block};

const LINE_WORDS: u64 = LINE_BYTES / 8;
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
/// Lines per item.
const BLOCK: u64 = 512;
/// Maximum periods per run, whose list is held in memory.
const MOST_PERIODS: usize = 10_000_000;

/// Threads that compute, access lines in a burst and wait for each other, in each period.
pub struct Synthetic {
    threads: usize,
    seed: u64,
    chances: Chances,
    /// Chances of stores by page, instead of the one for all pages.
    domains: Option<PageDomains>,
    stages: Vec<Burst>,
    /// Repetitions of all stages.
    rounds: usize,
    touched_in_turn: bool,
    data: Array<u64>,
}

/// A period of a stage.
#[derive(Clone, Copy, Debug)]
struct Burst {
    periods: usize,
    /// Accessed pages: the first one, and their number.
    first_page: u64,
    pages: u64,
    /// Number of hot ones.
    hot: u64,
    /// Instructions per thread before its first line.
    ahead: u64,
    /// Of the first thread, and of each other one.
    first: Draw,
    others: Draw,
}

/// What a thread draws in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Draw {
    lines: u64,
    /// Instructions per line.
    each: f64,
}

impl Burst {
    fn of_thread(&self, thread: usize) -> Draw {
        if thread == 0 { self.first } else { self.others }
    }

    /// A hot page by its rank among them: they are spread evenly over the window.
    #[inline]
    fn hot_page(&self, rank: u64) -> u64 {
        self.first_page + rank * self.pages / self.hot
    }

    /// Lines of all threads.
    fn total(&self, threads: usize) -> u64 {
        self.first.lines + self.others.lines * (threads as u64 - 1)
    }
}

#[derive(Clone, Copy)]
pub enum Step {
    Touch,
    Period { stage: usize },
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    random: Random,
    draw: Draw,
    /// Number of lines of the period accessed so far.
    done: u64,
    /// Instructions not retired yet for them.
    due: f64,
    walk: Walk,
    /// The last access outside the sequential walk.
    last: Loaded<usize>,
}

impl Synthetic {
    /// The program of a profile, with these settings of its parameters.
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
        let duty = settings.number("duty");
        let locality = profile.locality;
        let [first, others] = weights(settings.number("evenness"), threads);
        if first > threads as f64 {
            return Err(settings.unfit(format!("evenness of {threads} threads is at least 1 / {threads}")));
        }
        let burst = |stage: &Stage| {
            let [from, to] = stage.window.map(|share| (share * pages as f64) as u64);
            let draw = |weight: f64| {
                let own = libm::round(weight * lines * stage.draw / mean).max(1.0);
                Draw { lines: own as u64, each: lines * intensity * duty / own }
            };
            Burst {
                periods: stage.periods,
                first_page: from,
                pages: (to - from).max(1),
                hot: (((to - from) as f64 * locality.hot_footprint_share) as u64).max(1),
                ahead: (lines * intensity * (1.0 - duty)) as u64,
                first: draw(first),
                others: draw(others),
            }
        };
        let stages: Vec<_> = phases.iter().map(burst).collect();
        let round_lines: u64 = stages.iter().map(|burst| burst.total(threads) * burst.periods as u64).sum();
        let rounds = settings.size("operations").div_ceil(round_lines as usize);
        if rounds.saturating_mul(periods) > MOST_PERIODS {
            return Err(settings.unfit(format!(
                "{rounds} rounds of {periods} periods are too many: reduce operations or \
                 instructions_per_line"
            )));
        }
        Ok(Synthetic {
            threads,
            seed,
            chances: Chances::new([
                locality.sequential_share,
                locality.dependent_share,
                profile.store_share(),
                locality.hot_share,
            ]),
            domains: locality
                .domains
                .map(|domains| PageDomains::new(&domains, &heat(&stages, pages as usize))),
            stages,
            rounds,
            touched_in_turn: locality.touched_in_turn,
            data: space.array("data", (pages * PAGE_BYTES / 8) as usize)?,
        })
    }

    /// A random line of the window: of a hot page (those are evenly spread), or any.
    #[inline]
    fn draw(&self, burst: &Burst, random: &mut Random, hot: bool) -> u64 {
        let bits = random.bits();
        let (line, bits) = (bits % PAGE_LINES, bits / PAGE_LINES * PAGE_LINES);
        let page = if hot {
            burst.hot_page(scale(bits, burst.hot))
        } else {
            burst.first_page + scale(bits, burst.pages)
        };
        page * PAGE_LINES + line
    }

    fn pages(&self) -> usize {
        self.data.len() / (PAGE_LINES * LINE_WORDS) as usize
    }

    /// The page that a thread touches as this item of its block, if the threads take turns.
    fn in_turn(&self, item: usize, thread: usize) -> usize {
        let turns = self.pages() / self.threads;
        let start = block(self.pages(), thread, self.threads).start;
        let turn = item - start;
        // Blocks with a page more than others have those that are left after the last turn.
        let left = start - thread * turns;
        if turn < turns { turn * self.threads + thread } else { turns * self.threads + left }
    }

    #[inline]
    fn access<M: Memory>(&self, m: &mut M, burst: &Burst, local: &mut Local) {
        // Equal gaps would make the number of misses in a reorder buffer jump with the intensity.
        local.due += local.draw.each * (0.5 + local.random.unit());
        let instructions = local.due as u64;
        local.due -= instructions as f64;
        m.work(instructions.saturating_sub(1));
        local.done += 1;

        let bits = local.random.bits();
        let [walks, waits, stores, hot] = self.chances.draw(bits);
        let line = if walks { local.walk.next() } else { self.draw(burst, &mut local.random, hot) };
        let stores = match &self.domains {
            Some(domains) => domains.stores(line / PAGE_LINES, Chances::of_stores(bits)),
            None => stores,
        };
        let word = (line * LINE_WORDS) as usize;
        let index = if waits && !walks { local.last.map(|zero| zero + word) } else { word.into() };
        if stores {
            m.clear(&self.data, index);
        } else {
            let loaded = m.probe(&self.data, index);
            if !walks {
                local.last = loaded;
            }
        }
    }
}

/// Weights of the first thread's lines and of each other one's: their mean is 1, over the highest it is
/// `evenness`.
fn weights(evenness: f64, threads: usize) -> [f64; 2] {
    let (first, threads) = (1.0 / evenness, threads as f64);
    [first, (threads - first) / (threads - 1.0).max(1.0)]
}

/// Of each page the most in any stage.
fn heat(stages: &[Burst], pages: usize) -> Vec<Heat> {
    let mut heat = vec![Heat::Idle; pages];
    for stage in stages {
        let window = &mut heat[stage.first_page as usize..][..stage.pages as usize];
        window.iter_mut().filter(|heat| **heat == Heat::Idle).for_each(|heat| *heat = Heat::Cold);
        (0..stage.hot).for_each(|rank| heat[stage.hot_page(rank) as usize] = Heat::Hot);
    }
    heat
}

/// Probabilities that an access is sequential, dependent, a store, or to a hot page, in 65536ths.
struct Chances([u16; 4]);

impl Chances {
    fn new(shares: [f64; 4]) -> Chances {
        Chances(shares.map(share_65536))
    }

    /// Draws each of them; a share of 1 is 65535 in 65536.
    #[inline]
    fn draw(&self, bits: u64) -> [bool; 4] {
        std::array::from_fn(|n| ((bits >> (16 * n)) as u16) < self.0[n])
    }

    /// The bits of them that decide on stores.
    #[inline]
    fn of_stores(bits: u64) -> u16 {
        (bits >> 32) as u16
    }
}

/// A cyclic walk over the lines of a thread's part of the window.
#[derive(Default)]
struct Walk {
    first: u64,
    lines: u64,
    at: u64,
}

impl Walk {
    #[inline]
    fn next(&mut self) -> u64 {
        self.at = if self.at + 1 >= self.lines { 0 } else { self.at + 1 };
        self.first + self.at
    }
}

impl Workload for Synthetic {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let period = |(stage, burst): (usize, &Burst)| {
            let items = burst.first.lines.max(burst.others.lines).div_ceil(BLOCK) as usize;
            std::iter::repeat_n(Phase::grouped(Step::Period { stage }, self.threads, items), burst.periods)
        };
        let round: Vec<_> = self.stages.iter().enumerate().flat_map(period).collect();
        std::iter::once(Phase::new(Step::Touch, self.pages())).chain(round.repeat(self.rounds)).collect()
    }

    /// A profile is calibrated as a whole, first touches included.
    fn stage(&self, _: usize, _: Step) -> memtide_core::Stage {
        memtide_core::Stage::Region
    }

    fn local(&self, thread: usize) -> Local {
        let random = Random::new(self.seed, thread as u64);
        Local {
            thread,
            random,
            draw: Draw::default(),
            done: 0,
            due: 0.0,
            walk: Walk::default(),
            last: 0.into(),
        }
    }

    fn begin<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Period { stage } = step {
            let burst = &self.stages[stage];
            let own = block(burst.pages as usize, local.thread, self.threads);
            local.walk.first = (burst.first_page + own.start as u64) * PAGE_LINES;
            local.walk.lines = own.len() as u64 * PAGE_LINES;
            local.draw = burst.of_thread(local.thread);
            local.done = 0;
            m.work(burst.ahead);
        }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            // Loads only: stores here would distort the written share of a program that hardly writes.
            Step::Touch => {
                let page = if self.touched_in_turn { self.in_turn(item, local.thread) } else { item };
                m.probe(&self.data, page * (PAGE_LINES * LINE_WORDS) as usize);
            }
            Step::Period { stage } => {
                let burst = &self.stages[stage];
                for _ in 0..BLOCK.min(local.draw.lines - local.done) {
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
    use crate::profile::{Locality, profiles};
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
            assert!(near(stores, profile.store_share(), 0.05), "{}: {stores}", profile.name);
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
    fn walks_are_sequential_and_hot_pages_get_their_share() {
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
    fn stores_stay_with_their_pages_domains() {
        for profile in profiles() {
            let Some(domains) = profile.locality.domains else { continue };
            let recorded = run(profile, "operations=400000,footprint_mib=4");
            let mut counts = vec![[0_u32; 2]; 1024];
            for access in bursts(&recorded).flatten() {
                let page = (access.address.0 - recorded.mappings[0].start.0) / PAGE_BYTES;
                counts[page as usize][usize::from(access.write)] += 1;
            }
            // Between the domains' shares, where each is some standard deviations of a page's count away.
            let middle = f64::midpoint(domains.write_domain_stores, domains.read_domain_stores);
            let written =
                |[loads, stores]: &[u32; 2]| f64::from(*stores) > middle * f64::from(loads + stores);
            let accessed = counts.iter().filter(|[loads, stores]| loads + stores > 0);
            let (written, read): (Vec<_>, Vec<_>) = accessed.partition(|&counts| written(counts));
            let share = written.len() as f64 / (written.len() + read.len()) as f64;
            let expected = domains.write_footprint_share;
            assert!((share - expected).abs() < 0.02, "{}: {share} for {expected}", profile.name);
            let stores = |pages: &[[u32; 2]]| {
                let stores: u32 = pages.iter().map(|[_, stores]| stores).sum();
                f64::from(stores) / f64::from(pages.iter().flatten().sum::<u32>())
            };
            assert!(near(stores(&written), domains.write_domain_stores, 0.05), "{}", profile.name);
            assert!(near(stores(&read), domains.read_domain_stores, 0.05), "{}", profile.name);
        }
    }

    #[test]
    fn threads_touch_each_page_once_in_turn() {
        let profile = profiles().iter().find(|profile| profile.locality.touched_in_turn).unwrap();
        for threads in [1, 3, 4] {
            let params = format!("footprint_mib=1,operations=1000,threads={threads}");
            let settings = Settings::new(&profile.info(), &params.parse().unwrap()).unwrap();
            let synthetic = Synthetic::new(profile, &settings, 1, &mut Space::new(settings.page())).unwrap();
            let mut pages = Vec::new();
            for thread in 0..threads {
                let own = block(256, thread, threads).map(|item| synthetic.in_turn(item, thread));
                let own: Vec<usize> = own.collect();
                assert!(own[..256 / threads].iter().all(|page| page % threads == thread));
                pages.extend(own);
            }
            pages.sort_unstable();
            assert!(pages.iter().copied().eq(0..256), "{threads} threads");
        }
    }

    #[test]
    fn windows_move_the_hot_pages() {
        let profile = profiles().iter().find(|profile| profile.name == "memos-memcached").unwrap();
        let settings = Settings::new(&profile.info(), &"footprint_mib=16".parse().unwrap()).unwrap();
        let synthetic = Synthetic::new(profile, &settings, 1, &mut Space::new(settings.page())).unwrap();
        let hot = |stage: &Burst| -> std::collections::BTreeSet<u64> {
            (0..stage.hot).map(|rank| stage.hot_page(rank)).collect()
        };
        for pair in synthetic.stages.windows(2) {
            assert!(hot(&pair[0]).is_disjoint(&hot(&pair[1])));
            let size = hot(&pair[0]).len() as f64 / pair[0].pages as f64;
            assert!(near(size, profile.locality.hot_footprint_share, 0.01));
        }
    }

    #[test]
    fn period_is_work_burst_and_barrier() {
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
    fn evenness_is_the_mean_over_the_highest_of_the_threads_lines() {
        let profile = profiles().iter().find(|profile| profile.name == "bdm-cg").unwrap();
        let lines = |params: &str| -> Vec<f64> {
            bursts(&run(profile, params)).map(|stream| stream.len() as f64).collect()
        };
        let even = lines("operations=200000,footprint_mib=8");
        let uneven = lines("operations=200000,footprint_mib=8,evenness=0.4");
        assert!(near(uneven.iter().sum(), even.iter().sum(), 0.05));
        let mean = uneven.iter().sum::<f64>() / uneven.len() as f64;
        assert!(near(mean / uneven[0], 0.4, 0.01), "{uneven:?}");
        assert!(uneven[1..].iter().all(|&of| near(of, uneven[1], 0.01)), "{uneven:?}");

        let settings = Settings::new(&profile.info(), &"evenness=0.2".parse().unwrap()).unwrap();
        let refused = Synthetic::new(profile, &settings, 1, &mut Space::new(settings.page())).err();
        assert!(refused.unwrap().to_string().contains("at least 1 / 4"));
    }

    #[test]
    fn stages_keep_to_their_windows_and_share_out_the_lines() {
        let profile = profiles().iter().find(|profile| profile.name == "bdm-mg").unwrap();
        let settings = Settings::new(&profile.info(), &"footprint_mib=64".parse().unwrap()).unwrap();
        let synthetic = Synthetic::new(profile, &settings, 1, &mut Space::new(settings.page())).unwrap();
        let [fine, coarse] = synthetic.stages[..] else { panic!("two stages") };
        assert_eq!((fine.first_page, fine.pages), (0, 14336));
        assert_eq!((coarse.first_page, coarse.pages), (14336, 2048));
        assert_eq!(fine.first.lines, coarse.first.lines);
    }
}
