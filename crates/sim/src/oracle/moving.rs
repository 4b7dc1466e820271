//! A plan whose pages move from window to window, to where their next reads are fastest.
//!
//! The value of a page in a window is the misses of its next reads: those in the window count whole, those in
//! each later one half as much as in the one before. A page moves to a nearer node, into free memory or in
//! exchange for pages of less value, if the latency that is saved is [`WORTH`] times the moves' cost.

use memtide_core::machine::Machine;
use memtide_core::policy::{Frame, Move};
use memtide_core::{LINE_BYTES, NodeId, PAGE_BYTES, PageSize, TaskId, Vpn};

use super::plan::{Draft, Goal, PagePlan, Step, farthest};
use super::windows::{PageReads, Window, in_all};

/// Worth of a read's value in the window after it.
const LATER: f32 = 0.5;

/// Least saving over cost, in time of the threads. Threads wait for several misses at once and next to each
/// other, so that saved latency is more than saved time.
const WORTH: f64 = 2.0;

/// Share of a window in which its moves must end.
const MOVING: f64 = 0.5;

/// The plan, for a machine that has been reduced; `None` if no page moves.
pub(super) fn plan(machine: &Machine, windows: &[Window]) -> Option<PagePlan> {
    let reads = in_all(windows);
    let values = values(&reads, windows);
    let first = values.first()?;
    let by_value: Vec<PageReads> =
        reads.iter().zip(first).map(|(page, &value)| PageReads { misses: value as u64, ..*page }).collect();
    let mut draft = Draft::new(machine);
    let mut nodes = draft.place(Goal::Latency, &by_value);
    nodes.sort_unstable();
    let mut moving = Moving { machine, pages: pages(&reads, &nodes), free: draft.free };
    let steps = windows.iter().zip(&values).skip(1).filter_map(|(window, values)| {
        let moves = moving.moves(values, window.time.as_ns() * MOVING);
        (!moves.is_empty()).then_some(Step { instructions: window.instructions, moves })
    });
    let steps: Vec<Step> = steps.collect();
    (!steps.is_empty()).then(|| PagePlan::new(nodes, steps))
}

/// The value of each page, by window.
fn values(reads: &[PageReads], windows: &[Window]) -> Vec<Vec<f32>> {
    let mut later = vec![0.0; reads.len()];
    let mut values: Vec<Vec<f32>> = Vec::with_capacity(windows.len());
    for window in windows.iter().rev() {
        let mut pages = window.reads.iter().peekable();
        for (page, value) in reads.iter().zip(&mut later) {
            let now = pages.next_if(|read| read.key() == page.key()).map_or(0, |read| read.misses);
            *value = now as f32 + *value * LATER;
        }
        values.push(later.clone());
    }
    values.reverse();
    values
}

/// The pages with a node, and their places in `reads`.
fn pages(reads: &[PageReads], nodes: &[(TaskId, Vpn, NodeId)]) -> Vec<Placed> {
    let mut nodes = nodes.iter().peekable();
    let placed = reads.iter().enumerate().filter_map(|(at, &reads)| {
        let &(_, _, node) = nodes.next_if(|&&(task, page, _)| (task, page) == reads.key())?;
        Some(Placed { at, reads, node, moved: false })
    });
    placed.collect()
}

struct Placed {
    /// Its place in the list of all pages.
    at: usize,
    reads: PageReads,
    node: NodeId,
    /// Whether it moves in this window.
    moved: bool,
}

/// Where pages are while moves are planned.
struct Moving<'m> {
    machine: &'m Machine,
    pages: Vec<Placed>,
    /// Base pages left on each node.
    free: Vec<u64>,
}

/// From a node to a nearer one of some pages.
#[derive(Clone, Copy)]
struct Way {
    far: NodeId,
    near: NodeId,
}

/// A page, and the latency that its reads save on the nearer node of a way, in ns.
type Saving = (usize, f64);

impl Moving<'_> {
    /// The moves of a window, which take at most this time.
    fn moves(&mut self, values: &[f32], limit_ns: f64) -> Vec<Move> {
        self.pages.iter_mut().for_each(|page| page.moved = false);
        let (mut moves, mut left_ns) = (Vec::new(), limit_ns);
        for far in self.machine.node_ids() {
            for near in self.machine.node_ids().filter(|&near| near != far) {
                for size in [PageSize::Base, PageSize::Huge] {
                    self.move_along(Way { far, near }, size, values, &mut left_ns, &mut moves);
                }
            }
        }
        moves
    }

    /// Moves pages of a size to the nearer node, those that save most first.
    fn move_along(
        &mut self,
        way: Way,
        size: PageSize,
        values: &[f32],
        left_ns: &mut f64,
        moves: &mut Vec<Move>,
    ) {
        let (up_ns, down_ns) = (self.cost_ns(way.far, size), self.cost_ns(way.near, size));
        let mut up = self.savings(way.far, way, size, values);
        up.retain(|&(_, saved)| saved > WORTH * up_ns);
        if up.is_empty() {
            return;
        }
        up.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut down = self.savings(way.near, way, size, values);
        down.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut down = down.into_iter();
        for (page, saved) in up {
            let has_room = self.free[way.near.index()] >= size.base_pages();
            let victim = if has_room { None } else { down.next() };
            let (lost, cost_ns) = match victim {
                Some((_, lost)) => (lost.max(0.0), up_ns + down_ns),
                None if has_room => (0.0, up_ns),
                None => return,
            };
            if saved - lost < WORTH * cost_ns || cost_ns > *left_ns {
                return;
            }
            *left_ns -= cost_ns;
            moves.extend(victim.map(|(victim, _)| self.relocate(victim, way.far)));
            moves.push(self.relocate(page, way.near));
        }
    }

    /// The pages of a size on a node that have not moved in this window.
    fn savings(&self, on: NodeId, way: Way, size: PageSize, values: &[f32]) -> Vec<Saving> {
        let pages = self.pages.iter().enumerate();
        let there = pages.filter(|(_, page)| page.node == on && page.reads.size == size && !page.moved);
        let saving = |(at, page): (usize, &Placed)| {
            let latency_ns = |node| self.machine.idle_latency(page.reads.initiator, node).as_ns();
            (at, f64::from(values[page.at]) * (latency_ns(way.far) - latency_ns(way.near)))
        };
        there.map(saving).collect()
    }

    /// Time of a move, its copy included, and what it takes from the threads of all CPUs.
    fn cost_ns(&self, from: NodeId, size: PageSize) -> f64 {
        let kernel = &self.machine.kernel;
        let shootdowns = kernel.shootdown_ns * self.machine.cpus() as f64;
        let lines = (size.base_pages() * PAGE_BYTES / LINE_BYTES) as f64;
        let together = f64::from(self.machine.core.outstanding_misses.max(1));
        let copy = farthest(self.machine, from).as_ns() * lines / together;
        kernel.unmap_ns + kernel.remap_ns + 2.0 * shootdowns + copy
    }

    fn relocate(&mut self, page: usize, to: NodeId) -> Move {
        let Placed { reads, node, moved, .. } = &mut self.pages[page];
        let PageReads { task, page, size, .. } = *reads;
        self.free[node.index()] += size.base_pages();
        self.free[to.index()] -= size.base_pages();
        *moved = true;
        let from = std::mem::replace(node, to);
        Move { task, page, size, from, to, wish: Frame::ANY }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use memtide_core::Time;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::oracle::plan::testing::{dram_pages, machine_named};
    use crate::oracle::windows::page_reads;

    /// NVM with a longer latency than DRAM, and this many pages of that.
    fn machine(dram_pages: u64) -> Machine {
        machine_named("hinuma", dram_pages)
    }

    fn window(number: u64, reads: Vec<PageReads>) -> Window {
        Window { instructions: number * 1000, time: Time::from_us(1_000_000), reads }
    }

    /// Reads of these pages, this many each.
    fn reads(pages: impl Iterator<Item = u64>, misses: u64) -> Vec<PageReads> {
        pages.map(|page| page_reads(page, misses, misses)).collect()
    }

    #[test]
    fn hot_set_is_on_dram_in_each_window() {
        let windows: Vec<Window> =
            (0..4).map(|at| window(at, reads(at % 2 * 8..at % 2 * 8 + 8, 10_000))).collect();
        let mut plan = plan(&machine(8), &windows).expect("pages move");
        for at in 0..4 {
            if at > 0 {
                assert_eq!(plan.due(at * 1000 - 1), None);
                let moves = plan.due(at * 1000).expect("moves with the window");
                assert_eq!(moves.len(), 16, "window {at}");
            }
            assert_eq!(dram_pages(&plan), (at % 2 * 8..at % 2 * 8 + 8).collect::<Vec<_>>());
        }
        assert!(!plan.moves_later());
    }

    #[test]
    fn pages_that_are_read_too_seldom_for_a_move_stay() {
        let few = |at: u64| window(at, reads(at % 2 * 8..at % 2 * 8 + 8, 10));
        assert!(plan(&machine(8), &(0..4).map(few).collect::<Vec<_>>()).is_none());
        let same = |at: u64| window(at, reads(0..16, 10_000));
        assert!(plan(&machine(8), &(0..4).map(same).collect::<Vec<_>>()).is_none());
    }

    #[test]
    fn moves_end_within_half_of_their_window() {
        let brief = |at: u64| Window {
            time: Time::from_us(2000),
            ..window(at, reads(at % 2 * 64..at % 2 * 64 + 64, 10_000))
        };
        let machine = machine(64);
        let mut plan = plan(&machine, &[brief(0), brief(1)]).expect("pages move");
        let moves = plan.due(1000).expect("moves").len() as f64;
        let cost = Moving { machine: &machine, pages: Vec::new(), free: Vec::new() };
        let swap_us = [0, 1].map(|node| cost.cost_ns(NodeId(node), PageSize::Base) / 1e3);
        assert!(moves > 0.0 && moves < 128.0, "{moves}");
        assert!(moves / 2.0 * (swap_us[0] + swap_us[1]) <= 1000.0, "{moves} {swap_us:?}");
    }

    proptest! {
        #[test]
        fn nodes_are_never_over_capacity_and_a_page_moves_once_a_window(
            windows in vec(btree_map(0u64..40, 0u64..20_000, 0..40), 1..6),
            dram in 4u64..32,
        ) {
            let windows = windows.iter().zip(0..).map(|(pages, at)| {
                window(at, pages.iter().map(|(&page, &misses)| page_reads(page, misses, misses)).collect())
            });
            let windows: Vec<Window> = windows.collect();
            if let Some(mut plan) = plan(&machine(dram), &windows) {
                for at in 1..windows.len() as u64 {
                    let Some(moves) = plan.due(at * 1000) else { continue };
                    let pages: BTreeSet<_> = moves.iter().map(|wanted| wanted.page).collect();
                    prop_assert_eq!(pages.len(), moves.len());
                    prop_assert!(moves.iter().all(|wanted| wanted.from != wanted.to));
                    prop_assert!(dram_pages(&plan).len() as u64 <= dram);
                }
                prop_assert!(!plan.moves_later());
            }
        }
    }
}
