//! Quotas of the last-level cache, in page colours.
//!
//! ```text
//! colour   0          1        2 ...              ... C-1
//!          streaming  rare     NVM's ──▶ ◀── DRAM's          (a boundary that moves like a balloon)
//!          streaming  rare     both channels'                (merged: all hot pages fit)
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Fewer colours than this are not divided.
const COLOURS_MIN: u16 = 4;

/// Weighted accesses of a channel's hot pages in a pass, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub accesses: u64,
    pub pages: u64,
}

/// The division of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quotas {
    /// Number of colours; 0 until the first pass.
    colours: u16,
    /// NVM's colours.
    slow: u16,
    is_merged: bool,
}

impl Quotas {
    /// Colours of each reserved slice: a sixteenth of the cache, or one.
    fn reserved(&self) -> u16 {
        (self.colours / 16).max(1)
    }

    /// Colours of both channels' hot pages.
    fn shared(&self) -> u16 {
        self.colours - 2 * self.reserved()
    }

    /// Adjusts the division to the demands of DRAM and NVM on a cache of `pages` pages: NVM's quota follows
    /// its share of the demand, by one colour a pass.
    pub fn adjust(&mut self, colours: u16, pages: u64, [fast, slow]: [Demand; 2]) {
        if colours < COLOURS_MIN {
            *self = Quotas { colours, slow: 0, is_merged: true };
            return;
        }
        if self.colours != colours {
            *self = Quotas { colours, slow: 0, is_merged: false };
            self.slow = self.shared() / 2;
        }
        let shared = u128::from(self.shared());
        let all = u128::from(fast.accesses) + u128::from(slow.accesses);
        if let Some(wanted) = (u128::from(slow.accesses) * shared + all / 2).checked_div(all) {
            let wanted = (wanted as u16).clamp(1, self.shared() - 1);
            self.slow = wanted.clamp(self.slow.saturating_sub(1), self.slow + 1);
        }
        let hot = u128::from(fast.pages) + u128::from(slow.pages);
        self.is_merged = hot * u128::from(colours) <= u128::from(pages) * shared;
    }

    /// Whether the cache is divided.
    pub fn divides(&self) -> bool {
        self.colours >= COLOURS_MIN
    }

    /// Colours of streaming pages.
    pub fn streaming(&self) -> Range<u16> {
        if self.divides() { 0..self.reserved() } else { 0..self.colours.max(1) }
    }

    /// Colours of rarely accessed pages.
    pub fn rare(&self) -> Range<u16> {
        let reserved = self.reserved();
        if self.divides() { reserved..2 * reserved } else { 0..self.colours.max(1) }
    }

    /// Colours of a channel's hot pages.
    pub fn hot(&self, is_fast: bool) -> Range<u16> {
        if !self.divides() {
            return 0..self.colours.max(1);
        }
        let first = 2 * self.reserved();
        match (self.is_merged, is_fast) {
            (true, _) => first..self.colours,
            (false, true) => first + self.slow..self.colours,
            (false, false) => first..first + self.slow,
        }
    }

    /// Whether it is possible.
    pub fn is_sound(&self) -> bool {
        !self.divides() || (self.slow >= 1 && self.slow < self.shared())
    }
}
