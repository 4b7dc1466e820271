//! Parts of a region on one node, to the resolution of sampled pages.

use std::io;

use memtide_core::{NodeId, PageSize};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Pid;

use super::Found;
use super::located::{Located, Run, Sample, refine, runs};
use crate::movers::nodes_of;
use crate::sys::pagemap::huge_pages;

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

/// Sampled pages per region, if there are this many.
pub fn pages_of_each(regions: usize) -> u64 {
    (SAMPLED_TOTAL / regions.max(1) as u64).clamp(SAMPLED_MIN, SAMPLED_MAX)
}

impl PageSampler {
    /// Its samples are the same each time.
    pub fn new() -> PageSampler {
        PageSampler(Xoshiro256PlusPlus::seed_from_u64(1))
    }

    /// The runs of each region of a process, by this many of its pages; `written` says of each page whether
    /// it was written recently.
    ///
    /// # Errors
    /// If the kernel does not tell the pages' nodes.
    pub fn runs(
        &mut self,
        pid: Pid,
        found: &[Found],
        pages: u64,
        number: impl Fn(NodeId) -> Option<NodeId>,
        written: impl FnOnce(&[u64]) -> Vec<bool>,
    ) -> io::Result<Vec<Vec<Run>>> {
        let asked: Vec<Vec<u64>> = found.iter().map(|found| self.draw_pages(found, pages)).collect();
        let all = asked.concat();
        let nodes = nodes_of(pid, &all)?;
        let written = written(&all);
        let huge = huge_pages(pid);
        let place = |id: Option<NodeId>, page, written| {
            let size = if huge(page) { PageSize::Huge } else { PageSize::Base };
            Some(Located { node: number(id?)?, size, written })
        };
        let located = nodes.iter().zip(&all).zip(written);
        let mut located = located.map(|((&id, &page), written)| (page, place(id, page, written)));
        let mut samples: Vec<Vec<Sample>> =
            asked.iter().map(|asked| located.by_ref().take(asked.len()).collect()).collect();
        refine(&mut samples, REFINED_MAX, |pages| {
            let nodes = nodes_of(pid, pages)?;
            Ok(nodes.iter().zip(pages).map(|(&id, &page)| place(id, page, false)).collect())
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
