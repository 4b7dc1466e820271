//! Parts of a region on one node, to the resolution of sampled pages.

use std::io;

use memtide_core::{NodeId, PageSize};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Found;
use super::located::{Located, Run, Sample, refine, runs};

/// Sampled pages per region (maximum, minimum) and over all regions. Each costs the kernel thousands of
/// instructions.
const SAMPLED_MAX: u64 = 16;
const SAMPLED_MIN: u64 = 2;
const SAMPLED_TOTAL: u64 = 512;

/// Maximum pages of a process that are looked at for the borders between samples on different nodes.
const REFINED_MAX: usize = 512;

/// Samples pages, one at random from each equal part of a region.
#[derive(Debug)]
pub struct PageSampler(Xoshiro256PlusPlus);

/// Node and size of a page.
pub type Place = (NodeId, PageSize);

/// Sampled pages per region, if there are this many.
pub fn pages_of_each(regions: usize) -> u64 {
    (SAMPLED_TOTAL / regions.max(1) as u64).clamp(SAMPLED_MIN, SAMPLED_MAX)
}

impl PageSampler {
    /// Its samples are the same each time.
    pub fn new() -> PageSampler {
        PageSampler(Xoshiro256PlusPlus::seed_from_u64(1))
    }

    /// The runs of each region, by this many of its pages: `places` says where pages are, and `written` of
    /// each whether it was written recently.
    ///
    /// # Errors
    /// Those of `places`.
    pub fn runs(
        &mut self,
        found: &[Found],
        pages: u64,
        mut places: impl FnMut(&[u64]) -> io::Result<Vec<Option<Place>>>,
        written: impl FnOnce(&[u64]) -> Vec<bool>,
    ) -> io::Result<Vec<Vec<Run>>> {
        let located =
            |place: Option<Place>, written| place.map(|(node, size)| Located { node, size, written });
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.draw_pages(found, pages)).collect();
        let all = asked.concat();
        let of_all = all.iter().zip(places(&all)?).zip(written(&all));
        let mut of_all = of_all.map(|((&page, place), written)| (page, located(place, written)));
        let mut samples: Vec<Vec<Sample>> =
            asked.iter().map(|asked| of_all.by_ref().take(asked.len()).collect()).collect();
        refine(&mut samples, REFINED_MAX, |pages| {
            Ok(places(pages)?.into_iter().map(|place| located(place, false)).collect())
        })?;
        Ok(found.iter().zip(&samples).map(|(found, samples)| runs(found, samples)).collect())
    }

    /// Pages of a region, one at random from each of this many equal parts.
    fn draw_pages(&mut self, found: &Found, parts: u64) -> Vec<u64> {
        let parts = found.pages.min(parts);
        (0..parts)
            .map(|part| {
                let (from, to) = (found.pages * part / parts, found.pages * (part + 1) / parts);
                found.start + from + self.0.next_u64() % (to - from)
            })
            .collect()
    }
}
