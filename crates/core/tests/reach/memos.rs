//! memos (Liu et al. 2017): written pages move from NVM to DRAM, each to the bank with the fewest of them and
//! to one colour.

use std::collections::BTreeMap;

use memtide_core::epoch::Limits;
use memtide_core::policy::{
    Action, Delivery, Event, Frame, Migration, Move, Outcome, Plan, Reason, Sensors, View, Wake,
};

use super::{EPOCH, FAST, REGIONS, Run, SLOW, move_of, pages};

struct Memos {
    colour: u16,
    /// Pages moved to each bank with available frames.
    banks: BTreeMap<u16, u64>,
}

impl Memos {
    /// Requests the bank with the fewest pages, and counts a page there.
    fn wish(&mut self) -> Frame {
        let coldest = self.banks.iter_mut().min_by_key(|(_, pages)| **pages);
        let bank = coldest.map(|(bank, pages)| {
            *pages += 1;
            *bank
        });
        Frame { colour: Some(self.colour), bank }
    }
}

impl Migration for Memos {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, EPOCH).require(REGIONS)
    }

    fn on_event(&mut self, event: &Event, _: &View, plan: &mut Plan) {
        let Event::Completion(done) = event else { return };
        if let (Outcome::Made(frame), Action::Move(wanted)) = (&done.outcome, &done.planned.action)
            && !frame.satisfies(&wanted.wish)
        {
            wanted.wish.bank.map(|bank| self.banks.remove(&bank));
            let again = Move { from: wanted.to, wish: self.wish(), ..*wanted };
            plan.push_move(again, done.planned.reason);
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        let written =
            view.regions.iter().filter(|region| region.node == SLOW && region.writes > region.reads);
        for page in written.flat_map(|region| pages(&region)) {
            let wish = self.wish();
            plan.push_move(Move { wish, ..move_of(page, SLOW, FAST) }, Reason::Hot);
        }
        Wake::After(EPOCH)
    }
}

/// Pages 0 to 7 are on NVM; two of three are written.
fn on_nvm() -> Run {
    let banks = (0..4).map(|bank| (bank, 0)).collect();
    let mut run = Run::new(Memos { colour: 5, banks }, &[64, 64], Limits::default());
    run.map(0..9, SLOW);
    for page in 0..9 {
        let page_of = run.page(page);
        (page_of.reads, page_of.writes) = if page % 3 == 0 { (9, 1) } else { (1, 9) };
    }
    run
}

/// Pages on DRAM by bank; their colour is the requested one.
fn by_bank(run: &mut Run) -> BTreeMap<u16, u64> {
    let mut banks = BTreeMap::new();
    for page in 0..9 {
        let page = *run.page(page);
        if page.node == FAST {
            assert_eq!(page.frame.colour, Some(5));
            *banks.entry(page.frame.bank.expect("it was wished for")).or_default() += 1;
        }
    }
    banks
}

#[test]
fn written_pages_spread_over_banks_and_keep_their_colour() {
    let mut run = on_nvm();
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!(by_bank(&mut run), [(0, 2), (1, 2), (2, 1), (3, 1)].into());
    assert_eq!((run.moved(SLOW, FAST), run.moved_in_all()), (6, 6));
}

#[test]
fn page_with_unfulfilled_bank_wish_retries() {
    let mut run = on_nvm();
    run.host.take_frames(FAST, Frame { colour: Some(5), bank: Some(0) });
    run.epoch();
    let got = |run: &Run| {
        let frame = |outcome| if let Outcome::Made(frame) = outcome { frame.bank } else { None };
        run.outcomes().into_iter().map(frame).collect::<Vec<_>>()
    };
    assert_eq!(got(&run), [1, 1, 2, 3, 1, 1].map(Some), "the first and the fifth wished for bank 0");
    (0..3).for_each(|_| _ = run.epoch());
    assert_eq!(got(&run)[6..], [2, 3].map(Some));
    assert_eq!(by_bank(&mut run), [(1, 2), (2, 2), (3, 2)].into());
    assert_eq!([run.moved(SLOW, FAST), run.moved(FAST, FAST)], [6, 2]);
    assert_eq!(run.host.node(FAST).free_pages, 64 - 6);
}
