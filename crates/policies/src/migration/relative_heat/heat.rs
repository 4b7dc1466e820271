//! Heat of the tasks' memory: counts of sampled accesses that fade, by spans of pages.

use memtide_core::policy::{Region, Regions};
use memtide_core::{NodeId, PageSize, TaskId};
use serde::{Deserialize, Serialize};

use super::pages::{Pages, Rate, to_bound};

/// Share of the samples from which on a page may be accessed several times as often as the share says:
/// accesses come in bursts, and all those between two samples count once.
const BURSTS_SHARE: f64 = 0.9;
/// How many times as often.
const BURSTS_FACTOR: f64 = 8.0;

/// Adjacent pages of one size on one node, with one history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Span {
    pub task: TaskId,
    /// First base page, and the one after the last.
    pub start: u64,
    pub end: u64,
    pub size: PageSize,
    pub node: NodeId,
    /// Samples that found a page accessed. They count less with each epoch.
    pub accessed: f64,
    /// All samples, and the epochs in which they were taken, in the same way.
    pub samples: f64,
    pub epochs: f64,
}

impl Span {
    /// Share of the samples that found the page accessed, and the standard deviation of that share. A share
    /// of 0 or 1 is uncertain, too: half a sample was otherwise.
    fn share(&self) -> (f64, f64) {
        let share = (self.accessed + 0.5) / (self.samples + 1.0);
        (share, (share * (1.0 - share) / (self.samples + 1.0)).sqrt())
    }

    /// Accesses of a base page per epoch if this share of the samples finds it accessed, and accesses come at
    /// random times: two in one interval are one sample.
    fn rate_of(&self, share: f64) -> f64 {
        -libm::log1p(-share.clamp(0.0, 1.0)) * self.samples / (self.epochs * self.size.base_pages() as f64)
    }

    /// Accesses of a base page per epoch.
    fn rate(&self, deviations: f64) -> Rate {
        let (share, deviation) = self.share();
        let away = to_bound(deviations) * deviation;
        let bursts = if share > BURSTS_SHARE { BURSTS_FACTOR } else { 1.0 };
        // If every sample found it accessed, they say only how often it is accessed at least.
        let is_saturated = self.samples - self.accessed < 1.0;
        let at_most = if is_saturated { f64::INFINITY } else { self.rate_of(share + away) * bursts };
        Rate { mean: self.rate_of(share), at_least: self.rate_of(share - away), at_most }
    }

    /// What may move of it.
    pub fn pages(&self, deviations: f64) -> Pages {
        let Span { task, start, end, size, node, .. } = *self;
        Pages { task, start, end, size, node, rate: self.rate(deviations) }
    }

    /// Whether the pages after it continue it: differences of at most `deviations` are none.
    fn continues(&self, next: &Span, deviations: f64) -> bool {
        (self.task, self.end, self.size, self.node) == (next.task, next.start, next.size, next.node)
            && !self.rate(deviations).is_higher(&next.rate(deviations))
            && !next.rate(deviations).is_higher(&self.rate(deviations))
    }

    fn absorb(&mut self, next: &Span) {
        let (own, others) = ((self.end - self.start) as f64, (next.end - next.start) as f64);
        let mean = |a: f64, b: f64| (a * own + b * others) / (own + others);
        self.accessed = mean(self.accessed, next.accessed);
        self.samples = mean(self.samples, next.samples);
        self.epochs = mean(self.epochs, next.epochs);
        self.end = next.end;
    }
}

/// What is known of all pages, by task and address.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Span>", into = "Vec<Span>")]
pub(super) struct Heat {
    pub spans: Vec<Span>,
    before: Vec<Span>,
}

impl Clone for Heat {
    fn clone(&self) -> Heat {
        Heat { spans: self.spans.clone(), before: Vec::new() }
    }
}

impl From<Heat> for Vec<Span> {
    fn from(heat: Heat) -> Vec<Span> {
        heat.spans
    }
}

impl TryFrom<Vec<Span>> for Heat {
    type Error = String;

    fn try_from(spans: Vec<Span>) -> Result<Heat, String> {
        let is_count = |count: f64| count.is_finite() && count >= 0.0;
        let is_right = |span: &Span| {
            span.start < span.end
                && is_count(span.samples)
                && is_count(span.accessed)
                && is_count(span.epochs)
                && span.epochs > 0.0
                && span.accessed <= span.samples
        };
        match spans.iter().find(|span| !is_right(span)) {
            Some(span) => Err(format!("{span:?} is no span of pages with samples")),
            None if !spans.is_sorted_by(|a, b| (a.task, a.end) <= (b.task, b.start)) => {
                Err("spans overlap or are out of order".to_owned())
            }
            None => Ok(Heat { spans, before: Vec::new() }),
        }
    }
}

impl Heat {
    /// Adds an epoch's samples, `samples` of each page; earlier ones count `kept` times as much as before.
    ///
    /// The monitor draws new borders of its regions each time: those of several epochs together show
    /// where the hot pages are.
    ///
    /// ```text
    /// before   |------- 3 -------|--- 9 ---|
    /// regions  |--- 0 ---|------- 8 -------|
    /// after    |---------|-------|---------|
    /// ```
    pub fn add(&mut self, regions: &Regions, samples: f64, kept: f64, spans_max: usize) {
        std::mem::swap(&mut self.spans, &mut self.before);
        self.spans.clear();
        let mut known = 0;
        for region in regions.iter() {
            let before = &self.before[known..];
            known += before.partition_point(|span| (span.task, span.end) <= (region.task, region.start.0));
            lay_over(&self.before[known..], &region, samples, kept, &mut self.spans);
        }
        let mut deviations = 0.0;
        while self.spans.len() > spans_max && deviations < 64.0 {
            deviations = f64::max(deviations * 2.0, 0.25);
            self.spans.dedup_by(|next, span| {
                let is_one = span.continues(next, deviations);
                if is_one {
                    span.absorb(next);
                }
                is_one
            });
        }
    }
}

/// Share of an epoch's accesses that some pages had, by its regions and the number of samples of each page;
/// `None` if none of them found an access.
pub(super) fn share_in(regions: &Regions, samples: f64, pages: &[(TaskId, u64, u64)]) -> Option<f64> {
    let share_max = 1.0 - 0.5 / samples;
    let all: Vec<(TaskId, u64, u64, f64)> = regions
        .iter()
        .map(|region| {
            let size = region.size.base_pages();
            let share = f64::from(region.reads.max(region.writes)) / samples;
            let rate = -libm::log1p(-share.min(share_max)) / size as f64;
            (region.task, region.start.0, region.start.0 + region.pages * size, rate)
        })
        .collect();
    let total: f64 = all.iter().map(|&(_, start, end, rate)| rate * (end - start) as f64).sum();
    let accesses_of = |&(task, start, end): &(TaskId, u64, u64)| {
        let first = all.partition_point(|&(of, _, region_end, _)| (of, region_end) <= (task, start));
        let within = all[first..].iter().take_while(|&&(of, from, ..)| (of, from) < (task, end));
        within.map(|&(_, from, to, rate)| rate * (to.min(end) - from.max(start)) as f64).sum::<f64>()
    };
    (total > 0.0).then(|| pages.iter().map(accesses_of).sum::<f64>() / total)
}

/// Appends the parts of a region that have different histories.
fn lay_over(before: &[Span], region: &Region, samples: f64, kept: f64, spans: &mut Vec<Span>) {
    let Region { task, start, pages, size, node, .. } = *region;
    let end = start.0 + pages * size.base_pages();
    let accessed = f64::from(region.reads.max(region.writes)).min(samples);
    let near = before.iter().take_while(|span| (span.task, span.start) < (task, end));
    // Borders between whole pages of the region.
    let border =
        |at: u64| start.0 + (at.clamp(start.0, end) - start.0) / size.base_pages() * size.base_pages();
    let mut at = start.0;
    let mut push = |to: u64, history: Option<&Span>| {
        if at < to {
            let (hits, all, epochs) =
                history.map_or((0.0, 0.0, 0.0), |span| (span.accessed, span.samples, span.epochs));
            let (accessed, samples) = (hits * kept + accessed, all * kept + samples);
            let epochs = epochs * kept + 1.0;
            spans.push(Span { task, start: at, end: to, size, node, accessed, samples, epochs });
            at = to;
        }
    };
    for span in near {
        push(border(span.start), None);
        push(border(span.end), Some(span));
    }
    push(end, None);
}

#[cfg(test)]
mod tests {
    use memtide_core::Vpn;
    use proptest::prelude::*;

    use super::*;

    fn region(start: u64, pages: u64, reads: u32) -> Region {
        let (task, start, size, node) = (TaskId(0), Vpn(start), PageSize::Base, NodeId(1));
        Region { task, start, pages, size, node, reads, writes: 0, age: 0 }
    }

    fn regions(of: &[Region]) -> Regions {
        let mut regions = Regions::default();
        of.iter().for_each(|&region| regions.push(region));
        regions
    }

    fn heat(epochs: &[&[Region]]) -> Vec<(u64, u64, f64, f64)> {
        let mut heat = Heat::default();
        epochs.iter().for_each(|epoch| heat.add(&regions(epoch), 10.0, 0.5, 100));
        heat.spans.iter().map(|span| (span.start, span.end, span.accessed, span.samples)).collect()
    }

    #[test]
    fn borders_of_two_epochs_part_what_either_has_as_one() {
        let spans = heat(&[&[region(0, 6, 3), region(6, 4, 9)], &[region(0, 3, 0), region(3, 7, 8)]]);
        assert_eq!(spans, [(0, 3, 1.5, 15.0), (3, 6, 9.5, 15.0), (6, 10, 12.5, 15.0)]);
    }

    #[test]
    fn new_memory_has_no_history_and_unmapped_memory_is_forgotten() {
        let spans = heat(&[&[region(2, 2, 6), region(8, 2, 4)], &[region(0, 6, 2)]]);
        assert_eq!(spans, [(0, 2, 2.0, 10.0), (2, 4, 5.0, 15.0), (4, 6, 2.0, 10.0)]);
    }

    #[test]
    fn borders_are_between_whole_huge_pages() {
        let huge = Region { size: PageSize::Huge, pages: 2, ..region(0, 2, 5) };
        let spans = heat(&[&[region(0, 700, 1), region(700, 324, 1)], &[huge]]);
        assert_eq!(spans.iter().map(|span| (span.0, span.1)).collect::<Vec<_>>(), [(0, 512), (512, 1024)]);
    }

    fn span(size: PageSize, accessed: f64, samples: f64) -> Span {
        let (task, node, epochs) = (TaskId(0), NodeId(0), samples / 50.0);
        Span { task, start: 0, end: 512, size, node, accessed, samples, epochs }
    }

    fn is_hotter(a: &Span, b: &Span, deviations: f64) -> bool {
        a.rate(deviations).is_higher(&b.rate(deviations))
    }

    #[test]
    fn difference_counts_only_if_it_is_not_chance() {
        let span = |accessed, samples| span(PageSize::Base, accessed, samples);
        assert!(is_hotter(&span(60.0, 100.0), &span(30.0, 100.0), 3.0));
        assert!(!is_hotter(&span(6.0, 10.0), &span(3.0, 10.0), 3.0), "few samples");
        assert!(!is_hotter(&span(100.0, 100.0), &span(100.0, 100.0), 0.0));
        // Half of the intervals have an access if there are ln 2 in each on average; an epoch has fifty.
        let rate = span(500.0, 1000.0).rate(3.0);
        assert!((rate.mean - 50.0 * std::f64::consts::LN_2).abs() < 0.5, "{rate:?}");
        assert!(rate.at_least < rate.mean && rate.mean < rate.at_most);
    }

    #[test]
    fn huge_page_counts_by_its_base_pages_and_not_at_all_if_always_accessed() {
        let of = |size, accessed| span(size, accessed, 500.0);
        let huge = |accessed| of(PageSize::Huge, accessed);
        let hot = of(PageSize::Base, 250.0);
        assert!(is_hotter(&hot, &huge(490.0), 3.0), "0.7 and 3.9 / 512 accesses");
        assert!(!is_hotter(&hot, &huge(500.0), 3.0), "it may have any number");
        let lukewarm = of(PageSize::Base, 15.0);
        assert!(!is_hotter(&lukewarm, &huge(490.0), 3.0), "0.03 accesses; bursts may hide some");
        assert!(is_hotter(&lukewarm, &huge(440.0), 3.0), "2.1 / 512");
        assert!(!is_hotter(&huge(500.0), &hot, 3.0));
    }

    #[test]
    fn share_of_an_epochs_accesses_counts_each_page() {
        let seen = regions(&[region(0, 10, 8), region(10, 30, 0), region(50, 10, 8)]);
        let share = |pages: &[(u64, u64)]| {
            let pages: Vec<_> = pages.iter().map(|&(start, end)| (TaskId(0), start, end)).collect();
            share_in(&seen, 10.0, &pages).unwrap()
        };
        for (pages, expected) in [
            (&[(0, 10)][..], 0.5),
            (&[(5, 20)], 0.25),
            (&[(5, 55)], 0.5),
            (&[(52, 60), (2, 10)], 0.8),
            (&[(40, 50), (60, 70)], 0.0),
        ] {
            assert!((share(pages) - expected).abs() < 1e-9, "{pages:?}: {}", share(pages));
        }
        assert_eq!(share_in(&regions(&[region(0, 10, 0)]), 10.0, &[]), None);
        let huge = Region { size: PageSize::Huge, pages: 1, ..region(512, 1, 8) };
        let share = share_in(&regions(&[region(0, 1, 8), huge]), 10.0, &[(TaskId(0), 512, 1024)]);
        assert!((share.unwrap() - 0.5).abs() < 1e-9, "a huge page counts as one page");
    }

    proptest! {
        /// Every page of the regions is in exactly one span, however many spans are allowed.
        #[test]
        fn spans_are_the_regions_pages(
            epochs in proptest::collection::vec(
                proptest::collection::vec((0..4u64, 1..30u64, 0..12u32), 1..20),
                1..6,
            ),
            most in 1..50usize,
        ) {
            let mut heat = Heat::default();
            for epoch in &epochs {
                let mut start = 0;
                let mut seen = Vec::new();
                for &(gap, pages, reads) in epoch {
                    seen.push(region(start + gap, pages, reads));
                    start += gap + pages;
                }
                heat.add(&regions(&seen), 10.0, 0.7, most);
                let pages = |start: u64, end: u64| (start..end).collect::<Vec<_>>();
                let of_regions: Vec<u64> =
                    seen.iter().flat_map(|r| pages(r.start.0, r.start.0 + r.pages)).collect();
                let of_spans: Vec<u64> = heat.spans.iter().flat_map(|s| pages(s.start, s.end)).collect();
                prop_assert_eq!(of_spans, of_regions);
                prop_assert!(heat.spans.iter().all(|span| span.accessed <= span.samples));
            }
            let text = serde_json::to_string(&heat).unwrap();
            prop_assert_eq!(serde_json::from_str::<Heat>(&text).unwrap().spans, heat.spans);
        }
    }
}
