//! Hot pages by bank and cache colour, and the frames that spread them.

use std::collections::BTreeSet;
use std::ops::Range;

use memtide_core::NodeId;
use memtide_core::policy::{Frame, FramesView};

/// A part of a node's frames: by cache colour and bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) colours: Range<u16>,
    pub(super) banks: Range<u16>,
}

impl Part {
    /// Whether a frame is of it; an unknown colour or bank is.
    pub(super) fn has(&self, frame: &Frame) -> bool {
        frame.colour.is_none_or(|colour| self.colours.contains(&colour))
            && frame.bank.is_none_or(|bank| self.banks.contains(&bank))
    }
}

/// The `part`th of `parts` nearly equal ranges of `0..of`; with more parts than there are numbers, several
/// parts share one.
pub(super) fn share(of: u16, part: usize, parts: usize) -> Range<u16> {
    let (of, parts) = (usize::from(of), parts.max(1));
    let from = (of * part / parts).min(of.saturating_sub(1));
    let to = (of * (part + 1) / parts).max(from + 1).min(of);
    from as u16..to as u16
}

/// The banks of the `part`th of `parts` programs: groups of banks of their own, as far as there are any.
pub(super) fn banks_of(frames: &FramesView, node: NodeId, part: usize, parts: usize) -> Range<u16> {
    let count = |of: &[u16]| of.get(node.index()).copied().unwrap_or(1).max(1);
    let (banks, groups) = (count(&frames.banks), count(&frames.bank_groups));
    let (own, each) = (share(groups, part, parts), banks / groups);
    own.start * each..own.end.saturating_mul(each)
}

/// Number of hot pages in each bank and of each colour, by node.
pub(super) struct Spread {
    banks: Vec<Vec<u64>>,
    colours: Vec<Vec<u64>>,
    /// Banks that had no frame for a wish.
    full: BTreeSet<(NodeId, u16)>,
}

impl Spread {
    pub(super) fn new(frames: &FramesView, full: BTreeSet<(NodeId, u16)>) -> Spread {
        let banks = frames.banks.iter().map(|&banks| vec![0; usize::from(banks)]).collect();
        let colours = vec![vec![0; usize::from(frames.colours)]; frames.banks.len()];
        Spread { banks, colours, full }
    }

    pub(super) fn enter(&mut self, node: NodeId, frame: &Frame) {
        self.change(node, frame, |count| *count += 1);
    }

    pub(super) fn leave(&mut self, node: NodeId, frame: &Frame) {
        self.change(node, frame, |count| *count = count.saturating_sub(1));
    }

    fn change(&mut self, node: NodeId, frame: &Frame, by: impl Fn(&mut u64)) {
        for (counts, at) in [(&mut self.banks, frame.bank), (&mut self.colours, frame.colour)] {
            let count = counts.get_mut(node.index()).zip(at).and_then(|(of, at)| of.get_mut(usize::from(at)));
            count.into_iter().for_each(&by);
        }
    }

    /// The frame of a part with the fewest hot pages in its bank and of its colour.
    pub(super) fn coldest(&self, node: NodeId, part: &Part) -> Frame {
        let least = |counts: Option<&Vec<u64>>, range: &Range<u16>, is_full: &dyn Fn(u16) -> bool| {
            let counts = counts.filter(|counts| counts.len() > 1)?;
            let known = |&at: &u16| usize::from(at) < counts.len() && !is_full(at);
            range.clone().filter(known).min_by_key(|&at| counts[usize::from(at)])
        };
        Frame {
            colour: least(self.colours.get(node.index()), &part.colours, &|_| false),
            bank: least(self.banks.get(node.index()), &part.banks, &|bank| self.full.contains(&(node, bank))),
        }
    }

    /// Whether a frame's bank has more hot pages than the coldest of its part, by more than a tenth of them
    /// and two: moving one would even them out.
    pub(super) fn is_crowded(&self, node: NodeId, frame: &Frame, part: &Part) -> bool {
        let Some(banks) = self.banks.get(node.index()) else { return false };
        let count = |bank: Option<u16>| bank.and_then(|bank| banks.get(usize::from(bank))).copied();
        match (count(frame.bank), count(self.coldest(node, part).bank)) {
            (Some(here), Some(there)) => here > there + there / 10 + 2,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(colours: u16, banks: &[u16]) -> FramesView {
        FramesView { colours, banks: banks.to_vec(), bank_groups: vec![1; banks.len()], pages: Vec::new() }
    }

    #[test]
    fn programs_share_banks_that_are_not_of_different_groups() {
        let frames = FramesView { bank_groups: vec![2, 1], ..frames(4, &[16, 8]) };
        let of = |node, part| banks_of(&frames, NodeId(node), part, 4);
        assert_eq!([of(0, 0), of(0, 1), of(0, 2), of(0, 3)], [0..8, 0..8, 8..16, 8..16]);
        assert_eq!([of(1, 0), of(1, 3)], [0..8, 0..8]);
    }

    #[test]
    fn shares_cover_all_and_overlap_only_when_there_are_too_few() {
        let shares = |of, parts| (0..parts).map(|part| share(of, part, parts)).collect::<Vec<_>>();
        assert_eq!(shares(8, 3), [0..2, 2..5, 5..8]);
        assert_eq!(shares(2, 4), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(shares(1, 2), [0..1, 0..1]);
        assert_eq!(share(4, 0, 0), 0..4);
    }

    #[test]
    fn coldest_frame_is_of_the_part_and_of_a_bank_that_is_not_full() {
        let frames = frames(4, &[4, 1]);
        let mut spread = Spread::new(&frames, [(NodeId(0), 3)].into());
        let at = |colour, bank| Frame { colour: Some(colour), bank: Some(bank) };
        [at(1, 1), at(1, 1), at(2, 2)].iter().for_each(|frame| spread.enter(NodeId(0), frame));
        let part = Part { colours: 1..4, banks: 1..4 };
        assert_eq!(spread.coldest(NodeId(0), &part), at(3, 2));
        spread.leave(NodeId(0), &at(1, 1));
        spread.leave(NodeId(0), &at(1, 1));
        assert_eq!(spread.coldest(NodeId(0), &part), at(1, 1));
        let without_banks = Frame { colour: Some(1), bank: None };
        assert_eq!(spread.coldest(NodeId(1), &part), without_banks);
        assert_eq!(spread.coldest(NodeId(7), &part), Frame::ANY);
    }

    #[test]
    fn bank_is_crowded_beyond_a_tenth_and_two_pages() {
        let frames = frames(1, &[2]);
        let mut spread = Spread::new(&frames, BTreeSet::new());
        let part = Part { colours: 0..1, banks: 0..2 };
        let [first, second] = [0, 1].map(|bank| Frame { colour: None, bank: Some(bank) });
        (0..20).for_each(|_| spread.enter(NodeId(0), &second));
        (0..24).for_each(|_| spread.enter(NodeId(0), &first));
        assert!(!spread.is_crowded(NodeId(0), &first, &part));
        spread.enter(NodeId(0), &first);
        assert!(spread.is_crowded(NodeId(0), &first, &part));
        assert!(!spread.is_crowded(NodeId(0), &second, &part));
    }
}
