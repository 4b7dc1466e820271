use std::collections::BTreeMap;

use memtide_core::ThreadId;
use memtide_core::policy::Frame;
use proptest::prelude::*;

use super::*;

const IDLE: Time = Time::from_us(1);

fn sample(page: u64, size: PageSize, node: u8) -> AccessSample {
    let (task, thread, page, node) = (TaskId(0), ThreadId(0), Vpn(page), NodeId(node));
    AccessSample {
        time: Time::ZERO,
        task,
        thread,
        page,
        size,
        node,
        latency: Some(IDLE),
        period: 100,
        write: false,
    }
}

fn region(start: u64, pages: u64, size: PageSize) -> Region {
    let (task, start, node) = (TaskId(0), Vpn(start), NodeId(1));
    Region { task, start, pages, size, node, reads: 0, writes: 0, age: 0 }
}

fn regions(of: &[Region]) -> Regions {
    let mut regions = Regions::default();
    of.iter().for_each(|&region| regions.push(region));
    regions
}

fn parts(sampled: &Sampled, regions: &Regions) -> Vec<Pages> {
    let mut all = Vec::new();
    sampled.parts(regions, &mut |pages| all.push(pages));
    all
}

fn end_epoch(sampled: &mut Sampled, regions: &Regions, kept: f64) {
    sampled.end_samples();
    sampled.end_epochs(1, regions, kept);
}

fn after(samples: &[AccessSample], regions: &Regions) -> Vec<Pages> {
    let mut sampled = Sampled::default();
    samples.iter().for_each(|sample| sampled.add(sample, 1.0, IDLE, None));
    end_epoch(&mut sampled, regions, 0.5);
    parts(&sampled, regions)
}

/// As the period of sampling is tuned, samples stand for fewer and fewer accesses.
#[test]
fn one_heavy_sample_is_not_many() {
    let regions = regions(&[region(0, 1024, PageSize::Base)]);
    let light =
        (0..1024).flat_map(|page| [AccessSample { period: 10, ..sample(page, PageSize::Base, 1) }; 4]);
    let heavy = AccessSample { period: 320, ..sample(512, PageSize::Base, 1) };
    let one: Vec<AccessSample> = light.clone().chain([heavy]).collect();
    assert_eq!(after(&one, &regions).len(), 1, "it came by chance");
    let many = light.chain([sample(512, PageSize::Base, 1); 12]);
    assert!(after(&many.collect::<Vec<_>>(), &regions).len() > 1);
}

#[test]
fn part_is_as_small_as_its_samples_tell() {
    let regions = regions(&[region(0, 1024, PageSize::Base)]);
    let of = |pages: std::ops::Range<u64>, each: usize| {
        pages.flat_map(|page| vec![sample(page, PageSize::Base, 1); each]).collect::<Vec<_>>()
    };
    let bounds = |samples: &[AccessSample]| {
        after(samples, &regions).iter().map(|pages| (pages.start, pages.end)).collect::<Vec<_>>()
    };
    assert_eq!(bounds(&of(0..1024, 1)).len(), 1);
    assert_eq!(bounds(&of(5..6, 1)), [(0, 1024)], "one sample may be chance");
    let one = bounds(&of(5..6, 20));
    assert!(one.contains(&(5, 6)), "{one:?}");
    let hot = after(&[of(0..1024, 1), of(64..128, 9)].concat(), &regions);
    assert!(hot.iter().any(|pages| (pages.start, pages.end) == (64, 128)), "{hot:?}");
    let rate = |page| {
        let of = hot.iter().find(|pages| pages.start <= page && page < pages.end).expect("all pages");
        of.rate.mean
    };
    assert!((rate(100) - 1000.0).abs() < 50.0 && (rate(700) - 100.0).abs() < 10.0, "accesses per epoch");
}

/// Pages that were sampled once are gone after some half-lives, whatever is sampled since.
#[test]
fn earlier_samples_fade() {
    let regions = regions(&[region(0, 4096, PageSize::Base)]);
    let mut sampled = Sampled::default();
    let mut epoch = |pages: &mut dyn Iterator<Item = u64>| {
        pages.for_each(|page| sampled.add(&sample(page, PageSize::Base, 1), 1.0, IDLE, None));
        end_epoch(&mut sampled, &regions, 0.9);
        let early = sampled.counts.iter().filter(|count| count.page < 64);
        (early.clone().count(), early.map(|count| count.weight().accesses).sum::<f64>() / 100.0)
    };
    epoch(&mut (0..64).chain(1000..2000));
    for passed in 1..80 {
        let (pages, samples) = epoch(&mut (1000..2000));
        let expected = 64.0 * libm::pow(0.9, f64::from(passed));
        assert!((samples - expected).abs() < 5.0, "{passed}: {samples}, {expected}");
        assert!(pages as f64 <= 2.0 * samples + 0.01, "{passed}: {pages} pages, {samples}");
    }
    assert_eq!(epoch(&mut (1000..2000)).0, 0);
}

#[test]
fn samples_since_the_last_epoch_are_saved() {
    let regions = regions(&[region(0, 64, PageSize::Base)]);
    let mut sampled = Sampled::default();
    // The thread waits for ten accesses at a time, as shows from the fifth on.
    let add = |sampled: &mut Sampled, at: u64| {
        let time = Time(IDLE.0 * 10 * at);
        let wait_ns = if at < 50 { 100.0 } else { 300.0 };
        sampled.add(
            &AccessSample { time, ..sample(10 - at / 10, PageSize::Base, 1) },
            1.0,
            IDLE,
            Some(wait_ns),
        );
    };
    (0..101).for_each(|at| add(&mut sampled, at));
    let mut read: Sampled = serde_json::from_str(&serde_json::to_string(&sampled).unwrap()).unwrap();
    for sampled in [&mut sampled, &mut read] {
        add(sampled, 101);
        sampled.end_samples();
        sampled.end_epochs(1, &regions, 0.5);
    }
    assert_eq!(parts(&read, &regions), parts(&sampled, &regions));
    let accesses: f64 = parts(&read, &regions).iter().map(Pages::accesses).sum();
    let of_halves = [4.0 * 100.0 + 46.0 * 10.0, 52.0 * 10.0];
    let weighted: f64 = of_halves.iter().zip([0.5, 1.5]).map(|(accesses, wait)| accesses * wait).sum();
    assert!((accesses - weighted).abs() < 0.05 * weighted, "{accesses} in place of {weighted}");
}

#[test]
fn saved_samples_are_checked() {
    let mut sampled = Sampled::default();
    sampled.add(&sample(7, PageSize::Base, 1), 1.0, IDLE, Some(50.0));
    end_epoch(&mut sampled, &regions(&[region(0, 64, PageSize::Base)]), 0.5);
    sampled.add(&sample(8, PageSize::Base, 1), 1.0, IDLE, Some(50.0));
    sampled.set_node(TaskId(0), 9, PageSize::Base, NodeId(0));
    let text = serde_json::to_string(&sampled).unwrap();
    let check = |text: &str| serde_json::from_str::<Sampled>(text).is_ok_and(|read| read.check(2).is_ok());
    assert!(check(&text));
    for (right, wrong) in [
        (r#""wait_ns":50.0"#, r#""wait_ns":1e300"#),
        (
            r#""wait_ns":50.0,"time":0,"page":8,"accesses":100.0"#,
            r#""wait_ns":5,"time":0,"page":8,"accesses":-1"#,
        ),
        (r#""page":8,"#, r#""page":18446744073709551615,"#),
        (r#""node":1"#, r#""node":2"#),
        (r#""squares":10000.0"#, r#""squares":1e300"#),
        (r#"[0,9,1,0]"#, r#"[0,9,1,2]"#),
    ] {
        assert!(text.contains(right), "{right} is not in {text}");
        assert!(!check(&text.replace(right, wrong)), "{wrong}");
    }
}

#[test]
fn samples_of_several_tasks_are_told_apart() {
    let of = |task: u32, page: u64| AccessSample { task: TaskId(task), ..sample(page, PageSize::Base, 1) };
    let both = regions(&[0, 1].map(|task| Region { task: TaskId(task), ..region(0, 4, PageSize::Base) }));
    let samples: Vec<AccessSample> = (0..4000).map(|at| of(u32::from(at % 4 == 0), at % 16 / 4)).collect();
    let accesses: Vec<(TaskId, u64)> =
        after(&samples, &both).iter().map(|pages| (pages.task, pages.accesses().round() as u64)).collect();
    let of_task = |task| accesses.iter().filter(|(of, _)| *of == TaskId(task)).map(|(_, of)| of).sum::<u64>();
    let [first, second] = [of_task(0), of_task(1)];
    assert!((285_000..=300_000).contains(&first) && first + second == 400_000, "{first}, {second}");
}

/// Pages are chosen in proportion to their accesses, even where these alternate.
#[test]
fn thinning_prefers_no_page() {
    let (mut chosen, mut rest) = ([0, 0], 0.5);
    for _ in 0..1000 {
        let weights = [0.3, 0.2].map(Weight::of_sample);
        let mut counts: Vec<Count> =
            (0..21).map(|page| Count::new(TaskId(0), page, weights[page as usize % 2])).collect();
        rest = thin(&mut counts, 1.0, rest);
        counts.iter().for_each(|count| chosen[count.page as usize % 2] += 1);
    }
    let share = f64::from(chosen[0]) / f64::from(chosen[0] + chosen[1]);
    assert!((share - 3.3 / 5.3).abs() < 0.05, "{chosen:?}");
}

#[test]
fn number_of_remembered_pages_is_limited() {
    let pages = 3 * COUNTS_MAX as u64;
    let regions = regions(&[region(0, pages, PageSize::Base)]);
    for period in [100, 0] {
        let mut sampled = Sampled::default();
        for page in 0..pages {
            let period = if page == 7 { 50 * period } else { period };
            sampled.add(&AccessSample { period, ..sample(page, PageSize::Base, 1) }, 1.0, IDLE, None);
        }
        end_epoch(&mut sampled, &regions, 0.5);
        assert!(sampled.counts.len() <= COUNTS_MAX + 1, "{}", sampled.counts.len());
        let sum = sum_of(&sampled.counts).accesses;
        assert!((sum / (f64::from(period) * (pages + 49) as f64 + 1e-9) - 1.0).abs() < 1e-3 || period == 0);
    }
}

proptest! {
    /// Of all pages before any page, what is left has as many accesses, to within what one may have.
    #[test]
    fn thinning_keeps_sums(
        accesses in prop::collection::vec((0.001..4.0f64, 1..30u32), 0..300),
        least in 0.01..3.0f64,
        rest in 0.0..1.0f64,
    ) {
        let count = |(page, &(accesses, samples)): (u64, &(f64, u32))| {
            let squares = accesses * accesses / f64::from(samples);
            Count::new(TaskId(0), page, Weight { accesses, squares })
        };
        let all: Vec<Count> = (0..).zip(&accesses).map(count).collect();
        let mut left = all.clone();
        let end = thin(&mut left, least, rest);
        prop_assert!((-1e-9..1.0 + 1e-9).contains(&end), "{}", end);
        let before = |counts: &[Count], page| {
            let before = counts.iter().take_while(|count| count.page < page);
            before.map(|count| count.weight().accesses).sum::<f64>()
        };
        for page in 0..=all.len() as u64 {
            let (own, others) = (before(&left, page), before(&all, page));
            prop_assert!((own - others).abs() <= least + 1e-4, "{}: {}, {}", page, own, others);
        }
        for count in &left {
            let first = all[count.page as usize];
            let [now, first] = [count, &first].map(Count::weight);
            let each = now.squares / now.accesses;
            prop_assert!(each >= least * 0.999, "{:?}", count);
            prop_assert!(now == first || now.samples() < first.samples() + 1.001, "{:?}", count);
        }
    }

    /// Every page of the regions is in exactly one block, which is made of whole pages on the node that
    /// the last sample or move said.
    #[test]
    fn blocks_are_the_regions_pages(
        sizes in prop::collection::vec((0..3u64, 1..6u64, any::<bool>()), 1..8),
        samples in prop::collection::vec((0..8000u64, 0..2u8, any::<bool>()), 0..200),
        moves in prop::collection::vec((0..8000u64, 0..2u8), 0..40),
    ) {
        let mut start = 0;
        let mut all = Vec::new();
        for (gap, pages, is_huge) in sizes {
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            start = (start + gap * 100).next_multiple_of(size.base_pages());
            let pages = if is_huge { pages } else { pages * 70 };
            all.push(region(start, pages, size));
            start += pages * size.base_pages();
        }
        let regions = regions(&all);
        let mut sampled = Sampled::default();
        sampled.add(&sample(0, PageSize::Base, 1), 1.0, IDLE, None);
        for (page, node, is_huge) in samples {
            let size = if is_huge { PageSize::Huge } else { PageSize::Base };
            sampled.add(&sample(page, size, node), 1.0, IDLE, None);
        }
        end_epoch(&mut sampled, &regions, 0.5);
        for (page, node) in moves {
            let (task, page, to) = (TaskId(0), Vpn(page), NodeId(node));
            let (size, from, wish) = (PageSize::Base, NodeId(1 - node), Frame::ANY);
            sampled.record_move(&Move { task, page, size, from, to, wish });
            if let Some(region) = all.iter().find(|region| range_of(region).contains(&page.0))
                && region.size == PageSize::Base
            {
                let pages = parts(&sampled, &regions);
                let of = pages.iter().find(|of| (of.start..of.end).contains(&page.0));
                prop_assert_eq!(of.expect("all pages").node, to);
            }
        }
        let pages = parts(&sampled, &regions);
        let of_blocks: Vec<u64> = pages.iter().flat_map(|pages| pages.start..pages.end).collect();
        let of_regions: Vec<u64> = all.iter().flat_map(range_of).collect();
        prop_assert_eq!(of_blocks, of_regions);
        for block in &pages {
            prop_assert!(block.rate.mean >= 0.0 && block.rate.mean.is_finite(), "{:?}", block);
        }
        let text = serde_json::to_string(&sampled).unwrap();
        let read: Sampled = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parts(&read, &regions), pages);
    }
}

proptest! {
    #[test]
    fn counts_are_the_sums_of_all_samples_that_fade(
        epochs in prop::collection::vec(prop::collection::vec((0u32..3, 0u64..30), 0..40), 1..5),
    ) {
        let tasks = [0, 1, 2].map(|task| Region { task: TaskId(task), ..region(0, 30, PageSize::Base) });
        let all_regions = regions(&tasks);
        let (mut sampled, mut sums) = (Sampled::default(), BTreeMap::<_, f32>::new());
        for samples in epochs {
            sums.values_mut().for_each(|sum| *sum *= 0.9);
            for (task, page) in samples {
                let of = AccessSample { task: TaskId(task), ..sample(page, PageSize::Base, 1) };
                sampled.add(&of, 1.0, IDLE, None);
                *sums.entry((TaskId(task), page)).or_default() += 100.0;
            }
            end_epoch(&mut sampled, &all_regions, 0.9);
        }
        prop_assert!(sampled.counts.iter().map(Count::page).eq(sums.keys().copied()));
        for (count, sum) in sampled.counts.iter().zip(sums.values()) {
            prop_assert!((count.accesses - sum).abs() < 0.01, "{count:?}: {sum}");
        }
    }
}
