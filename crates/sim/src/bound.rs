//! A lower bound of the time of a program on a machine: no placement or migration can be faster.
//!
//! The larger of two times, of a run on *ideal* memory that relaxes what a policy can influence:
//!
//! - *latency*: the run's own time. Cores, private caches and TLBs are real, and so are faults of pages that
//!   no other thread could touch first. Memory has no queues and the least latency that any node offers the
//!   CPU (`memtide_memory::Uncore::ideal`); shared caches have twice the ways, the last level is each
//!   program's own (a policy may partition it among them), and the prefetcher has twice the streams, so that
//!   no other order of threads or place of pages turns a miss of this run into a hit. Other faults, moves,
//!   swap and shootdowns cost nothing.
//! - *bandwidth*: the lines that any run moves at least, at all nodes' bandwidths together.

use memtide_core::machine::{Cache, Machine, Node};
use memtide_core::policy::{Group, GroupOrder, Placement, Rule, Spill, Task, Within};
use memtide_core::{LINE_BYTES, Stage, Time};
use memtide_memory::IdealLines;

use crate::engine::Engine;
use crate::feed::Load;
use crate::{Job, Policy, SimError, Window};

/// Maximum associativity of the cache model.
const WAYS_MAX: u16 = 64;

/// Lines that write queues may contain when a run ends: more than those of any machine.
const QUEUED_LINES: u64 = 4096;

/// How far a slice's requests are ahead of the next one's: see `memtide_memory`'s slices.
const LAG: Time = Time(1_009_000);

/// Share of the time on ideal memory that is taken off for cores that finish later although each of their
/// misses ends earlier: those take registers in their order, and other misses wait for them. Random programs
/// were up to 1.1 % faster than that time.
const ANOMALIES: f64 = 0.05;

/// A lower bound of a program's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Time of a run on ideal memory, less 5 % for scheduling anomalies, in ms.
    pub latency_ms: f64,
    /// Time to move `lines` at all nodes' bandwidths together, in ms.
    pub bandwidth_ms: f64,
    /// Lines that any run moves.
    pub lines: u64,
}

impl Bound {
    /// The bound: the larger of the two times, in ms.
    pub fn time_ms(&self) -> f64 {
        self.latency_ms.max(self.bandwidth_ms)
    }
}

/// A run on ideal memory that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct IdealRun {
    /// What no run is faster than.
    pub bound: Bound,
    /// The reads of each page in the region of interest, by window.
    pub windows: Vec<Window>,
}

/// Why a comparison has no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unbounded {
    /// When the common region of several programs begins depends on the policy.
    #[error(
        "several programs with regions of interest: what their common region contains depends on the policy"
    )]
    SeveralRegions,
    /// A thread makes a mark while others run: what they have done by then depends on the policy.
    #[error("a thread marks the region of interest while others run: what it contains depends on the policy")]
    OpenMark,
}

/// The bound of programs on a machine, and the reads of their pages, from a run of its own. Calls `watch` as
/// [`run`](crate::run) does.
///
/// # Errors
/// As of [`run`](crate::run).
pub fn bound(
    machine: &Machine,
    jobs: Vec<Job<'_>>,
    seed: u64,
    watch: &mut dyn FnMut(Option<f64>) -> bool,
) -> Result<Result<IdealRun, Unbounded>, SimError> {
    // Where pages lie matters to private caches, too.
    let relaxed = relaxed(&machine.reduced(), |_| true);
    bound_of(machine, relaxed, jobs.into_iter().map(Load::from).collect(), seed, watch)
}

/// As [`bound`], from records, in which private caches are the same for all policies.
pub(crate) fn bound_of_records(
    machine: &Machine,
    loads: Vec<Load<'_>>,
    seed: u64,
    watch: &mut dyn FnMut(Option<f64>) -> bool,
) -> Result<Result<IdealRun, Unbounded>, SimError> {
    bound_of(machine, relaxed(&machine.reduced(), Cache::is_shared), loads, seed, watch)
}

fn bound_of(
    machine: &Machine,
    relaxed: Machine,
    loads: Vec<Load<'_>>,
    seed: u64,
    watch: &mut dyn FnMut(Option<f64>) -> bool,
) -> Result<Result<IdealRun, Unbounded>, SimError> {
    let marked = loads.iter().any(|load| load.feed.has_region());
    if marked && loads.len() > 1 {
        return Ok(Err(Unbounded::SeveralRegions));
    }
    let policy = Policy::new(Box::new(Anywhere), None);
    let mut engine = Engine::ideal(machine, relaxed, loads, policy, seed)?;
    engine.run(watch)?;
    let windows = engine.take_windows();
    Ok(engine.bound(&machine.reduced()).map(|bound| IdealRun { bound, windows }))
}

impl Engine<'_> {
    /// The bound of a run on ideal memory that has ended, on this machine, which has been reduced.
    fn bound(mut self, machine: &Machine) -> Result<Bound, Unbounded> {
        self.end_stages();
        if self.has_open_mark {
            return Err(Unbounded::OpenMark);
        }
        let region = self.stages.region().expect("the run has ended");
        let counted = IdealLines { read: region.uncore.ideal.read, written: region.uncore.ideal.written };
        let begins_later = self.stages.of(Stage::Initialisation).is_some();
        let lines = moved(machine, counted, begins_later);
        Ok(Bound {
            latency_ms: region.time.as_ns() / 1e6 * (1.0 - ANOMALIES),
            bandwidth_ms: transfer_ms(machine, lines),
            lines: lines.read + lines.written,
        })
    }
}

/// Of the lines counted, those that a run with smaller caches must have moved by its end. Writes may be in
/// queues and caches then; and before a region that begins later, it may have written what the larger caches
/// still contained.
fn moved(machine: &Machine, counted: IdealLines, begins_later: bool) -> IdealLines {
    let cached = machine.caches.last().filter(|cache| cache.is_shared()).map_or(0, |cache| {
        let instances = machine.cpus().div_ceil(cache.shared_by.into()) as u64;
        2 * instances * (cache.capacity_kib * 1024 / LINE_BYTES)
    });
    let may_be_elsewhere = QUEUED_LINES + cached * if begins_later { 2 } else { 1 };
    IdealLines { written: counted.written.saturating_sub(may_be_elsewhere), ..counted }
}

/// Least time to move lines: reads and writes of a node share its time.
fn transfer_ms(machine: &Machine, lines: IdealLines) -> f64 {
    let sum = |mbps: &dyn Fn(&Node) -> f64| machine.nodes.iter().map(mbps).sum::<f64>();
    let read = |node: &Node| node.bandwidth(1.0).as_mbps();
    let write = |node: &Node| node.bandwidth(0.0).as_mbps();
    let ms = |lines: u64, mbps: f64| (lines * LINE_BYTES) as f64 / mbps / 1e3;
    let times = [
        ms(lines.read, sum(&read)),
        ms(lines.written, sum(&write)),
        ms(lines.read + lines.written, sum(&|node| read(node).max(write(node)))),
    ];
    // On a device that slices share, this one's last requests can overtake the others'.
    let others = machine.nodes.iter().map(|node| node.sharing_slices.max(1) - 1).max().unwrap_or_default();
    let ahead_ms = LAG.as_ns() / 1e6 * f64::from(others) * f64::from(others);
    (times.into_iter().fold(0.0, f64::max) - ahead_ms).max(0.0)
}

/// The machine with twice the ways of the caches chosen, twice the streams, and faults of any size for the
/// cheapest one's cost; nothing else costs the kernel time.
fn relaxed(machine: &Machine, is_larger: fn(&Cache) -> bool) -> Machine {
    let mut relaxed = machine.clone();
    for cache in relaxed.caches.iter_mut().filter(|cache| is_larger(cache)) {
        cache.capacity_kib *= 2;
        if cache.ways <= WAYS_MAX / 2 {
            cache.ways *= 2;
        }
    }
    if let Some(prefetcher) = &mut relaxed.prefetcher {
        prefetcher.streams = prefetcher.streams.saturating_mul(2);
    }
    let kernel = &mut relaxed.kernel;
    kernel.huge_fault_ns = kernel.huge_fault_ns.min(kernel.fault_ns);
    (kernel.shootdown_ns, kernel.swap_ns, kernel.watermark_low_bp, kernel.watermark_high_bp) =
        (0.0, 0.0, 0, 0);
    relaxed
}

/// Pages lie on any node: all are alike.
struct Anywhere;

impl Placement for Anywhere {
    fn rule(&mut self, machine: &Machine, _: &Task) -> Rule {
        Rule {
            groups: vec![Group { nodes: machine.node_ids().collect(), weight: 1 }],
            order: GroupOrder::First,
            within: Within::Nearest,
            spill: Spill::Nearest,
        }
    }
}
