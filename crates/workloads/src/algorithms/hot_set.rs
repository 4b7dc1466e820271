//! Random updates of a table, most of them of a hot set of its pages.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{Permutation, Random, hash};
use crate::workload::{Algorithm, Phase, Workload};

/// Updates per item.
const BLOCK: usize = 512;
/// Words per page.
const PAGE_WORDS: usize = 512;
/// Elements of a vector register (AVX2), for filling the table.
const LANES: usize = 4;
/// Per update beside its two accesses: two random numbers, the piece and the word in it, the word's hash, and
/// the loop. Counted on the native build (x86-64, release): 72 an update if contiguous, 172 if scattered, see
/// docs/workloads.md.
const CONTIGUOUS_INSTRUCTIONS: u64 = 70;
const SCATTERED_INSTRUCTIONS: u64 = 170;

/// The table and its hot set.
pub struct HotSet {
    threads: usize,
    seed: u64,
    /// Pieces of the table, and how many of them are hot at a time.
    pieces: usize,
    hot: usize,
    piece_words: usize,
    /// Where the pieces are, if they are scattered.
    scattered: Option<Permutation>,
    /// Probability that an update is one of the hot set.
    share: f64,
    /// Items before the region, in it, and from one sweep to the next.
    warm_up: usize,
    blocks: usize,
    sweep: Option<usize>,
    moves: bool,
    table: Array<u64>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    /// Updates; whether the hot set has moved.
    Update(Stage, bool),
    /// Reads of one word in every page.
    Sweep(Stage),
}

impl Algorithm for HotSet {
    const INFO: Info = Info {
        name: "hot-set",
        summary: "updates random words of a table, most of them in a hot set of pages that is filled last",
        stresses: "finding hot pages; random reads and writes, many at a time",
        source: "memtide",
        parameters: &[
            params::footprint_mib(64),
            Parameter::integer("hot", "%", "size of the hot set, in per cent of the table", [1, 20, 50]),
            Parameter::integer("share", "%", "share of the updates that are in the hot set", [0, 90, 100]),
            Parameter::word("layout", "where the hot set's pieces are", &["contiguous", "scattered"]),
            Parameter::integer("piece_kib", "KiB", "size of a piece of the table", [4, 64, 2048]),
            Parameter::word("moves", "once: other pages are hot from half of the region on", &["no", "once"]),
            Parameter::integer(
                "sweep",
                "",
                "updates from one sweep to the next, which reads a word in every page; 0 none",
                [0, 0, 1 << 40],
            ),
            Parameter::integer("warm_up", "", "updates of all threads before the region", [0, 0, 1 << 40]),
            params::operations(4_000_000),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<HotSet, WorkloadError> {
        let piece_words = settings.size("piece_kib") * 1024 / 8 / PAGE_WORDS * PAGE_WORDS;
        let pieces = settings.footprint_bytes() / 8 / piece_words;
        let blocks = |name| settings.size(name).div_ceil(BLOCK);
        let is_scattered = settings.word("layout") == "scattered";
        Ok(HotSet {
            threads: settings.threads(),
            seed,
            pieces: pieces.max(2),
            hot: (pieces * settings.size("hot") / 100).max(1),
            piece_words,
            scattered: is_scattered.then(|| Permutation::new(pieces.max(2) as u64, seed)),
            share: settings.size("share") as f64 / 100.0,
            warm_up: blocks("warm_up"),
            blocks: blocks("operations"),
            sweep: Some(blocks("sweep")).filter(|&blocks| blocks > 0),
            moves: settings.word("moves") == "once",
            table: space.array("table", pieces.max(2) * piece_words)?,
        })
    }
}

impl HotSet {
    /// First word of a piece, by its place in the order of filling. The last ones are the hot set, and those
    /// before them the one that it moves to.
    #[inline(always)]
    fn piece(&self, place: usize) -> usize {
        let at = match &self.scattered {
            Some(permutation) => permutation.forward(place as u64) as usize,
            None => place,
        };
        at * self.piece_words
    }

    /// A word of the hot set or of the whole table.
    #[inline(always)]
    fn draw(&self, random: &mut Random, moved: bool) -> usize {
        let hot = self.hot * self.piece_words;
        let first = (self.pieces - self.hot * (1 + usize::from(moved))) * self.piece_words;
        let word = match random.unit() < self.share {
            true => first + random.below(hot as u64) as usize,
            false => random.below(self.table.len() as u64) as usize,
        };
        match self.scattered {
            Some(_) => self.piece(word / self.piece_words) + word % self.piece_words,
            None => word,
        }
    }

    /// Phases of `blocks` items of updates, with sweeps between them.
    fn updates(&self, stage: Stage, moved: bool, blocks: usize, phases: &mut Vec<Phase<Step>>) {
        let each = self.sweep.unwrap_or(usize::MAX).min(blocks.max(1));
        for first in (0..blocks).step_by(each) {
            phases.push(Phase::new(Step::Update(stage, moved), each.min(blocks - first)));
            if self.sweep.is_some() {
                phases.push(Phase::new(Step::Sweep(stage), self.table.len() / PAGE_WORDS));
            }
        }
    }
}

impl Workload for HotSet {
    type Step = Step;
    type Local = Random;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let mut phases = vec![Phase::new(Step::Init, self.pieces)];
        self.updates(Stage::WarmUp, false, self.warm_up, &mut phases);
        let moved = if self.moves { self.blocks / 2 } else { 0 };
        self.updates(Stage::Region, false, self.blocks - moved, &mut phases);
        self.updates(Stage::Region, true, moved, &mut phases);
        phases
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        match step {
            Step::Init => Stage::Initialisation,
            Step::Update(stage, _) | Step::Sweep(stage) => stage,
        }
    }

    fn local(&self, thread: usize) -> Random {
        Random::new(self.seed, thread as u64)
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, random: &mut Random) {
        match step {
            Step::Init => {
                let first = self.piece(item);
                for i in (first..first + self.piece_words).step_by(LANES) {
                    m.store_lanes::<_, LANES>(&self.table, i, std::array::from_fn(|lane| (i + lane) as u64));
                    m.work(4);
                }
            }
            Step::Update(_, moved) => {
                for _ in 0..BLOCK {
                    let i = self.draw(random, moved);
                    m.work(match self.scattered {
                        Some(_) => SCATTERED_INSTRUCTIONS,
                        None => CONTIGUOUS_INSTRUCTIONS,
                    });
                    let old = *m.load(&self.table, i);
                    m.store(&self.table, i, old ^ hash(i as u64));
                }
            }
            Step::Sweep(_) => {
                m.work(3);
                m.probe(&self.table, item * PAGE_WORDS);
            }
        }
    }

    /// The table's xor. Threads may lose updates of one word, as in GUPS.
    fn result(&self) -> f64 {
        self.table.values().fold(0, |sum, word| sum ^ word) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Recorded, check};

    /// One thread: two may lose updates of one word natively.
    const SETTINGS: &str = "footprint_mib=1,operations=50000,threads=1,share=90,hot=20,piece_kib=16";

    /// Updates of each page of the region.
    fn updates(recorded: &Recorded, base: u64) -> Vec<usize> {
        let mut pages = vec![0; 256];
        let stores = recorded.streams.iter().flatten().filter(|access| access.write && access.size == 8);
        stores.for_each(|access| pages[((access.address.0 - base) / 4096) as usize] += 1);
        pages
    }

    /// Pages with more updates than ten times those of the coldest.
    fn hot_pages(settings: &str) -> Vec<usize> {
        let (program, recorded) = check::<HotSet>(&format!("{SETTINGS},{settings}"));
        let pages = updates(&recorded, program.workload().table.address(0).0);
        let least = pages.iter().min().copied().unwrap_or(0);
        (0..pages.len()).filter(|&page| pages[page] > 10 * least).collect()
    }

    #[test]
    fn fifth_of_the_pages_has_nine_tenths_of_the_updates() {
        let contiguous = hot_pages("layout=contiguous");
        assert_eq!(contiguous, (208..256).collect::<Vec<_>>(), "12 of 64 pieces, filled last");
        let scattered = hot_pages("layout=scattered");
        assert_eq!(scattered.len(), 48);
        assert!(
            scattered.chunks(4).all(|piece| piece[0] % 4 == 0 && piece[3] == piece[0] + 3),
            "{scattered:?}"
        );
        assert!(scattered.windows(2).filter(|pair| pair[1] != pair[0] + 1).count() > 6, "{scattered:?}");
    }

    #[test]
    fn other_pages_are_hot_after_it_moved() {
        let pages = hot_pages("layout=contiguous,moves=once");
        assert_eq!(pages, (160..256).collect::<Vec<_>>(), "both hot sets, beside each other");
    }

    #[test]
    fn sweeps_read_every_page_between_updates() {
        let (_, recorded) = check::<HotSet>(&format!("{SETTINGS},sweep=10240"));
        let reads = recorded.streams.iter().flatten().filter(|access| !access.write).count();
        let updates = 50_000_usize.next_multiple_of(BLOCK);
        assert_eq!(reads, updates + 5 * 256, "a sweep after each 10,240 of 50,176 updates");
    }
}
