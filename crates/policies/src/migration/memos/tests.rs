//! Domains and marks, channels, cache and banks.

use std::ops::Range;

use memtide_core::machine::bundled;
use memtide_core::policy::{
    Completion, Event, Frame, FramesView, Migration, Move, NodeView, Outcome, Plan, Reason, Region, Traffic,
    View,
};
use memtide_core::{NodeId, PageSize, TaskId, Time, Vpn};

use crate::testing::{moves_of, node_view};

const DRAM: u8 = 0;
const NVM: u8 = 1;
/// Hot and written; hot and read; not accessed.
const WRITTEN: (u32, u32) = (100, 90);
const READ: (u32, u32) = (100, 3);
const IDLE: (u32, u32) = (0, 0);

/// A policy and the pages of its programs.
struct Run {
    policy: Box<dyn Migration>,
    pages: Vec<Seen>,
    colours: u16,
    banks: u16,
    free: [u64; 2],
    /// Bytes moved by each node so far.
    bytes: [u64; 2],
    time: Time,
}

#[derive(Clone, Copy)]
struct Seen {
    task: u32,
    page: u64,
    node: u8,
    samples: (u32, u32),
    frame: Frame,
}

fn at(colour: u16, bank: u16) -> Frame {
    Frame { colour: Some(colour), bank: Some(bank) }
}

impl Run {
    /// On machine memos; its pages have colour 8 and bank 0, unless they are changed.
    fn new(text: &str, pages: &[(u8, (u32, u32))]) -> Run {
        let machine = bundled::machine("memos").expect("bundled").expect("sound");
        let policy = crate::parse(&format!("interleave+memos:{text}")).expect("a policy").migration(&machine);
        let seen = |(page, &(node, samples))| Seen { task: 1, page, node, samples, frame: at(8, 0) };
        let pages = (0..).zip(pages).map(seen).collect();
        Run { policy, pages, colours: 1, banks: 8, free: [1000, 1000], bytes: [0, 0], time: Time::ZERO }
    }

    /// The moves of a pass in which the nodes move this many MB per second; all are made.
    fn pass(&mut self, mbps: [u64; 2]) -> Vec<(Move, Reason)> {
        self.time += Time::from_ms(1000);
        let node = |node: u8| {
            let (id, at) = (NodeId(node), usize::from(node));
            let traffic =
                Some(Traffic { read_bytes: self.bytes[at] + mbps[at] * 1_000_000, written_bytes: 0 });
            NodeView { traffic, ..node_view(id, 2000, self.free[at]) }
        };
        let nodes = [DRAM, NVM].map(node).to_vec();
        self.bytes = [0, 1].map(|at| self.bytes[at] + mbps[at] * 1_000_000);
        let mut view = View { time: self.time, nodes, ..View::default() };
        for seen in &self.pages {
            let Seen { task, page, node, samples: (reads, writes), .. } = *seen;
            let (task, start, size, node) = (TaskId(task), Vpn(page), PageSize::Base, NodeId(node));
            view.regions.push(Region { task, start, pages: 1, size, node, reads, writes, age: 0 });
        }
        let frames = self.pages.iter().map(|seen| seen.frame).collect();
        view.frames = Some(FramesView {
            colours: self.colours,
            banks: vec![self.banks; 2],
            bank_groups: vec![2; 2],
            pages: frames,
        });
        let mut plan = Plan::default();
        self.policy.decide(&view, &mut plan);
        for wanted in plan.moves() {
            let of = |seen: &&mut Seen| (seen.task, seen.page) == (wanted.task.0, wanted.page.0);
            let seen = self.pages.iter_mut().find(of).expect("a listed page");
            (seen.node, seen.frame) = (wanted.to.0, wanted.wish);
        }
        moves_of(&plan)
    }

    /// The pages moved in a pass without traffic, with their targets.
    fn moved(&mut self) -> Vec<(u64, u8)> {
        self.pass([0, 0]).iter().map(|(wanted, _)| (wanted.page.0, wanted.to.0)).collect()
    }
}

#[test]
fn hot_written_pages_go_to_dram_after_a_pass_in_which_their_mark_holds() {
    let mut run = Run::new(
        "reads=stay,cache=whole,banks=any",
        &[(NVM, WRITTEN), (NVM, READ), (NVM, IDLE), (NVM, WRITTEN)],
    );
    assert_eq!(run.moved(), [], "marked");
    run.pages[3].samples = READ;
    assert_eq!(run.moved(), [(0, DRAM)], "page 3 lost its mark, 1 and 2 had none");
    run.pages[3].samples = WRITTEN;
    assert_eq!(run.moved(), [], "it is marked again");
    assert_eq!(run.moved(), [(3, DRAM)]);
}

#[test]
fn without_npass_marks_act_at_once() {
    let mut run = Run::new("npass=0,reads=stay,cache=whole,banks=any", &[(NVM, WRITTEN), (NVM, READ)]);
    assert_eq!(run.moved(), [(0, DRAM)]);
}

#[test]
fn pages_leave_dram_wd_interval_passes_after_they_were_written() {
    for (interval, passes) in [(2, 3), (3, 4)] {
        let text = format!("wd_interval={interval},reads=stay,cache=whole,banks=any");
        let mut run = Run::new(&text, &[(DRAM, WRITTEN), (DRAM, WRITTEN), (NVM, WRITTEN)]);
        run.moved();
        run.pages[0].samples = READ;
        let left = (1..9).find(|_| run.moved().contains(&(0, NVM)));
        assert_eq!(left, Some(passes), "{interval} passes, and one in which the mark holds");
        assert!(run.moved().is_empty(), "page 1 is written and stays");
    }
}

#[test]
fn write_counts_for_two_reads() {
    // Of 30 samples with an access, 10 with a write: as many weighted writes as reads.
    let mut run = Run::new(
        "npass=0,reads=stay,cache=whole,banks=any",
        &[(NVM, (30, 10)), (NVM, (30, 9)), (NVM, (19, 19))],
    );
    assert_eq!(run.moved(), [(0, DRAM)], "page 2 is accessed in less than a tenth of 200 samples");
    let mut run = Run::new("npass=0,write_weight=3,reads=stay,cache=whole,banks=any", &[(NVM, (30, 9))]);
    assert_eq!(run.moved(), [(0, DRAM)]);
}

#[test]
fn moved_pages_go_to_the_coldest_bank() {
    let mut run =
        Run::new("npass=0,cache=whole", &[(DRAM, WRITTEN), (NVM, WRITTEN), (NVM, WRITTEN), (NVM, WRITTEN)]);
    run.banks = 2;
    let wishes: Vec<_> = run.pass([0, 0]).iter().map(|(wanted, _)| wanted.wish).collect();
    let bank = |bank| Frame { colour: None, bank: Some(bank) };
    assert_eq!(wishes, [bank(1), bank(0), bank(1)], "page 0 is in bank 0");
}

#[test]
fn bank_without_frames_is_not_wished_for_in_the_next_pass() {
    let mut run = Run::new("npass=0,cache=whole", &[(NVM, WRITTEN), (NVM, IDLE)]);
    let (wanted, reason) = run.pass([0, 0])[0];
    let mut plan = Plan::default();
    plan.push_move(wanted, reason);
    let planned = plan.actions()[0].clone();
    let outcome = Outcome::Made(Frame { bank: Some(5), ..wanted.wish });
    let done = Event::Completion(Completion { time: run.time, planned, outcome });
    run.policy.on_event(&done, &View::default(), &mut Plan::default());
    run.pages[0].frame = at(8, 5);
    run.pages[1].samples = WRITTEN;
    assert_ne!(run.pass([0, 0])[0].0.wish.bank, wanted.wish.bank);
}

#[test]
fn hot_pages_of_a_bank_spread_over_all() {
    let mut run = Run::new("cache=whole", &[(DRAM, WRITTEN); 40]);
    let moved = run.pass([0, 0]);
    assert!(
        moved.iter().all(|(wanted, reason)| wanted.to == NodeId(DRAM) && *reason == Reason::Interference)
    );
    let in_bank = |bank| run.pages.iter().filter(|seen| seen.frame.bank == Some(bank)).count();
    let counts: Vec<usize> = (0..8).map(in_bank).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 3, "{counts:?}");
    assert!(run.pass([0, 0]).is_empty(), "balanced");
}

#[test]
fn programs_together_have_banks_of_their_own() {
    let pages = [(DRAM, WRITTEN), (DRAM, WRITTEN), (DRAM, WRITTEN), (DRAM, WRITTEN)];
    let mut run = Run::new("cache=whole", &pages);
    for (at, seen) in run.pages.iter_mut().enumerate() {
        (seen.task, seen.page) = (1 + at as u32 / 2, at as u64);
    }
    run.pass([0, 0]);
    let banks: Vec<u16> = run.pages.iter().map(|seen| seen.frame.bank.unwrap()).collect();
    assert!(banks[..2].iter().all(|bank| *bank < 4) && banks[2..].iter().all(|bank| *bank >= 4), "{banks:?}");
}

/// Colours wished for in a pass, of pages in their order.
fn colours(run: &mut Run) -> Vec<Option<u16>> {
    run.pass([0, 0]);
    run.pages.iter().map(|seen| seen.frame.colour).collect()
}

#[test]
fn streaming_pages_get_a_slice_of_the_cache() {
    // The cache of the machine at its scale holds 128 pages; 200 pages with equal counts stream.
    let mut pages = vec![(DRAM, (60, 60)); 200];
    pages.extend([(DRAM, (150, 150)), (DRAM, (190, 150))]);
    let mut run = Run::new("banks=any", &pages);
    run.colours = 16;
    let colours = colours(&mut run);
    assert!(colours[..200].iter().all(|colour| *colour == Some(0)), "{colours:?}");
    assert!(colours[200..].iter().all(|colour| *colour >= Some(2)), "{colours:?}");
}

#[test]
fn nvm_s_quota_grows_by_a_colour_a_pass_when_written_pages_land_there() {
    use super::quotas::{Demand, Quotas};
    let mut quotas = Quotas::default();
    let demand = |accesses| Demand { accesses, pages: 100 };
    let slow = |quotas: &mut Quotas, accesses: [u64; 2]| -> Range<u16> {
        quotas.adjust(16, 128, accesses.map(demand));
        assert_eq!(quotas.hot(true).start, quotas.hot(false).end, "they meet");
        quotas.hot(false)
    };
    let lengths: Vec<usize> = (0..9).map(|_| slow(&mut quotas, [100, 900]).len()).collect();
    assert_eq!(lengths, [8, 9, 10, 11, 12, 13, 13, 13, 13], "DRAM keeps one");
    assert_eq!(slow(&mut quotas, [900, 100]).len(), 12);
    assert_eq!((quotas.streaming(), quotas.rare()), (0..1, 1..2));
    quotas.adjust(16, 128, [Demand { accesses: 9, pages: 60 }, Demand { accesses: 9, pages: 52 }]);
    assert_eq!((quotas.hot(true), quotas.hot(false)), (2..16, 2..16), "all hot pages fit: merged");
    quotas.adjust(2, 128, [demand(1), demand(1)]);
    assert_eq!((quotas.hot(true), quotas.streaming()), (0..2, 0..2), "too few colours");
}

#[test]
fn busy_dram_gives_pages_to_nvm_until_its_utilisation_drops() {
    let mut run = Run::new("npass=0,cache=whole,banks=any", &[(DRAM, WRITTEN); 80]);
    run.pages.push(Seen { page: 80, node: NVM, ..run.pages[0] });
    run.pass([0, 0]);
    run.pages[80].node = NVM;
    let to_nvm = |moves: &[(Move, Reason)]| {
        assert!(moves.iter().all(|(wanted, reason)| (wanted.to.0, *reason) == (NVM, Reason::Bandwidth)));
        moves.len()
    };
    // Peak bandwidth of the DRAM channel: about 10,000 MB/s.
    assert_eq!(to_nvm(&run.pass([9000, 100])), 10, "an eighth of DRAM's hot pages, and none goes up");
    assert_eq!(to_nvm(&run.pass([9000, 1000])), 8);
    assert_eq!(to_nvm(&run.pass([8000, 1500])), 0, "DRAM's utilisation drops");
}

#[test]
fn moves_to_dram_rest_for_a_pass_when_its_utilisation_drops() {
    let mut run = Run::new("npass=0,pages=16,cache=whole,banks=any", &[(NVM, WRITTEN); 3]);
    assert_eq!(run.pass([100, 100]).len(), 1, "16 pages of the real machine are one at scale 16");
    run.pass([200, 100]);
    assert_eq!(run.pass([100, 100]), [], "it fell after a move");
    assert_eq!(run.pass([100, 100]).len(), 1);
}

#[test]
fn full_dram_makes_room_by_its_least_accessed_pages() {
    let pages = [(DRAM, (5, 5)), (DRAM, (2, 2)), (DRAM, WRITTEN), (NVM, WRITTEN)];
    let mut run = Run::new("npass=0,wd_interval=9,cache=whole,banks=any", &pages);
    run.free = [0, 100];
    let moves: Vec<_> = run.pass([0, 0]).iter().map(|(m, reason)| (m.page.0, m.to.0, *reason)).collect();
    assert_eq!(moves, [(1, NVM, Reason::MakeRoom), (3, DRAM, Reason::Hot)]);
}

#[test]
fn hot_read_pages_follow_written_ones_and_give_way_to_them() {
    let pages = [(DRAM, READ), (NVM, READ), (NVM, WRITTEN)];
    let moves = |free| {
        let mut run = Run::new("npass=0,cache=whole,banks=any", &pages);
        run.free = free;
        run.pass([0, 0]).iter().map(|(m, reason)| (m.page.0, m.to.0, *reason)).collect::<Vec<_>>()
    };
    assert_eq!(moves([9, 100]), [(2, DRAM, Reason::Hot), (1, DRAM, Reason::Hot)]);
    assert_eq!(moves([0, 100]), [(0, NVM, Reason::MakeRoom), (2, DRAM, Reason::Hot)]);
}
