//! Adaptive regions: split at random, and merged again if both parts have similar counts.

use std::ops::Deref;

use memtide_core::{TaskId, Vpn};
use rand_core::Rng;

use super::mapped::Span;

/// Number of samples of a region with an access, and with a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub reads: u32,
    pub writes: u32,
}

impl Counts {
    fn is_like(self, other: Counts, threshold: u32) -> bool {
        self.reads.abs_diff(other.reads) <= threshold && self.writes.abs_diff(other.writes) <= threshold
    }
}

/// A watched region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub task: TaskId,
    /// First base page, and the one after the last.
    pub start: u64,
    pub end: u64,
    pub counts: Counts,
    /// Counts of the previous aggregation interval.
    before: Counts,
    /// Aggregation intervals since the counts last changed.
    pub age: u32,
    /// The sampled page.
    pub picked: Vpn,
}

impl Watched {
    fn new(task: TaskId, start: u64, end: u64) -> Watched {
        let (counts, before) = Default::default();
        Watched { task, start, end, counts, before, age: 0, picked: Vpn(start) }
    }

    fn pages(&self) -> u64 {
        self.end - self.start
    }

    /// Picks a page to sample.
    pub fn pick(&mut self, random: &mut impl Rng) {
        self.picked = Vpn(self.start + random.next_u64() % self.pages());
    }

    fn update_ages(&mut self, threshold: u32) {
        self.age = if self.counts.is_like(self.before, threshold) { self.age.saturating_add(1) } else { 0 };
    }

    fn can_take_in(&self, next: &Watched, threshold: u32, limit: u64) -> bool {
        (self.task, self.end) == (next.task, next.start)
            && self.counts.is_like(next.counts, threshold)
            && self.pages() + next.pages() <= limit
    }

    /// Merges the next region into this one; counts and age become means weighted by pages.
    fn take_in(&mut self, next: &Watched) {
        let (own, other) = (self.pages(), next.pages());
        let mean = |a: u32, b: u32| {
            let sum = u128::from(a) * u128::from(own) + u128::from(b) * u128::from(other);
            (sum / u128::from(own + other)) as u32
        };
        self.counts.reads = mean(self.counts.reads, next.counts.reads);
        self.counts.writes = mean(self.counts.writes, next.counts.writes);
        self.age = mean(self.age, next.age);
        self.end = next.end;
    }
}

/// Regions by task and address, not empty, without overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Regions(Vec<Watched>);

impl Deref for Regions {
    type Target = Vec<Watched>;

    fn deref(&self) -> &Vec<Watched> {
        &self.0
    }
}

impl Regions {
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watched> {
        self.0.iter_mut()
    }

    /// Total pages of all regions.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(Watched::pages).sum()
    }

    /// Maximum count of all.
    pub fn largest_count(&self) -> u32 {
        self.0.iter().map(|region| region.counts.reads.max(region.counts.writes)).max().unwrap_or(0)
    }

    /// Updates ages: 0 if a count has changed by more than the threshold since the previous interval, else
    /// plus 1.
    pub fn update_ages(&mut self, threshold: u32) {
        self.0.iter_mut().for_each(|region| region.update_ages(threshold));
    }

    /// Merges adjacent regions whose counts differ by at most the threshold, up to `limit` pages.
    pub fn merge(&mut self, threshold: u32, limit: u64) {
        self.0.dedup_by(|next, region| {
            let alike = region.can_take_in(next, threshold, limit);
            if alike {
                region.take_in(next);
            }
            alike
        });
    }

    /// Merges with an increasing threshold, until at most `most` are left. There must not be more contiguous
    /// spans.
    pub fn fit(&mut self, mut threshold: u32, mut limit: u64, most: usize) {
        while self.0.len() > most {
            threshold = threshold.saturating_mul(2).saturating_add(1);
            limit = limit.saturating_mul(2).saturating_add(1);
            self.merge(threshold, limit);
        }
    }

    /// Makes the regions cover exactly the spans; parts not covered before become new regions.
    pub fn cover(&mut self, spans: &[Span]) {
        let before = std::mem::take(&mut self.0);
        let mut at = 0;
        for span in spans {
            at += before[at..].partition_point(|r| (r.task, r.end) <= (span.task, span.start));
            let mut covered = span.start;
            for region in before[at..].iter().take_while(|r| r.task == span.task && r.start < span.end) {
                self.add(Watched::new(span.task, covered, region.start));
                covered = region.end.min(span.end);
                self.add(Watched { start: region.start.max(span.start), end: covered, ..*region });
            }
            self.add(Watched::new(span.task, covered, span.end));
        }
    }

    fn add(&mut self, region: Watched) {
        if region.start < region.end {
            self.0.push(region);
        }
    }

    /// Starts an aggregation interval.
    pub fn start_interval(&mut self) {
        for region in &mut self.0 {
            region.before = std::mem::take(&mut region.counts);
        }
    }

    /// Splits each region in two at a random page, unless that could give more than `most` regions.
    pub fn split(&mut self, random: &mut impl Rng, most: usize) {
        if self.0.len() > most / 2 {
            return;
        }
        for region in std::mem::take(&mut self.0) {
            let middle = region.start + random.next_u64() % region.pages();
            self.add(Watched { end: middle, ..region });
            self.add(Watched { start: middle, ..region });
        }
    }
}

#[cfg(test)]
mod tests;
