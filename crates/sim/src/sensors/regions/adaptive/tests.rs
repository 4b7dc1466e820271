use memtide_core::TaskId;
use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::SplitMix64;

use super::*;

fn span(start: u64, end: u64) -> Span {
    Span { task: TaskId(0), start, end }
}

/// At most `most` spans of a few tasks, with gaps between them.
fn spans(most: usize) -> impl Strategy<Value = Vec<Span>> {
    let step = (0u32..3, 1u64..50, 1u64..200);
    proptest::collection::vec(step, 0..=most).prop_map(|mut steps| {
        steps.sort_by_key(|step| step.0);
        let mut at = 0;
        let next = |(task, gap, pages): (u32, u64, u64)| {
            let start = at + gap;
            at = start + pages;
            Span { task: TaskId(task), start, end: at }
        };
        steps.into_iter().map(next).collect()
    })
}

/// The contiguous spans covered by regions.
fn covered(regions: &Regions) -> Vec<Span> {
    let mut stretches: Vec<Span> = Vec::new();
    for region in regions.iter() {
        assert!(region.start < region.end, "an empty region");
        match stretches.last_mut().filter(|last| (last.task, last.end) == (region.task, region.start)) {
            Some(last) => last.end = region.end,
            None => stretches.push(Span { task: region.task, start: region.start, end: region.end }),
        }
    }
    stretches
}

proptest! {
    #[test]
    fn regions_cover_exactly_the_spans(
        rounds in proptest::collection::vec((spans(8), 0u32..5, 0u64..500), 1..12),
        seed: u64,
        most in 16usize..40,
    ) {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut regions = Regions::default();
        for (spans, threshold, limit) in rounds {
            for region in regions.iter_mut() {
                region.counts = Counts { reads: (random.next_u64() % 21) as u32, writes: 0 };
            }
            let (pages, before) = (regions.pages(), covered(&regions));
            regions.update_ages(threshold);
            regions.merge(threshold, limit);
            prop_assert_eq!(covered(&regions), before);
            prop_assert_eq!(regions.pages(), pages);
            regions.cover(&spans);
            prop_assert_eq!(&covered(&regions), &spans);
            regions.fit(threshold, limit, most);
            prop_assert_eq!(&covered(&regions), &spans);
            regions.start_interval();
            regions.split(&mut random, most);
            prop_assert_eq!(&covered(&regions), &spans);
            prop_assert!(regions.len() <= most, "{} regions", regions.len());
        }
    }

    #[test]
    fn region_samples_all_of_its_pages_and_no_others(start in 0u64..1000, pages in 1u64..20, seed: u64) {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut region = Watched::new(TaskId(0), start, start + pages);
        let mut picked = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            region.pick(&mut random);
            picked.insert(region.picked.0);
        }
        prop_assert!(picked.into_iter().eq(start..start + pages));
    }
}

/// Adjacent regions of 10 pages with these counts of reads.
fn with_reads(reads: &[u32]) -> Regions {
    let mut regions = Regions::default();
    regions.cover(&[span(0, 10 * reads.len() as u64)]);
    let whole = regions.0[0];
    regions.0 = (0..)
        .zip(reads)
        .map(|(at, &reads)| Watched {
            start: 10 * at,
            end: 10 * at + 10,
            counts: Counts { reads, writes: 0 },
            ..whole
        })
        .collect();
    regions
}

fn shape(regions: &Regions) -> Vec<(u64, u64, u32)> {
    regions.iter().map(|r| (r.start, r.end, r.counts.reads)).collect()
}

#[test]
fn neighbours_within_threshold_merge_to_their_mean() {
    let mut regions = with_reads(&[20, 18, 15, 0, 3]);
    regions.merge(2, 1000);
    assert_eq!(shape(&regions), [(0, 20, 19), (20, 30, 15), (30, 40, 0), (40, 50, 3)]);
    regions.merge(4, 29);
    assert_eq!(shape(&regions), [(0, 20, 19), (20, 30, 15), (30, 50, 1)], "30 pages are too many");
    regions.merge(4, 30);
    assert_eq!(shape(&regions), [(0, 30, 17), (30, 50, 1)]);
}

#[test]
fn regions_with_different_writes_stay_separate() {
    let mut regions = with_reads(&[20, 20]);
    regions.0[1].counts.writes = 3;
    regions.merge(2, 1000);
    assert_eq!(regions.len(), 2);
    regions.merge(3, 1000);
    assert_eq!(regions.len(), 1);
}

#[test]
fn region_ages_while_its_counts_hold() {
    let mut regions = with_reads(&[10]);
    let mut ages = Vec::new();
    for (reads, writes) in [(10, 0), (11, 0), (10, 1), (12, 0), (12, 2), (12, 2)] {
        regions.start_interval();
        regions.0[0].counts = Counts { reads, writes };
        regions.update_ages(1);
        ages.push(regions[0].age);
    }
    assert_eq!(ages, [1, 2, 3, 0, 0, 1]);
}

#[test]
fn ages_of_merged_regions_are_their_mean_and_halves_inherit_them() {
    let mut regions = with_reads(&[5, 5]);
    regions.0[0].age = 9;
    regions.0[1].age = 4;
    regions.merge(0, 100);
    assert_eq!(regions[0].age, 6);
    regions.split(&mut SplitMix64::seed_from_u64(1), 10);
    assert_eq!(regions.iter().map(|r| r.age).collect::<Vec<u32>>(), [6, 6]);
}
