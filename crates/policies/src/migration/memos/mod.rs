//! `memos`: the full hierarchy. Hot pages belong on DRAM, those that are written before others, and cold ones
//! on NVM; each in a part of the last-level cache for pages like it, and in the coldest of its program's
//! banks.
//!
//! ```text
//!  a pass of samples ──▶ labels: hot, streaming, rare; write or read domain
//!        │
//!        ├─▶ marks: up, down     ── kept for a pass? ──▶ moves between the channels ─┐
//!        ├─▶ channels' balance   ── DRAM alone busy? ──▶ moves to NVM               ─┼─▶ colour, bank
//!        ├─▶ quotas of the cache ── wrong colour?    ──▶ moves to another frame     ─┤
//!        └─▶ hot pages by bank   ── crowded bank?    ──▶ moves to another frame     ─┘
//! ```

mod balance;
mod draft;
mod pages;
mod quotas;

use std::collections::BTreeSet;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Action, Delivery, Event, FramesView, Migration, Outcome, PageSampling, Plan, Reason, Sensor, Sensors,
    View, Wake,
};
use memtide_core::{Machine, NodeId, PAGE_BYTES, Time};
use serde::{Deserialize, Serialize};

use self::balance::{Balance, peaks};
use self::draft::Draft;
use self::pages::{Known, Label, Labelling, Mark, Seen, Use, carried_on, listed};
use self::quotas::{Demand, Quotas};
use super::groups::{Groups, pages_per_epoch};
use super::shared::{from_text, to_text};
use super::spread::Spread;
use crate::entry::{Info, MigrationEntry};

/// Part of the hot pages that leaves DRAM in a pass while the channels are out of balance.
const BALANCE_PART: usize = 8;

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "memos",
        summary: "hot pages go to the fastest tier, written ones first, others off it; each to a bank and a \
                  part of the cache for pages like it",
        when: "the slow memory is written slowly, wears or takes much energy, and pages differ in \
            writes",
        source: "memos sections II-B to II-D, figure 4",
        figures: true,
        parameters: &[
            Parameter::integer("sampling_ms", "ms", "time between two samples of all pages", [1, 10, 10_000]),
            Parameter::integer("samplings", "samples", "samples of a pass", [2, 200, 10_000]),
            Parameter::integer(
                "hot",
                "%",
                "a page accessed in this share of a pass's samples is hot",
                [1, 10, 100],
            ),
            Parameter::integer(
                "write_weight",
                "reads",
                "reads that a write counts for: weighted writes from as many as reads on make a write domain",
                [1, 2, 1000],
            ),
            Parameter::integer(
                "wd_interval",
                "passes",
                "passes since a page was last of the write domain after which it leaves the fastest tier",
                [1, 2, 1000],
            ),
            Parameter::integer(
                "npass",
                "passes",
                "passes between marking a page and migrating it, in which the mark can change",
                [0, 1, 1000],
            ),
            Parameter::word(
                "reads",
                "whether hot read pages go to the fastest tier, after written ones, or stay off it",
                &["up", "stay"],
            ),
            Parameter::integer("pages", "pages/pass", "maximum moves per pass", [1, 65_536, 100_000_000]),
            Parameter::word(
                "cache",
                "whether the last-level cache is divided by page colour",
                &["divided", "whole"],
            ),
            Parameter::word(
                "banks",
                "whether programs that run together get banks of their own, or all share them; `any` leaves \
                 banks alone",
                &["divided", "shared", "any"],
            ),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(Memos::new(machine, values)),
};

struct Memos {
    groups: Groups,
    pass: Time,
    sampling: Time,
    labelling: Labelling,
    wd_interval: u64,
    npass: u64,
    pages: usize,
    /// Whether hot pages of the read domain belong on DRAM, too.
    raises_reads: bool,
    divides_cache: bool,
    divides_banks: bool,
    uses_banks: bool,
    /// Peak bandwidth of each node, in MB/s.
    peaks: Vec<f64>,
    state: State,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Number of passes so far.
    passes: u64,
    /// Pages by task and address.
    known: Vec<Known>,
    balance: Balance,
    quotas: Quotas,
    /// Banks that had no frame for a wish in the last pass.
    full: BTreeSet<(NodeId, u16)>,
}

impl Memos {
    fn new(machine: &Machine, values: &Values) -> Memos {
        let sampling = Time::from_ms(values.u32("sampling_ms").into());
        let samplings = values.u32("samplings");
        let cache_kib = machine.caches.last().map_or(0, |cache| cache.capacity_kib);
        let labelling = Labelling {
            hot: (samplings * values.u32("hot")).div_ceil(100).max(1),
            write_weight: values.u32("write_weight"),
            cache_pages: (cache_kib * 1024 / PAGE_BYTES / machine.reduction()).max(1),
        };
        Memos {
            groups: Groups::new(machine),
            pass: sampling * u64::from(samplings),
            sampling,
            labelling,
            wd_interval: values.u32("wd_interval").into(),
            npass: values.u32("npass").into(),
            pages: pages_per_epoch(machine, values),
            raises_reads: values.word("reads") == "up",
            divides_cache: values.word("cache") == "divided",
            divides_banks: values.word("banks") == "divided",
            uses_banks: values.word("banks") != "any",
            peaks: peaks(machine),
            state: State::default(),
        }
    }

    /// The direction in which a page belongs.
    fn direction(&self, seen: &Seen, label: &Label, known: &Known) -> Option<Mark> {
        let is_fast = self.groups.is_fast(seen.node);
        let belongs_up =
            label.is_hot && (self.raises_reads || label.is_written || label.of == Use::Streaming);
        let was_written = self.state.passes.saturating_sub(known.written) < self.wd_interval;
        match (is_fast, belongs_up) {
            (false, true) => Some(Mark::Up),
            (true, false) if !was_written => Some(Mark::Down),
            _ => None,
        }
    }

    /// Updates the pages' marks; returns those whose mark has held, by direction.
    fn mark(&mut self, pages: &[Seen], labels: &[Label]) -> [Vec<usize>; 2] {
        self.state.known = carried_on(&self.state.known, pages, labels, self.state.passes);
        let mut due = [Vec::new(), Vec::new()];
        for (at, (seen, label)) in pages.iter().zip(labels).enumerate() {
            let wanted = self.direction(seen, label, &self.state.known[at]);
            let passes = self.state.passes;
            let known = &mut self.state.known[at];
            known.mark = match (wanted, known.mark) {
                (Some(wanted), Some((mark, since))) if wanted == mark => Some((mark, since)),
                (wanted, _) => wanted.map(|wanted| (wanted, passes)),
            };
            if let Some((mark, since)) = known.mark
                && passes.saturating_sub(since) >= self.npass
            {
                due[mark as usize].push(at);
            }
        }
        due
    }

    /// The demand of both channels' hot pages; a write to NVM counts for several reads.
    fn demands(&self, pages: &[Seen], labels: &[Label]) -> [Demand; 2] {
        let mut demands = [Demand::default(); 2];
        for (seen, _) in pages.iter().zip(labels).filter(|(_, label)| label.of == Use::Hot) {
            let is_fast = self.groups.is_fast(seen.node);
            let weight = if is_fast { 0 } else { u64::from(self.labelling.write_weight) };
            let demand = &mut demands[usize::from(!is_fast)];
            let writes = u64::from(seen.written).saturating_mul(weight);
            demand.accesses = demand.accesses.saturating_add(u64::from(seen.accessed)).saturating_add(writes);
            demand.pages += 1;
        }
        demands
    }

    /// Hot pages of DRAM that are written least, to use NVM's bandwidth, too.
    fn overflow(&self, pages: &[Seen], labels: &[Label]) -> Vec<usize> {
        let is_hot = |at: &usize| labels[*at].is_hot && self.groups.is_fast(pages[*at].node);
        let mut hot: Vec<usize> = (0..pages.len()).filter(is_hot).collect();
        hot.sort_by_key(|&at| (pages[at].written, pages[at].page));
        hot.truncate(hot.len() / BALANCE_PART);
        hot
    }
}

impl Migration for Memos {
    fn sensors(&self) -> Sensors {
        Sensors::new(Delivery::Deployable, self.pass)
            .require(Sensor::PageSamples(PageSampling { sampling: self.sampling }))
            .want(Sensor::Frames)
            .want(Sensor::NodeTraffic)
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        let Event::Completion(done) = event else { return };
        if let (Outcome::Made(frame), Action::Move(wanted)) = (&done.outcome, &done.planned.action)
            && !frame.satisfies(&wanted.wish)
        {
            self.state.full.extend(wanted.wish.bank.map(|bank| (wanted.to, bank)));
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.state.passes = self.state.passes.saturating_add(1);
        let pages = listed(view);
        let labels = self.labelling.labels(&pages);
        let [up, down] = self.mark(&pages, &labels);
        self.state.balance.observe(view, &self.peaks, |node| self.groups.is_fast(node));
        let frames = view.frames.clone().unwrap_or_else(|| FramesView {
            colours: 1,
            banks: vec![1; view.nodes.len()],
            bank_groups: vec![1; view.nodes.len()],
            pages: Vec::new(),
        });
        let colours = if self.divides_cache { frames.colours } else { 1 };
        let demands = self.demands(&pages, &labels);
        self.state.quotas.adjust(colours, self.labelling.cache_pages, demands);

        let spread = Spread::new(&frames, std::mem::take(&mut self.state.full));
        let mut draft = Draft::new(self, view, &pages, &labels, spread, &frames, plan);
        let allows = |mark| self.state.balance.allows(mark);
        let mut moved = [false; 2];
        if allows(Mark::Down) {
            moved[1] |= draft.cross_all(&down, Reason::Cold);
        }
        if allows(Mark::Up) {
            moved[0] |= draft.promote(&up);
        }
        if self.state.balance.is_out_of_balance() && allows(Mark::Down) {
            moved[1] |= draft.cross_all(&self.overflow(&pages, &labels), Reason::Bandwidth);
        }
        draft.sort_frames();
        [Mark::Up, Mark::Down].into_iter().filter(|&mark| moved[mark as usize]).for_each(|mark| {
            self.state.balance.note(mark);
        });
        Wake::After(self.pass)
    }

    fn state(&self) -> String {
        to_text(&self.state)
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let state: State = from_text(state)?;
        let key = |known: &Known| (known.task, known.page);
        if !state.known.is_sorted_by(|a, b| key(a) < key(b)) || !state.quotas.is_sound() {
            return Err("pages out of order, or a quota beyond the cache".to_owned());
        }
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
