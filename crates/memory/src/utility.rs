//! Utility monitors: the hits that a program would have in a cache of its own, by recency position.
//!
//! An auxiliary tag directory has the tags of the cache's full associativity, on sampled sets, for one
//! program (Qureshi and Patt, MICRO 2006, UMON). LRU is a stack algorithm: a hit at recency position N is a
//! hit with more than N ways, and a miss with N or fewer.
//!
//! ```text
//! sets of the cache    | . . s . | s . . . | . . . s | ...    one of each group of `stride` sets is sampled
//! tags of a sampled set  a  c  f  d  ...                      hit on f: hits[2] += 1
//! ```

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use crate::cache::Cache;

/// Sampled sets (Qureshi and Patt, MICRO 2006); all of them if the cache has fewer.
const SAMPLED_SETS: u64 = 32;

/// Which sets of a cache are sampled. One of each group, by chance: pages are as long as several groups, so
/// that the same set of each would be the same line of every page.
#[derive(Clone, Debug)]
pub struct SampledSets {
    sets: u64,
    stride: u64,
    /// The sampled set of each group, within it.
    offsets: Vec<u64>,
}

impl SampledSets {
    /// Of a cache.
    pub fn of(cache: &Cache) -> SampledSets {
        let sets = cache.sets();
        let stride = (sets / SAMPLED_SETS).max(1);
        let mut random = SplitMix64::seed_from_u64(sets);
        let offsets = (0..sets.min(SAMPLED_SETS)).map(|_| random.next_u64() % stride).collect();
        SampledSets { sets, stride, offsets }
    }

    /// Where a line is in a directory of the sampled sets; `None` if its set is not sampled.
    pub fn find(&self, line: u64) -> Option<SampledLine> {
        let set = line % self.sets;
        let group = (set / self.stride) as usize;
        let is_sampled = *self.offsets.get(group)? == set % self.stride;
        is_sampled.then(|| SampledLine { set: group, tag: line / self.sets })
    }
}

/// A line of a sampled set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledLine {
    /// Number of its set among the sampled ones.
    set: usize,
    tag: u64,
}

/// The auxiliary tag directory of one program, and its counters.
#[derive(Clone, Debug)]
pub struct UtilityMonitor {
    tags: Vec<Vec<u64>>,
    hits: Vec<u64>,
    misses: u64,
}

impl UtilityMonitor {
    /// Without tags, for a cache of this associativity.
    pub fn new(sets: &SampledSets, ways: u16) -> UtilityMonitor {
        let tags = vec![Vec::with_capacity(ways.into()); sets.offsets.len()];
        UtilityMonitor { tags, hits: vec![0; ways.into()], misses: 0 }
    }

    /// Counts an access to a sampled set.
    pub fn see(&mut self, SampledLine { set, tag }: SampledLine) {
        let tags = &mut self.tags[set];
        match tags.iter().position(|known| *known == tag) {
            Some(position) => {
                self.hits[position] += 1;
                tags[..=position].rotate_right(1);
            }
            None => {
                self.misses += 1;
                tags.truncate(self.hits.len() - 1);
                tags.insert(0, tag);
            }
        }
    }

    /// Hits by recency position, most recently used first.
    pub fn hits(&self) -> &[u64] {
        &self.hits
    }

    /// Misses at the full associativity.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Halves the counters, so that later accesses weigh more.
    pub fn halve(&mut self) {
        self.hits.iter_mut().for_each(|hits| *hits /= 2);
        self.misses /= 2;
    }
}
