//! Word count: map and reduce over a text.

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::hash_index::HashIndex;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::{Random, hash};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};
use crate::zipf::Zipf;

/// Bytes searched for spaces at once.
const LANES: usize = 32;
/// Bytes per item; items contain whole words.
const BLOCK: usize = 2048;
/// Maximum word length: a word is its own key.
const LETTERS: usize = 8;
/// Skew of word frequencies, as in natural languages.
const THETA: f64 = 0.99;
/// Per 32 bytes: finding the spaces.
const SCAN_INSTRUCTIONS: u64 = 6;
/// Per word: extracting it from the text.
const WORD_INSTRUCTIONS: u64 = 12;

/// A text, and a word table per thread.
pub struct Wordcount {
    threads: usize,
    iterations: usize,
    seed: u64,
    vocabulary: usize,
    popularity: Zipf,
    text: Array<u8>,
    words: HashIndex,
    counts: Array<u32>,
    /// Total number of words.
    total: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    Write,
    /// Clears the threads' tables.
    Clear,
    /// Counts words in each thread's own table.
    Map,
    /// Adds the threads' counts to the first table; each thread handles a part of the vocabulary.
    Reduce,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    /// Words in its table.
    words: usize,
    /// Words counted.
    counted: f64,
}

impl Algorithm for Wordcount {
    const INFO: Info = Info {
        name: "wordcount",
        summary: "word count: counts a text's words in a hash table for each thread and adds the counts up",
        stresses: "hash tables with a skewed load, beside a stream of reads",
        source: "J. Dean and S. Ghemawat, MapReduce, OSDI 2004; in BigDataBench",
        parameters: &[
            params::footprint_mib(48),
            Parameter::integer("vocabulary", "", "maximum number of different words", [16, 65536, 1 << 24]),
            params::iterations(1),
            params::threads(16),
            params::PAGE,
        ],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Wordcount, WorkloadError> {
        let (threads, vocabulary) = (settings.threads(), settings.size("vocabulary"));
        let tables = threads * vocabulary * (HashIndex::ENTRY_BYTES + 4);
        let text = settings.footprint_bytes().saturating_sub(tables) / BLOCK * BLOCK;
        if text == 0 {
            return Err(settings.unfit(format!(
                "tables of {} MiB leave no memory for the text: increase footprint_mib, or reduce vocabulary \
                 or threads",
                tables.div_ceil(1 << 20)
            )));
        }
        Ok(Wordcount {
            threads,
            iterations: settings.size("iterations"),
            seed,
            vocabulary,
            popularity: Zipf::new(vocabulary as u64, THETA),
            text: space.array("text", text)?,
            words: HashIndex::new(threads, vocabulary, space)?,
            counts: space.array("counts", threads * vocabulary)?,
            total: Reduction::new("total", threads, space)?,
        })
    }
}

/// A word of the vocabulary: two to eight letters, unique.
fn word(rank: u64) -> impl Iterator<Item = u8> {
    let (mut rest, mut length) = (rank, 0);
    let filler = 1 + hash(rank) as usize % 3;
    std::iter::from_fn(move || {
        // The rank in base 26, then letters of another case, so that no word is a prefix of another.
        let letter =
            if length == 0 || rest > 0 { b'a' + (rest % 26) as u8 } else { b'A' + (rank % 26) as u8 };
        let more = length == 0 || rest > 0 || length <= filler;
        rest /= 26;
        length += 1;
        (more && length <= LETTERS).then_some(letter)
    })
}

impl Wordcount {
    fn write<M: Memory>(&self, m: &mut M, item: usize) {
        let mut random = Random::new(self.seed, item as u64);
        let mut block = [b' '; BLOCK];
        let mut at = 0;
        while at + LETTERS < BLOCK {
            for letter in word(self.popularity.rank(&mut random)) {
                block[at] = letter;
                at += 1;
            }
            at += 1;
        }
        for (lanes, letters) in block.as_chunks::<LANES>().0.iter().enumerate() {
            m.work(4 * LANES as u64);
            m.store_lanes(&self.text, item * BLOCK + lanes * LANES, *letters);
        }
    }

    fn count<M: Memory>(&self, m: &mut M, item: usize, local: &mut Local) {
        let mut key = 0;
        for first in (item * BLOCK..(item + 1) * BLOCK).step_by(LANES) {
            let letters: [u8; LANES] = *m.load_lanes(&self.text, first);
            m.work(SCAN_INSTRUCTIONS);
            for letter in letters {
                if letter != b' ' {
                    key = key << 8 | u64::from(letter);
                } else if key != 0 {
                    self.add(m, local, std::mem::take(&mut key));
                }
            }
        }
    }

    fn add<M: Memory>(&self, m: &mut M, local: &mut Local, key: u64) {
        m.work(WORD_INSTRUCTIONS);
        local.counted += 1.0;
        if let Some(entry) = self.words.find(m, local.thread, key) {
            let count = *m.load(&self.counts, entry);
            m.store(&self.counts, entry, count + 1);
        } else {
            let entry = self.words.insert(m, local.thread, local.words, key);
            local.words += 1;
            m.store(&self.counts, entry, 1);
        }
    }

    /// Adds a word's counts to the first table that contains it.
    fn reduce<M: Memory>(&self, m: &mut M, rank: usize) {
        let key = word(rank as u64).fold(0, |key, letter| key << 8 | u64::from(letter));
        let (mut first, mut sum) = (None, 0);
        for thread in 0..self.threads {
            if let Some(entry) = self.words.find(m, thread, key) {
                sum += *m.load(&self.counts, entry);
                first = first.or(Some(entry));
            }
        }
        if let Some(entry) = first {
            m.store(&self.counts, entry, sum);
        }
    }
}

impl Workload for Wordcount {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let blocks = self.text.len() / BLOCK;
        let rounds = [
            Phase::new(Step::Clear, self.threads * self.vocabulary),
            Phase::new(Step::Map, blocks),
            Phase::new(Step::Reduce, self.vocabulary),
        ];
        std::iter::once(Phase::new(Step::Write, blocks)).chain(rounds.repeat(self.iterations)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Write) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, thread: usize) -> Local {
        Local { thread, words: 0, counted: 0.0 }
    }

    fn begin<M: Memory>(&self, _m: &mut M, _step: Step, local: &mut Local) {
        (local.words, local.counted) = (0, 0.0);
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Write => self.write(m, item),
            Step::Clear => self.words.clear(m, item),
            Step::Map => self.count(m, item, local),
            Step::Reduce => self.reduce(m, item),
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Map = step {
            self.total.put(m, local.thread, local.counted);
        }
    }

    /// How many words there are.
    fn result(&self) -> f64 {
        self.total.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Native;
    use crate::testing::check;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn counts_are_those_of_a_plain_map() {
        let (program, _) = check::<Wordcount>("footprint_mib=1,vocabulary=5000,threads=3");
        let found = program.workload();
        let text: Vec<u8> = found.text.values().collect();
        let mut expected = BTreeMap::new();
        for word in text.split(|letter| *letter == b' ').filter(|word| !word.is_empty()) {
            *expected.entry(word.iter().fold(0, |key, letter| key << 8 | u64::from(*letter))).or_insert(0) +=
                1;
        }
        assert!(expected.len() > 2000);
        for (key, count) in &expected {
            let entry = (0..3).find_map(|table| found.words.find(&mut Native, table, *key)).unwrap();
            assert_eq!(found.counts.get(*entry), *count);
        }
        assert_eq!(found.result(), expected.values().map(|count| f64::from(*count)).sum());
    }

    #[test]
    fn words_are_unlike_and_not_too_long() {
        let words: BTreeSet<Vec<u8>> = (0..100_000).map(|rank| word(rank).collect()).collect();
        assert_eq!(words.len(), 100_000);
        assert!(words.iter().all(|word| (2..=LETTERS).contains(&word.len())));
    }

    #[test]
    fn tables_that_leave_no_memory_for_text_are_refused() {
        let settings = Settings::new(&Wordcount::INFO, &"footprint_mib=2".parse().unwrap()).unwrap();
        let error = Wordcount::new(&settings, 1, &mut Space::new(settings.page())).err().unwrap();
        assert!(error.to_string().contains("vocabulary"));
    }
}
