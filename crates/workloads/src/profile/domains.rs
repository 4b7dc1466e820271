//! Write-domain and read-domain pages.

use serde::Deserialize;

use super::Locality;
use crate::random::{hash, unit};

/// By how much a page that is missing in the write domain raises the probability of the next page.
const CORRECTION: f64 = 0.1;

/// Which pages are written most (memos section II-B: write domain, read domain), as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domains {
    /// Accessed pages in the write domain; the others are in the read domain.
    pub write_footprint_share: f64,
    /// Hot pages in the write domain.
    pub hot_write_share: f64,
    /// Stores among the accesses to pages of the write domain.
    pub write_domain_stores: f64,
    /// Stores among the accesses to pages of the read domain.
    pub read_domain_stores: f64,
}

impl Domains {
    /// Share of stores among all accesses.
    pub(super) fn store_share(&self, locality: &Locality) -> f64 {
        let random = 1.0 - locality.sequential_share;
        let hot = random * locality.hot_share;
        let written = hot * self.hot_write_share + (1.0 - hot) * self.write_footprint_share;
        written * self.write_domain_stores + (1.0 - written) * self.read_domain_stores
    }
}

/// How often a page is accessed, in any stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heat {
    Idle,
    Cold,
    Hot,
}

/// The domain of each page, the same for the whole run.
pub(super) struct PageDomains {
    written: Vec<bool>,
    /// Probability of a store in each domain, in 65536ths: read domain, write domain.
    stores: [u16; 2],
}

impl PageDomains {
    /// Domains are spread over the hot pages and over the cold ones, evenly but without a period: pages of
    /// one node or bank often are at equal distances. Idle pages are in the read domain.
    pub(super) fn new(domains: &Domains, heat: &[Heat]) -> PageDomains {
        let [cold, hot] =
            [Heat::Cold, Heat::Hot].map(|of| heat.iter().filter(|&&heat| heat == of).count() as f64);
        let all = domains.write_footprint_share * (cold + hot);
        let cold_share = ((all - domains.hot_write_share * hot) / cold.max(1.0)).clamp(0.0, 1.0);
        let shares = [cold_share, domains.hot_write_share];
        // Pages by which the write domain is below its share so far.
        let mut short = [0.0; 2];
        let domain = |(page, &heat): (usize, &Heat)| {
            if heat == Heat::Idle {
                return false;
            }
            let of = usize::from(heat == Heat::Hot);
            let (share, short) = (shares[of], &mut short[of]);
            let written = unit(hash(page as u64)) < share + CORRECTION * *short;
            *short += share - f64::from(u8::from(written));
            written
        };
        PageDomains {
            written: heat.iter().enumerate().map(domain).collect(),
            stores: [domains.read_domain_stores, domains.write_domain_stores].map(super::share_65536),
        }
    }

    /// Whether an access to the page is a store, by 16 random bits.
    #[inline]
    pub(super) fn stores(&self, page: u64, bits: u16) -> bool {
        bits < self.stores[usize::from(self.written[page as usize])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAINS: Domains = Domains {
        write_footprint_share: 0.3,
        hot_write_share: 0.8,
        write_domain_stores: 0.9,
        read_domain_stores: 0.1,
    };

    /// Every `stride`th of the pages is hot, the others are cold.
    fn heat(pages: usize, stride: usize) -> Vec<Heat> {
        (0..pages).map(|page| if page % stride == 0 { Heat::Hot } else { Heat::Cold }).collect()
    }

    #[test]
    fn shares_of_write_domain_pages_are_as_asked() {
        // Idle pages, a fifth, do not count.
        let heat = [heat(10_000, 10), vec![Heat::Idle; 2500]].concat();
        let pages = PageDomains::new(&DOMAINS, &heat);
        let share = |counts: &dyn Fn(Heat) -> bool| {
            let chosen = pages.written.iter().zip(&heat).filter(|(_, heat)| counts(**heat));
            let (written, all) =
                chosen.fold((0.0, 0.0), |(w, n), (&written, _)| (w + f64::from(written), n + 1.0));
            written / all
        };
        assert!((share(&|heat| heat != Heat::Idle) - 0.3).abs() < 0.002);
        assert!((share(&|heat| heat == Heat::Hot) - 0.8).abs() < 0.002);
        assert_eq!(share(&|heat| heat == Heat::Idle), 0.0);
    }

    #[test]
    fn domains_are_spread_over_nodes_and_banks() {
        // Interleaving places pages on two nodes in turn, and each node's frames on eight banks.
        for stride in [4, 5, 8, 10, 13, 16] {
            let pages = PageDomains::new(&DOMAINS, &heat(160_000, stride));
            for turn in 0..16 {
                let written = pages.written.iter().skip(turn).step_by(16).filter(|&&written| written);
                let share = written.count() as f64 / 1e4;
                let hot = (0..10_000).filter(|at| (at * 16 + turn) % stride == 0).count() as f64 / 1e4;
                let cold_share = (0.3 - 0.8 / stride as f64) / (1.0 - 1.0 / stride as f64);
                let expected = hot * 0.8 + (1.0 - hot) * cold_share.max(0.0);
                assert!((share - expected).abs() < 0.02, "{stride} {turn}: {share} for {expected}");
            }
        }
    }

    #[test]
    fn store_share_is_that_of_the_pages_accessed() {
        let locality = |sequential_share, hot_share| Locality {
            sequential_share,
            hot_share,
            hot_footprint_share: 0.1,
            dependent_share: 0.0,
            touched_in_turn: false,
            domains: Some(DOMAINS),
        };
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-12;
        assert!(near(DOMAINS.store_share(&locality(1.0, 0.9)), 0.3 * 0.9 + 0.7 * 0.1));
        assert!(near(DOMAINS.store_share(&locality(0.0, 1.0)), 0.8 * 0.9 + 0.2 * 0.1));
    }
}
