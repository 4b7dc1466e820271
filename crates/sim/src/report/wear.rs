//! Wear of nodes, channels and banks.

use memtide_core::machine::Node;
use memtide_core::{LINE_BYTES, PAGE_BYTES, Time};
use memtide_memory::channel::AddressMap;

use super::{WearReport, share};

const SECONDS_OF_YEAR: f64 = 365.25 * 86_400.0;

/// Writes to some frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameWrites {
    frames: u64,
    written: u64,
    lines: u64,
    most: u32,
}

impl FrameWrites {
    fn add(&mut self, lines: u32) {
        self.frames += 1;
        self.written += u64::from(lines > 0);
        self.lines += u64::from(lines);
        self.most = self.most.max(lines);
    }

    pub fn report(&self, endurance: f64, time: Time) -> WearReport {
        let lines_of_page = (PAGE_BYTES / LINE_BYTES) as f64;
        let years = time.as_seconds() / SECONDS_OF_YEAR;
        let most = f64::from(self.most);
        let worn = self.most > 0;
        let mean_of_written = share(self.lines, self.written);
        WearReport {
            written_lines: self.lines,
            page_writes_max: self.most.into(),
            page_writes_mean: mean_of_written,
            life_years: worn.then(|| endurance * lines_of_page / most * years),
            life_share: worn.then(|| share(self.lines, self.frames) / most),
            life_share_of_written: worn.then(|| mean_of_written / most),
        }
    }
}

/// Writes to the frames of a node, and of its channels and banks.
pub(super) struct Wear {
    pub node: FrameWrites,
    /// `None` if pages are spread over channels.
    pub channels: Option<Vec<FrameWrites>>,
    /// By channel; `None` if pages are spread over banks.
    pub banks: Option<Vec<Vec<FrameWrites>>>,
}

impl Wear {
    /// By lines written to each frame of the node.
    pub fn of(spec: &Node, frames: &[u32]) -> Wear {
        let mut node = FrameWrites::default();
        frames.iter().for_each(|&lines| node.add(lines));
        let Some(dram) = &spec.dram else { return Wear { node, channels: None, banks: None } };
        let map = AddressMap::new(dram);
        let mut channels = vec![FrameWrites::default(); dram.channels.into()];
        let mut banks = vec![vec![FrameWrites::default(); map.banks()]; dram.channels.into()];
        let (mut one_channel, mut one_bank) = (true, true);
        for (page, &lines) in (0..).zip(frames) {
            match map.locate_page(page) {
                Some((channel, bank)) => {
                    channels[channel].add(lines);
                    match bank {
                        Some(bank) => banks[channel][usize::from(bank)].add(lines),
                        None => one_bank = false,
                    }
                }
                None => (one_channel, one_bank) = (false, false),
            }
        }
        Wear { node, channels: one_channel.then_some(channels), banks: one_bank.then_some(banks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(frames: &[u32]) -> FrameWrites {
        let mut writes = FrameWrites::default();
        frames.iter().for_each(|&lines| writes.add(lines));
        writes
    }

    #[test]
    fn life_is_that_of_the_most_written_frame() {
        // A frame of 64 lines, each written 2 times in a hundredth of a year, with 10^6 writes of endurance.
        let time = Time((SECONDS_OF_YEAR * 1e6) as u64 * 10_000);
        let report = of(&[128, 64, 0, 0]).report(1e6, time);
        assert!((report.life_years.unwrap() / 5e3 - 1.0).abs() < 1e-9);
        assert_eq!((report.written_lines, report.page_writes_max), (192, 128));
        assert_eq!(report.page_writes_mean, 96.0);
        assert_eq!(report.life_share, Some(48.0 / 128.0));
        assert_eq!(report.life_share_of_written, Some(0.75));
    }

    #[test]
    fn perfect_levelling_lasts_as_long_as_the_mean_cell() {
        let report = of(&[7; 100]).report(1e6, Time::from_ms(1));
        assert_eq!((report.life_share, report.life_share_of_written), (Some(1.0), Some(1.0)));
    }

    #[test]
    fn memory_without_writes_has_no_end() {
        let report = of(&[0, 0]).report(1e6, Time::from_ms(1));
        assert_eq!((report.life_years, report.life_share, report.life_share_of_written), (None, None, None));
    }
}
