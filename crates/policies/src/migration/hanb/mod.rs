//! `hanb`: hybrid memory-aware NUMA balancing. Hot pages go to the fastest tier, and for each of them N cold
//! ones leave it, N following the bandwidth; within a tier, pages go to the CPUs that access them.
//!
//! ```text
//!  TLB miss of a page of the queue ──▶ count ── once an interval: sort, hot and cold ──▶ N down for each up
//!  pages of the queue missed least ◀── once an interval ──▶ other pages, in order of their addresses
//!  NUMA hint fault ──▶ filter ──▶ nearest node of the page's group with free memory
//!  LLC miss rate ──▶ interval (eq. 6)      bandwidth ──▶ N (eq. 7, 8)
//! ```

mod queue;
mod tuning;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    Action, Completion, Delivery, Event, HintFault, Migration, Move, Outcome, Plan, Reason, Refusal, Sensor,
    Sensors, TlbMissSampling, View, Wake,
};
use memtide_core::{Machine, NodeId, TaskId, Time, Vpn};
use serde::{Deserialize, Serialize};

use self::queue::{Entry, MISS, Queue, Saved};
use self::tuning::{Interval, Ratio, queue_length};
use super::groups::{COUNT, Draft, Groups, PAGE_NS, PAGES, pages_of, pages_per_epoch, resident, sampling};
use super::shared::{from_text, to_text};
use super::trigger::{FILTER, Memory, Trigger};
use crate::entry::{Info, MigrationEntry};

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "hanb",
        summary: "hot pages go to the fastest tier, N cold ones leave it for each; N follows the bandwidth",
        when: "hot pages stay hot for many seconds, on tiers that differ in bandwidth",
        source: "hinuma sections III-C and III-D, equations 6 to 8",
        figures: false,
        parameters: &[
            Parameter::integer(
                "epoch_ms",
                "ms",
                "first sampling interval; later ones follow equation 6, from an eighth to eight times this",
                [10, 4000, 600_000],
            ),
            Parameter::integer(
                "penalty",
                "%",
                "allowed slow-down by sorting, X: the queue has X / (100 t_p) of all pages, t_p being \
                 `page_ns` in microseconds",
                [1, 5, 100],
            ),
            PAGE_NS,
            Parameter::integer(
                "hot",
                "misses",
                "a page with at least as many counted TLB misses, older ones halved, can be promoted; fewer, \
                 in proportion, after an interval of fewer than `marks` markings",
                [1, 2, 1023],
            ),
            PAGES,
            Parameter::integer("ratio_max", "pages", "maximum of N", [1, 8, 1000]),
            Parameter::integer(
                "settle",
                "%",
                "changes of bandwidth below this leave N as it is",
                [0, 5, 100],
            ),
            Parameter::integer(
                "marks",
                "markings",
                "how often in the first interval the queue's pages are marked to count their next TLB miss",
                [1, 4, 1000],
            ),
            COUNT,
            FILTER,
            Parameter::word(
                "copy",
                "how kernel threads copy pages: mapped, while a store drops the copy, which is made again; \
                 or unmapped, while accesses wait",
                &["on-write", "unmapped"],
            ),
        ],
    },
    check: |_| Ok(()),
    make: |machine, values| Box::new(Hanb::new(machine, values)),
};

struct Hanb {
    groups: Groups,
    configured: Time,
    penalty: u32,
    page_ns: u32,
    hot: u32,
    marks: u32,
    pages: usize,
    ratio_max: u32,
    settle: u32,
    counting: TlbMissSampling,
    copy_on_write: bool,
    trigger: Trigger,
    queue: Queue,
    tuned: Tuned,
}

/// What it remembers, but for the queue and the hint faults.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tuned {
    interval: Interval,
    ratio: Ratio,
    /// The first page of those to be counted next: the pages behind it were counted last.
    hand: (TaskId, Vpn),
    /// Base pages sent to each node since the last decision.
    sent: Vec<u64>,
}

/// Its saved state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    tuned: Tuned,
    queue: Saved,
    trigger: Memory,
}

impl Hanb {
    fn new(machine: &Machine, values: &Values) -> Hanb {
        let configured = Time::from_ms(values.u32("epoch_ms").into());
        let groups = Groups::new(machine);
        let tuned = Tuned {
            interval: Interval::new(configured),
            ratio: Ratio::new(),
            hand: (TaskId(0), Vpn(0)),
            sent: vec![0; groups.nodes()],
        };
        let counting = TlbMissSampling { planned: true, ..sampling(values, configured) };
        Hanb {
            groups,
            configured,
            penalty: values.u32("penalty"),
            page_ns: values.u32("page_ns"),
            hot: values.u32("hot"),
            marks: values.u32("marks"),
            pages: pages_per_epoch(machine, values),
            ratio_max: values.u32("ratio_max"),
            settle: values.u32("settle"),
            counting,
            copy_on_write: values.word("copy") == "on-write",
            trigger: Trigger::new(machine, values),
            queue: Queue::default(),
            tuned,
        }
    }

    /// Moves a page within its group to the node nearest to the CPU that has free memory.
    fn on_hint_fault(&mut self, fault: &HintFault, view: &View, plan: &mut Plan) {
        let Some(wanted) = self.trigger.on_fault(fault) else { return };
        let needed = fault.size.base_pages();
        let fits = |&node: &NodeId| {
            let free = view.node(node).map_or(0, |seen| seen.free_pages);
            self.groups.is_fast(node) == self.groups.is_fast(fault.node)
                && (node == fault.node || free >= self.tuned.sent[node.index()] + needed)
        };
        let to = self.groups.order().from_cpu(fault.cpu).iter().copied().find(fits);
        if let Some(to) = to.filter(|to| *to != fault.node) {
            self.tuned.sent[to.index()] += needed;
            plan.push_move(Move { to, ..wanted }, Reason::Locality);
        }
    }

    fn on_completion(&mut self, done: &Completion) {
        let Action::Move(Move { task, page, to, .. }) = done.planned.action else { return };
        match done.outcome {
            Outcome::Made(_) => self.queue.set_node((task, page), to),
            Outcome::Refused(Refusal::Gone) | Outcome::Cancelled(_) => {
                self.trigger.forget_all(&done.planned.action);
                self.queue.remove((task, page));
            }
            Outcome::Refused(_) => {}
        }
    }

    /// The pages that are not in the queue, from the hand on and round to it.
    fn outside<'v>(&'v self, view: &'v View) -> impl DoubleEndedIterator<Item = Entry> + 'v {
        let hand = self.tuned.hand;
        let pages = || {
            let regions = view.regions.iter();
            let pages = regions.flat_map(|r| pages_of(r).map(move |page| Entry::idle(page, r.node)));
            pages.filter(|entry| !self.queue.contains(entry.key()))
        };
        let ahead = pages().filter(move |entry| entry.key() >= hand);
        ahead.chain(pages().filter(move |entry| entry.key() < hand))
    }

    /// Puts other pages in the place of those of the queue that are used least, and counts the misses of its
    /// pages from now on.
    fn renew(&mut self, view: &View, plan: &mut Plan) {
        let resident = resident(view);
        self.queue.make_room(queue_length(self.penalty, self.page_ns, resident), resident);
        self.queue.age();
        let new: Vec<Entry> = self.outside(view).take(self.queue.room()).collect();
        if let Some((task, page)) = new.last().map(Entry::key) {
            self.tuned.hand = (task, Vpn(page.0.saturating_add(1)));
        }
        new.into_iter().for_each(|entry| self.queue.admit(entry));
        plan.count(self.queue.pages().collect());
    }

    /// Misses of a hot page, in units of 1 / [`MISS`]: the configured ones, or as many of the markings of a
    /// shorter interval; at least one.
    fn hot_misses(&self) -> u32 {
        let hot = u64::from(self.hot.saturating_mul(MISS));
        let markings = self.tuned.interval.length().0.div_ceil(self.counting.marking.0);
        let scaled = hot.saturating_mul(markings) / u64::from(self.marks);
        scaled.clamp(u64::from(MISS).min(hot), hot) as u32
    }

    /// The migration across groups: for each hot page up, N cold ones down.
    fn exchange(&mut self, view: &View, plan: &mut Plan) {
        let n = self.tuned.ratio.next(view, self.settle, self.ratio_max) as usize;
        plan.spend(Time::from_ns(f64::from(self.page_ns)) * self.queue.len() as u64);
        let (fast, slow): (Vec<Entry>, Vec<Entry>) =
            self.queue.sorted().into_iter().partition(|entry| self.groups.is_fast(entry.node));
        let hot_misses = self.hot_misses();
        let hot: Vec<Entry> =
            slow.into_iter().rev().take_while(|entry| entry.misses >= hot_misses).take(self.pages).collect();
        let (idle, used): (Vec<Entry>, Vec<Entry>) = fast.into_iter().partition(|entry| entry.misses == 0);
        // The last pages behind the hand have left the queue last.
        let unlisted = self.outside(view).rev().filter(|entry| self.groups.is_fast(entry.node));
        let mut cold = idle.into_iter().chain(unlisted).chain(used).peekable();
        let mut draft = Draft::new(&self.groups, view, plan);
        for up in hot {
            for _ in 0..n {
                let is_colder = |down: &Entry| down.misses.saturating_add(MISS) <= up.misses;
                let Some(down) = cold.next_if(is_colder) else { break };
                draft.cross(down.page, down.node, Reason::MakeRoom);
            }
            draft.cross(up.page, up.node, Reason::Hot);
        }
    }
}

impl Migration for Hanb {
    fn sensors(&self) -> Sensors {
        let sensors = Sensors::new(Delivery::InKernel, self.counting.marking);
        let sensors = if self.copy_on_write { sensors.copy_on_write() } else { sensors };
        let sensors = sensors
            .require(Sensor::TlbMisses(self.counting))
            .require(Sensor::LlcMisses)
            .require(Sensor::NodeTraffic);
        if self.groups.has_neighbours() { sensors.require(Sensor::HintFaults) } else { sensors }
    }

    fn on_event(&mut self, event: &Event, view: &View, plan: &mut Plan) {
        match event {
            Event::TlbMiss(miss) => self.queue.count(miss),
            Event::HintFault(fault) => self.on_hint_fault(fault, view, plan),
            Event::Completion(done) => self.on_completion(done),
            _ => {}
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.tuned.sent.fill(0);
        self.queue.retain_tasks(|task| view.task(task).is_some());
        self.exchange(view, plan);
        self.renew(view, plan);
        Wake::After(self.tuned.interval.next(view.llc, self.configured))
    }

    fn state(&self) -> String {
        let (tuned, queue) = (self.tuned.clone(), self.queue.saved());
        to_text(&State { tuned, queue, trigger: self.trigger.memory() })
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let State { tuned, queue, trigger } = from_text(state)?;
        let nodes = self.groups.nodes();
        let is_sound = tuned.interval.is_within(self.configured)
            && tuned.sent.len() == nodes
            && (1..=self.ratio_max).contains(&tuned.ratio.n);
        if !is_sound {
            return Err("an interval, a ratio or nodes that this policy cannot have".to_owned());
        }
        self.queue = Queue::restored(queue, nodes)?;
        self.trigger.remember(trigger)?;
        self.tuned = tuned;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
