//! TLBs match a plain reference implementation, lookup by lookup.

use memtide_core::Time;
use memtide_memory::{PageKey, Tlb, Translation};
use proptest::prelude::*;

use crate::support::{Zipf, machine, node, socket};

type Page = (u32, u64, bool);

/// Textbook TLB levels: a list of pages per set, most recently used first.
struct Plain(Vec<PlainLevel>);

struct PlainLevel {
    ways: usize,
    sets: Vec<Vec<(Page, Translation)>>,
}

impl PlainLevel {
    fn set(&mut self, page: Page) -> &mut Vec<(Page, Translation)> {
        let count = self.sets.len() as u64;
        &mut self.sets[(page.1 % count) as usize]
    }

    fn take(&mut self, page: Page) -> Option<(Page, Translation)> {
        let set = self.set(page);
        set.iter().position(|held| held.0 == page).map(|at| set.remove(at))
    }

    fn put(&mut self, held: (Page, Translation)) {
        let ways = self.ways;
        let set = self.set(held.0);
        set.insert(0, held);
        set.truncate(ways);
    }
}

impl Plain {
    fn lookup(&mut self, page: Page) -> Option<(Translation, usize)> {
        for level in 0..self.0.len() {
            if let Some(held) = self.0[level].take(page) {
                self.0[..=level].iter_mut().for_each(|l| l.put(held));
                return Some((held.1, level));
            }
        }
        None
    }

    fn fill(&mut self, page: Page, translation: Translation) {
        self.0.iter_mut().for_each(|level| level.put((page, translation)));
    }

    fn set_dirty(&mut self, page: Page) {
        for held in self.0.iter_mut().flat_map(|level| level.set(page)).filter(|held| held.0 == page) {
            held.1.dirty = true;
        }
    }
}

/// Levels of (entries, ways); level `n` costs 10 n ns.
fn tlbs(levels: &[(u32, u16)]) -> (Tlb, Plain) {
    let text: String = levels
        .iter()
        .enumerate()
        .map(|(at, (entries, ways))| {
            let latency = 10 * at;
            format!(
                "[[tlb]]\nname = \"L{at}\"\nentries = {entries}\nways = {ways}\nlatency_cycles = {latency}\n"
            )
        })
        .collect();
    let machine = machine(&format!("{text}{}{}", socket("s", 1), node("n", Some("s"), 100.0, 1e4)));
    let plain = levels.iter().map(|&(entries, ways)| PlainLevel {
        ways: ways.into(),
        sets: vec![Vec::new(); (entries / u32::from(ways)) as usize],
    });
    (Tlb::new(&machine), Plain(plain.collect()))
}

fn key(page: Page) -> PageKey {
    PageKey::new(page.0, page.1, page.2)
}

/// Looks a page up in both, and fills both after a miss.
fn look_up(tlb: &mut Tlb, plain: &mut Plain, page: Page) {
    let expected = plain.lookup(page).map(|(held, level)| (held, Time::from_ns(10.0 * level as f64)));
    assert_eq!(tlb.lookup(key(page)), expected, "{page:?}");
    if expected.is_none() {
        let translation = Translation { frame: (page.1 * 7) as u32 + page.0, dirty: false };
        tlb.fill(key(page), translation);
        plain.fill(page, translation);
    }
}

proptest! {
    #[test]
    fn look_ups_fills_and_invalidations_agree(
        levels in proptest::collection::vec(
            (1u16..=6, 1u32..=7).prop_map(|(ways, sets)| (sets * u32::from(ways), ways)), 1..=3),
        steps in proptest::collection::vec((0u8..20, 0u32..3, 0u64..30, any::<bool>()), 0..800),
    ) {
        let (mut tlb, mut plain) = tlbs(&levels);
        for (step, space, page, huge) in steps {
            let page = (space, page, huge);
            match step {
                0 => {
                    tlb.invalidate(key(page));
                    plain.0.iter_mut().for_each(|level| { level.take(page); });
                }
                1 => {
                    tlb.set_dirty(key(page));
                    plain.set_dirty(page);
                }
                2 if page.1 == 0 => {
                    tlb.flush();
                    plain.0.iter_mut().for_each(|level| level.sets.fill(Vec::new()));
                }
                _ => look_up(&mut tlb, &mut plain, page),
            }
        }
    }
}

#[test]
fn long_skewed_stream_matches_reference() {
    let (mut tlb, mut plain) = tlbs(&[(64, 4), (1536, 12)]);
    let mut zipf = Zipf::new(1 << 14, 0.99, 3);
    for _ in 0..200_000 {
        look_up(&mut tlb, &mut plain, (1, zipf.draw(), false));
    }
}

#[test]
fn pages_of_other_spaces_and_sizes_are_other_pages() {
    let (mut tlb, _) = tlbs(&[(8, 8)]);
    let translation = Translation { frame: 1, dirty: false };
    tlb.fill(PageKey::new(1, 5, false), translation);
    assert_eq!(tlb.lookup(PageKey::new(2, 5, false)), None);
    assert_eq!(tlb.lookup(PageKey::new(1, 5, true)), None);
    assert_eq!(tlb.lookup(PageKey::new(1, 5, false)), Some((translation, Time::ZERO)));
}
