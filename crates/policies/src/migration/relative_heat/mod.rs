//! `relative-heat`: exchanges pages while those on slow memory cost more waiting than those on fast memory.

mod calibration;
mod calm;
mod candidates;
mod collapses;
mod costs;
mod exchange;
mod heat;
mod latencies;
mod load;
mod pages;
mod parallelism;
mod rates;
mod refused;
mod sampled;
mod splits;
mod stores;
mod trust;
mod waits;
mod weight;

use memtide_core::params::{Parameter, Values};
use memtide_core::policy::{
    AccessSampling, Action, Completion, Delivery, Event, Migration, NodeView, Outcome, Plan, Reason, Refusal,
    RegionSampling, Sensor, Sensors, View, Wake,
};
use memtide_core::{LINE_BYTES, Machine, NodeId, PAGE_BYTES, PageSize, TaskId, Time};

use self::calibration::Calibrations;
use self::calm::Calm;
use self::candidates::{Candidates, Collector};
use self::collapses::Blocks;
use self::costs::Costs;
use self::exchange::Draft;
use self::heat::Heat;
use self::latencies::Latencies;
use self::pages::Pages;
use self::refused::Refused;
use self::sampled::Sampled;
use self::trust::{Regret, Trust};
use super::room::{Room, Tiers, part};
use super::shared::{from_text, to_text};
use crate::entry::{Info, MigrationEntry};
use crate::policy::SHARE_OF_A_CORE;

pub(super) const ENTRY: MigrationEntry = MigrationEntry {
    info: Info {
        name: "relative-heat",
        summary: "exchanges pages while those on slow memory are accessed more than those on fast memory",
        when: "some pages are accessed more than others, on tiers that differ in latency",
        source: "memtide; regions after Linux's DAMON, certainty from the variance of a binomial share",
        figures: false,
        parameters: &[
            Parameter::integer("epoch_ms", "ms", "time between two decisions", [10, 500, 600_000]),
            Parameter::integer(
                "sampling_us",
                "us",
                "sampling interval of a region at first; at most a tenth of `epoch_ms`",
                [100, 10_000, 1_000_000],
            ),
            Parameter::number(
                "budget",
                SHARE_OF_A_CORE,
                "share of a core that monitoring and decisions may take, which sets how often; 0: any",
                [0.0, 1.0, 100.0],
            ),
            Parameter::integer(
                "period",
                "accesses",
                "misses per sampled access at first, where the processor samples them; 0: not at all",
                [0, 1024, 1_000_000_000],
            ),
            Parameter::integer("regions", "regions", "maximum number of regions", [10, 1000, 100_000]),
            Parameter::integer(
                "half_life_ms",
                "ms",
                "time in which a sample's weight falls to half",
                [1, 4000, 3_600_000],
            ),
            Parameter::number(
                "deviations",
                "",
                "standard deviations by which a page must be hotter than its victim, by regions",
                [0.0, 3.0, 100.0],
            ),
            Parameter::integer(
                "payback_ms",
                "ms",
                "time in which a move must save more waiting than it costs",
                [1, 30_000, 3_600_000],
            ),
            Parameter::number(
                "low",
                "%",
                "the coolest pages of a node are demoted once less than this share of it is free",
                [0.0, 0.5, 99.0],
            ),
            Parameter::number(
                "high",
                "%",
                "share that is free after that, and that promotions to free memory leave",
                [0.0, 1.0, 99.0],
            ),
            Parameter::integer(
                "pages",
                "pages/epoch",
                "maximum promotions, and maximum demotions, per epoch",
                [1, 16_384, 100_000_000],
            ),
        ],
    },
    check: |values| match (values.f64("low"), values.f64("high")) {
        (low, high) if low > high => Err(format!("low is {low}, high is {high}; high must be at least low")),
        _ => Ok(()),
    },
    make: |machine, values| Box::new(RelativeHeat::new(machine, values)),
};

/// Minimum samples of a page per epoch.
const SAMPLES: u64 = 10;

/// Epochs that a page must have been watched before it moves: the monitor's first regions are coarse, and
/// their mean says little of each page.
const EPOCHS_MIN: i32 = 3;

/// How many times as often as its victim's a page must be accessed to take its place. The hottest of many
/// similar pages are so partly by chance, and cool down once they have moved.
const RATIO_MIN: f64 = 2.0;

/// Candidates of each kind per page that the last plan by samples changed, and their minimum: sorting takes
/// time. Also candidates per block that a plan may collapse.
const CANDIDATES: u64 = 4;
const CANDIDATES_MIN: u64 = 2048;

/// Shares of the budget that decisions and access samples get; the rest is for regions beside samples.
const DECISIONS_SHARE: f64 = 0.4;
const SAMPLES_SHARE: f64 = 0.4;

/// Spans remembered for each region of the monitor.
const SPANS_PER_REGION: usize = 4;

struct RelativeHeat {
    tiers: Tiers,
    nodes: Vec<Node>,
    epoch: Time,
    sampling: Time,
    budget_bp: Option<u32>,
    /// Processor time in ns that decisions may take per epoch.
    decisions_ns: f64,
    period: u32,
    regions_max: u32,
    /// Samples of a page per epoch, if the host does not choose their number.
    samples: f64,
    /// Weight of the samples until now beside a new one's.
    kept: f64,
    /// Weight of the epochs of a page that has been watched long enough to move, less what rounding may lose.
    known: f64,
    deviations: f64,
    /// Epochs in which a move must pay.
    payback: f64,
    low: f64,
    high: f64,
    /// What an access waits for the TLB once its huge page is split, in ns.
    walk_ns: f64,
    /// Loads that a store counts as.
    store_weight: f64,
    /// Limit of base pages promoted per epoch, and of those demoted: divided by slice and scale, at least a
    /// huge page.
    pages: u64,
    /// Base pages that the last plan by samples changed; `None` before it.
    changed: Option<u64>,
    /// By the monitor's regions.
    heat: Heat,
    /// By sampled accesses.
    sampled: Sampled,
    refused: Refused,
    trust: Trust,
    regret: Regret,
    /// Accesses per epoch that a demoted base page is expected to have beyond what it seems to have.
    regretted: f64,
    latencies: Latencies,
    costs: Costs,
    calm: Calm,
    calibrations: Calibrations,
}

/// What the machine file says of a node.
struct Node {
    /// Idle latency from the nearest CPUs.
    idle: Time,
    /// To read or write a base page.
    copy: Time,
    /// To move a page, without the copy.
    move_ns: f64,
}

impl RelativeHeat {
    fn new(machine: &Machine, values: &Values) -> RelativeHeat {
        let ms = |name| Time::from_ms(values.u32(name).into());
        let epoch = ms("epoch_ms");
        let sampling = Time::from_us(values.u32("sampling_us").into());
        let sampling = Time(sampling.0.min(epoch.0 / SAMPLES));
        let pages = u64::from(values.u32("pages"));
        let pages = (pages / machine.reduction()).max(pages.min(PageSize::Huge.base_pages()));
        let nodes: Vec<Node> = machine.node_ids().map(|node| Node::of(machine, node)).collect();
        let kept = libm::exp2(-(epoch.0 as f64 / ms("half_life_ms").0 as f64));
        let budget = values.f64("budget");
        RelativeHeat {
            tiers: Tiers::of(machine),
            latencies: Latencies::new(nodes.iter().map(|node| node.idle)),
            nodes,
            epoch,
            sampling,
            budget_bp: Some(budget * 100.0).filter(|&bp| bp > 0.0).map(|bp| (bp as u32).max(1)),
            decisions_ns: match budget {
                0.0 => f64::MAX,
                percent => epoch.as_ns() * percent / 100.0 * DECISIONS_SHARE,
            },
            period: values.u32("period"),
            regions_max: values.u32("regions"),
            samples: (epoch.0 / sampling.0) as f64,
            kept,
            known: (0..EPOCHS_MIN).map(|epoch| libm::pow(kept, f64::from(epoch))).sum::<f64>() * 0.999,
            deviations: values.f64("deviations"),
            payback: ms("payback_ms").0 as f64 / epoch.0 as f64,
            low: values.f64("low"),
            high: values.f64("high"),
            walk_ns: splits::walk_ns(machine),
            store_weight: stores::weight(machine),
            pages,
            changed: None,
            heat: Heat::default(),
            sampled: Sampled::default(),
            refused: Refused::default(),
            trust: Trust::default(),
            regret: Regret::default(),
            regretted: 0.0,
            costs: Costs::default(),
            calm: Calm::default(),
            calibrations: Calibrations::default(),
        }
    }

    fn tier(&self, node: NodeId) -> usize {
        self.tiers.tier(node)
    }

    /// The fastest tier's nearest node.
    fn fastest(&self, from: NodeId) -> NodeId {
        self.tiers.near(0, from).next().unwrap_or(from)
    }

    fn fast_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.node_ids().filter(|&node| self.tier(node) == 0)
    }

    /// The nearest node of the next tier; the node itself if it is of the last one.
    fn slower(&self, from: NodeId) -> NodeId {
        let tiers = self.tier(from) + 1..=self.tiers.slowest();
        tiers.into_iter().find_map(|tier| self.tiers.near(tier, from).next()).unwrap_or(from)
    }

    /// Base pages to be demoted from a node, for free memory. What they leave may be on per-CPU lists.
    fn short(&self, used: &NodeView) -> u64 {
        let free_pages = used.free_pages.saturating_add(used.per_cpu_pages);
        if self.tier(used.node) > 0 || free_pages >= part(used.pages, self.low) {
            return 0;
        }
        part(used.pages, self.high).saturating_sub(free_pages)
    }

    /// Pages of a node's per-CPU lists that are as good as free: with `high` free memory in all, the kernel
    /// has `low` of it beside the lists.
    fn listed(&self, used: &NodeView) -> u64 {
        used.per_cpu_pages.min(part(used.pages, self.high) - part(used.pages, self.low))
    }

    /// Cost of moving a base page of a span to a node, in ns.
    fn cost_ns(&self, span: &Pages, to: NodeId) -> f64 {
        let (from, to) = (&self.nodes[span.node.index()], &self.nodes[to.index()]);
        (from.copy + to.copy).as_ns() + self.costs.move_ns(from.move_ns) / span.size.base_pages() as f64
    }

    /// Waiting that is saved in the payback time if a base page of a span is on the fastest tier and accessed
    /// as often as now, in ns.
    fn saved_ns(&self, span: &Pages, slow: NodeId) -> f64 {
        self.waiting_ns(span.rate.mean, slow)
    }

    /// What this many accesses per epoch to a slow node wait in the payback time beyond those to the fastest
    /// tier, in ns.
    fn waiting_ns(&self, accesses: f64, slow: NodeId) -> f64 {
        self.moved_ns(accesses, slow, self.fastest(slow))
    }

    /// Waiting that is saved in the payback time if this many accesses per epoch go to another node, in ns.
    fn moved_ns(&self, accesses: f64, from: NodeId, to: NodeId) -> f64 {
        let [from_ns, to_ns] = [from, to].map(|node| self.latencies.mean_ns(node));
        accesses * self.payback * (from_ns - to_ns)
    }

    /// Waiting that a move of a base page of a span saves in the payback time, beyond what it costs, in ns.
    fn net_ns(&self, span: &Pages, to: NodeId) -> f64 {
        let saved = match self.moved_ns(span.rate.mean, span.node, to) {
            saved if saved > 0.0 => self.trust.share() * saved,
            _ => self.moved_ns(span.rate.mean + self.regretted, span.node, to),
        };
        saved - self.cost_ns(span, to)
    }

    /// Whether a span is worth a free place on the fastest tier.
    fn pays(&self, span: &Pages) -> bool {
        self.trust.share() * self.saved_ns(span, span.node) > self.cost_ns(span, self.fastest(span.node))
    }

    /// Whether a span on the fastest tier would not be promoted to it.
    fn is_idle(&self, span: &Pages) -> bool {
        let slower = self.slower(span.node);
        slower != span.node && self.saved_ns(span, slower) <= self.cost_ns(span, slower)
    }

    /// Whether a span on slow memory is worth the place of one on the fastest tier, once it has no more
    /// accesses than promoted pages keep.
    fn pays_instead(&self, span: &Pages, victim: &Pages) -> bool {
        let costs = self.cost_ns(span, victim.node) + self.cost_ns(victim, span.node);
        let (kept, lost) = (self.trust.share(), victim.rate.mean + self.regretted);
        kept * span.rate.at_least > victim.rate.at_most + self.regretted
            && kept * span.rate.mean > RATIO_MIN * lost
            && kept * self.saved_ns(span, span.node) - self.waiting_ns(lost, span.node) > costs
    }

    /// The pages that may move, enough of them for an epoch's plan. A loaded node may also lose its hottest.
    fn candidates(&self, view: &View) -> Candidates {
        let most = self.candidates_max() as usize;
        let is_loaded = self.node_ids().any(|node| self.latencies.is_loaded(node));
        let is_fast = self.node_ids().map(|node| self.tier(node) == 0).collect();
        let victims = if is_loaded { usize::MAX } else { most };
        let blocks_max = self.collapses_max() * CANDIDATES as usize;
        let blocks = Blocks::new(self.least_to_collapse(), blocks_max);
        let mut collector = Collector::new(&self.refused, is_fast, most, victims, blocks);
        self.known(view, &mut |pages| collector.add(&pages));
        collector.end()
    }

    fn complete(&mut self, done: &Completion) {
        match (&done.planned.action, done.outcome) {
            (Action::Move(wanted), Outcome::Refused(Refusal::AlreadyThere)) => {
                self.sampled.record_move(wanted);
            }
            (Action::Move(wanted), Outcome::Made(_)) => {
                self.sampled.record_move(wanted);
                let ends = [wanted.from, wanted.to];
                let nodes = ends.iter().filter_map(|node| self.nodes.get(node.index()));
                let copy_ns: f64 = nodes.map(|node| node.copy.as_ns()).sum();
                self.costs.add_move(copy_ns * wanted.size.base_pages() as f64);
            }
            (Action::Move(wanted), Outcome::Refused(why)) => self.refused.record(wanted, why),
            (Action::Split(page), Outcome::Refused(why)) => self.refused.record_split(*page, why),
            (Action::Collapse(page), outcome) => {
                self.costs.add_collapse();
                if let Outcome::Refused(why) = outcome {
                    self.refused.record_collapse(*page, why);
                }
            }
            _ => {}
        }
    }

    /// Plans splits of huge pages; those that are to be split, now or later, are no candidates. Returns the
    /// waiting that they save in the payback time, in ns.
    fn split(&self, view: &View, candidates: &mut Candidates, plan: &mut Plan) -> f64 {
        if !self.refused.allows_splits() {
            return 0.0;
        }
        let splits = self.splits(view, candidates);
        let most = (self.pages / PageSize::Huge.base_pages()).max(1) as usize;
        candidates.leave_out(&splits);
        let splits = splits.iter().take(most);
        splits
            .map(|&(page, saved_ns)| {
                plan.push(Action::Split(page), Reason::Uneven);
                saved_ns
            })
            .sum()
    }

    /// Maximum candidates of each kind.
    fn candidates_max(&self) -> u64 {
        let most = |changed: u64| changed.saturating_mul(CANDIDATES).max(CANDIDATES_MIN).min(self.pages);
        self.changed.map_or(self.pages, most)
    }

    /// Calls `push` with all pages that are known long enough to move, in order, huge ones in parts: once
    /// there are samples, they alone decide, and know parts.
    fn known(&self, view: &View, push: &mut dyn FnMut(Pages)) {
        match self.sampled.epochs() {
            Some(epochs) if epochs >= self.known => self.sampled.parts(&view.regions, push),
            Some(_) => {}
            None => {
                let known = self.heat.spans.iter().filter(|span| span.epochs >= self.known);
                known.for_each(|span| push(span.pages(self.deviations)));
            }
        }
    }
}

impl Node {
    fn of(machine: &Machine, node: NodeId) -> Node {
        let kernel = &machine.kernel;
        let line_ns = LINE_BYTES as f64 / machine.node_bandwidth(node).as_mbps() * 1000.0;
        Node {
            idle: machine.idle_latency(machine.nearest_initiator(node), node),
            copy: Time::from_ns(line_ns * (PAGE_BYTES / LINE_BYTES) as f64),
            move_ns: kernel.unmap_ns + kernel.shootdown_ns + kernel.remap_ns,
        }
    }
}

/// Base pages that a plan moves, splits or collapses.
fn changed(plan: &Plan) -> u64 {
    let sizes = plan.actions().iter().filter_map(|planned| match &planned.action {
        Action::Move(wanted) => Some(wanted.size),
        Action::Split(page) | Action::Collapse(page) => Some(page.size),
        _ => None,
    });
    sizes.map(PageSize::base_pages).sum()
}

impl Migration for RelativeHeat {
    fn sensors(&self) -> Sensors {
        let regions = RegionSampling {
            sampling: self.sampling,
            aggregation: self.epoch,
            regions_max: self.regions_max,
            writes: false,
            budget_bp: self.budget_bp,
        };
        let share = |bp: u32| ((f64::from(bp) * SAMPLES_SHARE) as u32).max(1);
        let accesses = AccessSampling { period: self.period, budget_bp: self.budget_bp.map(share) };
        let sensors = Sensors::new(Delivery::Deployable, self.epoch);
        // Samples first: beside them a host may watch regions less.
        let sensors = if self.period > 0 { sensors.want(Sensor::AccessSamples(accesses)) } else { sensors };
        sensors.require(Sensor::Regions(regions))
    }

    fn on_event(&mut self, event: &Event, _: &View, _: &mut Plan) {
        match event {
            Event::AccessSample(sample) => {
                if let Some(node) = self.nodes.get(sample.node.index()) {
                    let weight = if sample.write { self.store_weight } else { 1.0 };
                    let is_fast = self.tier(sample.node) == 0;
                    let taken_ns = sample.latency.and_then(|taken| self.latencies.add(sample.node, taken));
                    let fast_ns = || self.latencies.mean_ns(self.fastest(sample.node));
                    let wait_ns = taken_ns.filter(|_| !is_fast).map(|ns| (ns - fast_ns()).max(0.0));
                    self.sampled.add(sample, weight, node.idle, wait_ns);
                    self.calm.add(is_fast, f64::from(sample.period));
                }
            }
            Event::Completion(done) => self.complete(done),
            _ => {}
        }
    }

    fn decide(&mut self, view: &View, plan: &mut Plan) -> Wake {
        self.costs.end_epoch(view.action_time, view.busy_bp);
        let (by_regions, spent) = (self.sampled.epochs().is_none(), view.decision_time.unwrap_or_default());
        let Some(epochs) = self.calm.end_epoch(by_regions, spent.as_ns(), self.decisions_ns) else {
            return Wake::After(self.epoch);
        };
        let spans_max = self.regions_max as usize * SPANS_PER_REGION;
        let samples = view.region_samples.map_or(self.samples, f64::from);
        self.sampled.end_samples();
        let latest = self.sampled.latest(&view.regions);
        let share_of = |pages: &[(TaskId, u64, u64)]| match &latest {
            Some(latest) => {
                Some(pages.iter().map(|&(task, start, end)| latest.share(task, start, end)).sum())
            }
            None if by_regions && samples > 0.0 => heat::share_in(&view.regions, samples, pages),
            None => None,
        };
        self.trust.end_epoch(share_of);
        self.regret.end_epoch(share_of);
        if let Some(latest) = latest {
            self.calibrations.measure(&latest);
        }
        self.sampled.end_epochs(epochs, &view.regions, libm::pow(self.kept, f64::from(epochs)));
        self.latencies.end_epoch();
        if self.sampled.epochs().is_some() {
            if !self.heat.spans.is_empty() {
                // What was promised by regions says nothing of samples.
                (self.heat, self.trust) = (Heat::default(), Trust::default());
                self.regret = Regret::default();
            }
        } else if samples > 0.0 {
            self.heat.add(&view.regions, samples, self.kept, spans_max);
        }
        let mut candidates = self.candidates(view);
        if self.sampled.epochs().is_some() {
            self.calibrations.correct(&mut candidates);
        }
        self.regretted = self.regret.share() * candidates.accesses;
        let saved_ns = self.split(view, &mut candidates, plan);
        self.refused.end_epoch();
        let Candidates { accesses, totals, victims, hot, blocks, .. } = candidates;
        let blocks = self.to_collapse(blocks, hot.first());
        let room = |kept| Room::new(self.nodes.len(), &view.nodes, kept);
        let (room, mut spare) = (room(self.low), room(self.high));
        view.nodes.iter().for_each(|used| spare.add(used.node, self.listed(used)));
        let mut draft = Draft {
            plan,
            room,
            spare,
            totals,
            victims,
            exchanged: Vec::new(),
            demoted: 0,
            demotions_max: self.pages,
            saved_ns,
        };
        self.relieve(view, &blocks, &mut draft);
        self.spread(&mut draft);
        let promises = self.promote(hot, &mut draft);
        let Draft { exchanged, saved_ns, .. } = draft;
        let saved_ns = saved_ns + self.collapse(&blocks, &view.nodes, plan);
        promises.iter().for_each(|pages| self.trust.promise(pages, accesses));
        exchanged.iter().for_each(|pages| self.regret.record(pages, accesses));
        if self.sampled.epochs().is_some_and(|epochs| epochs >= self.known) {
            let fastest = view.nodes.iter().filter(|used| self.tier(used.node) == 0);
            let (changed, pages) = (changed(plan), fastest.map(|used| used.pages).sum());
            self.changed = Some(changed);
            self.calm.decided(changed, pages, saved_ns);
        }
        Wake::After(self.epoch)
    }

    fn state(&self) -> String {
        to_text(&(
            &self.heat,
            &self.sampled,
            &self.refused,
            &self.trust,
            &self.regret,
            self.latencies.measured(),
            &self.costs,
            &self.calm,
            &self.calibrations,
            self.changed,
        ))
    }

    fn resume(&mut self, state: &str) -> Result<(), String> {
        let measured;
        (
            self.heat,
            self.sampled,
            self.refused,
            self.trust,
            self.regret,
            measured,
            self.costs,
            self.calm,
            self.calibrations,
            self.changed,
        ) = from_text(state)?;
        self.sampled.check(self.nodes.len())?;
        if let Some(span) = self.heat.spans.iter().find(|span| span.node.index() >= self.nodes.len()) {
            return Err(format!("there is no {}", span.node));
        }
        self.latencies.resume(measured)
    }
}

#[cfg(test)]
mod tests;
