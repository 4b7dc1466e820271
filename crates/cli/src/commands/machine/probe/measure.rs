//! The probes of a machine's paths, in parallel.

use std::sync::Arc;

use memtide_core::{InitiatorId, Machine, NodeId};
use memtide_memory::probe::{InFlight, Load, Pattern, ProbePoint, Target};

use super::{Arguments, Order, curve};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{interrupt, parallel};

/// Offered load for measuring the cap, as a share of the peak.
const FLOOD: f64 = 1.5;

/// Maximum requests of a chase: one at a time, they cost most.
const CHASE: u64 = 20_000;

/// An initiator and a node.
#[derive(Clone, Copy)]
pub struct Pair {
    pub from: InitiatorId,
    pub to: NodeId,
}

/// What a point of a curve was measured at.
#[derive(Clone, Copy)]
pub enum At {
    /// A share of the cap.
    Load(f64),
    /// Reads in flight.
    InFlight(u32),
}

/// The figures of a path.
#[derive(Clone)]
pub struct Measured {
    pub idle: ProbePoint,
    pub flood: ProbePoint,
    pub curve: Vec<(At, ProbePoint)>,
}

/// A probe of a path.
#[derive(Clone, Copy)]
enum Probe {
    Open(Load),
    Closed(InFlight),
}

/// Probes each pair; paths with equal figures are probed once.
pub fn measure(
    arguments: &Arguments,
    machine: &Arc<Machine>,
    pairs: &[Pair],
) -> Result<Vec<Measured>, Failure> {
    let mut distinct: Vec<Pair> = Vec::new();
    let which: Vec<usize> = pairs
        .iter()
        .map(|&pair| {
            let known = distinct.iter().position(|&other| alike(machine, pair, other));
            known.unwrap_or_else(|| {
                distinct.push(pair);
                distinct.len() - 1
            })
        })
        .collect();
    let open = |pair: &Pair| open(arguments, machine, *pair);
    let ends = distinct.iter().flat_map(|pair| {
        let load = open(pair);
        let requests = load.requests.min(CHASE);
        let chase = Load { pattern: Pattern::Chase, read_share: 1.0, requests, ..load };
        [chase, load].map(|load| (*pair, Probe::Open(load)))
    });
    let ends = probe_all(machine, &ends.collect::<Vec<_>>())?;
    let mut measured: Vec<Measured> =
        ends.chunks(2).map(|ends| Measured { idle: ends[0], flood: ends[1], curve: Vec::new() }).collect();
    curves(arguments, machine, &distinct, &mut measured)?;
    Ok(which.into_iter().map(|index| measured[index].clone()).collect())
}

/// Adds the curves: at the loads or reads in flight of the arguments, else at loads that show its bends.
fn curves(
    arguments: &Arguments,
    machine: &Arc<Machine>,
    pairs: &[Pair],
    measured: &mut [Measured],
) -> Result<(), Failure> {
    let given: Vec<At> = match (arguments.pattern, &arguments.in_flight[..], &arguments.load[..]) {
        (Order::Chase, ..) => vec![At::InFlight(1)],
        (_, [], []) => curve::FIRST.map(At::Load).to_vec(),
        (_, [], loads) => loads.iter().copied().map(At::Load).collect(),
        (_, counts, _) => counts.iter().copied().map(At::InFlight).collect(),
    };
    let is_refined = matches!(given[0], At::Load(_)) && arguments.load.is_empty();
    let mut wanted = vec![given; pairs.len()];
    for _ in 0..=if is_refined { curve::REFINEMENTS } else { 0 } {
        let tasks: Vec<(usize, At)> = wanted
            .iter()
            .enumerate()
            .flat_map(|(index, wanted)| wanted.iter().map(move |&at| (index, at)))
            .collect();
        let probes: Vec<(Pair, Probe)> = tasks
            .iter()
            .map(|&(index, at)| {
                (pairs[index], probe_at(arguments, machine, pairs[index], &measured[index], at))
            })
            .collect();
        for (&(index, at), point) in tasks.iter().zip(probe_all(machine, &probes)?) {
            measured[index].curve.push((at, point));
        }
        for (measured, wanted) in measured.iter_mut().zip(&mut wanted) {
            if is_refined {
                measured.curve.sort_by(|(a, _), (b, _)| a.figure().total_cmp(&b.figure()));
            }
            let curve: Vec<(f64, f64)> =
                measured.curve.iter().map(|(at, point)| (at.figure(), point.mean_ns)).collect();
            *wanted = curve::bends(&curve).into_iter().map(At::Load).collect();
        }
    }
    Ok(())
}

impl At {
    fn figure(self) -> f64 {
        match self {
            At::Load(load) => load,
            At::InFlight(reads) => reads.into(),
        }
    }
}

/// The flood of a pair, which its loads are shares of.
fn open(arguments: &Arguments, machine: &Machine, pair: Pair) -> Load {
    let target = Target::path(machine, pair.from, pair.to);
    Load {
        pattern: if arguments.pattern == Order::Sequential { Pattern::Sequential } else { Pattern::Random },
        read_share: arguments.reads,
        share_of_peak: FLOOD,
        requests: arguments.requests.unwrap_or_else(|| target.requests()),
        seed: arguments.common.seed,
    }
}

fn probe_at(arguments: &Arguments, machine: &Machine, pair: Pair, measured: &Measured, at: At) -> Probe {
    let load = open(arguments, machine, pair);
    match at {
        At::Load(share) => {
            let peak = Target::path(machine, pair.from, pair.to).peak(arguments.reads);
            let share_of_peak = share * measured.flood.achieved.as_mbps() / peak.as_mbps();
            Probe::Open(Load { share_of_peak, ..load })
        }
        At::InFlight(reads) => Probe::Closed(InFlight {
            sequential: load.pattern == Pattern::Sequential,
            read_share: if arguments.pattern == Order::Chase { 1.0 } else { load.read_share },
            reads,
            requests: load.requests,
            seed: load.seed,
        }),
    }
}

fn probe_all(machine: &Arc<Machine>, probes: &[(Pair, Probe)]) -> Result<Vec<ProbePoint>, Failure> {
    let progress = Progress::new("probing", probes.len().max(1));
    let points = parallel::map(probes, |index, &(pair, probe)| {
        interrupt::check()?;
        let machine = Arc::clone(machine);
        let point = interrupt::interruptible(move || {
            let target = Target::path(&machine, pair.from, pair.to);
            Ok(match probe {
                Probe::Open(load) => target.probe(load),
                Probe::Closed(load) => target.probe_in_flight(load),
            })
        })?;
        progress.set(index, 1.0);
        Ok(point)
    });
    points.into_iter().collect()
}

/// Whether two paths have the same figures.
fn alike(machine: &Machine, a: Pair, b: Pair) -> bool {
    let [x, y] = [a, b].map(|pair| &machine.nodes[pair.to.index()]);
    let links = |pair: Pair| {
        let hops = machine.topology.hops(pair.from, pair.to).iter();
        hops.map(|hop| (machine.links[hop.link].latency_ns, machine.links[hop.link].bandwidth_mbps))
    };
    (&x.dram, &x.fixed, x.energy, x.capacity_mib) == (&y.dram, &y.fixed, y.energy, y.capacity_mib)
        && links(a).eq(links(b))
}
