//! Prepares a machine for the lab: reduced, on few virtual CPUs, every node fixed.

use memtide_core::machine::{Cache, Dram, Fixed, Link, LoadPoint, Machine, Node};
use memtide_core::{InitiatorId, LINE_BYTES, Time};

use memtide_memory::probe::{Load, Pattern, ProbePoint, probe};

/// Offered loads at which a dram node's curve is sampled, as shares of its random read bandwidth. The curve
/// is flat beyond.
const LOADS: [f64; 8] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.96];

/// Minimum requests of a probe, and its minimum duration at the node's peak: several refreshes.
const REQUESTS: u64 = 40_000;
const PROBE_TIME: Time = Time::from_us(30);

const SEED: u64 = 1;

/// A machine for the lab.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The machine: reduced, nodes fixed, with bandwidth and shared cache for its virtual CPUs. An initiator
    /// without a virtual CPU keeps one idle CPU.
    pub machine: Machine,
    /// The initiator of each virtual CPU.
    pub vcpu_initiators: Vec<InitiatorId>,
}

/// Prepares a checked machine for `vcpus` virtual CPUs, assigned to its initiators round-robin.
///
/// The machine's slice and scale apply to capacities, caches and TLBs. Bandwidths of nodes and links are
/// those of the whole machine divided by its CPUs / virtual CPUs, so that few virtual CPUs load a node as all
/// CPUs would; and each virtual CPU has a CPU's share of the shared caches.
///
/// A dram node becomes a fixed one: its idle latency is a pointer chase's, its bandwidth that of reads as
/// fast as it takes them, its curve that of random reads, all by [`probe`].
///
/// # Panics
/// If `vcpus` is 0.
pub fn prepare(machine: &Machine, vcpus: u16) -> Prepared {
    assert!(vcpus > 0, "a machine needs a CPU");
    let mut small = machine.reduced();
    let share = f64::from(vcpus) / machine.cpus() as f64;
    let initiators = small.initiators.len() as u16;
    let of = |initiator: u16| vcpus / initiators + u16::from(initiator < vcpus % initiators);
    for cache in small.caches.iter_mut().filter(|cache| cache.is_shared()) {
        *cache = cache_share(cache, small.initiators[0].cpus, of(0).max(1));
    }
    let out = machine.core.cycles(machine.caches.last().map_or(0.0, |cache| cache.latency_cycles));
    let mut known: Vec<(&Dram, Fixed)> = Vec::new();
    for (node, full) in small.nodes.iter_mut().zip(&machine.nodes) {
        let mut fixed = match (&full.fixed, &full.dram) {
            (Some(fixed), _) => fixed.clone(),
            (None, Some(dram)) => match known.iter().find(|(other, _)| *other == dram) {
                Some((_, fixed)) => fixed.clone(),
                None => measured(full, out),
            },
            (None, None) => unreachable!("a checked node is fixed or dram"),
        };
        known.extend(full.dram.as_ref().map(|dram| (dram, fixed.clone())));
        fixed.read_bandwidth_mbps *= share;
        fixed.write_bandwidth_mbps = fixed.write_bandwidth_mbps.map(|mbps| mbps * share);
        (node.dram, node.fixed, node.sharing_slices) = (None, Some(fixed), 1);
    }
    for (link, full) in small.links.iter_mut().zip(&machine.links) {
        *link = Link { bandwidth_mbps: full.bandwidth_mbps * share, ..full.clone() };
    }
    for (number, initiator) in (0..).zip(&mut small.initiators) {
        initiator.cpus = of(number).max(1);
    }
    small.name = format!("{}-lab", small.name);
    let source = format!("memtide: prepared from {} for {vcpus} virtual CPUs", machine.name);
    small.sources = [("default".to_owned(), source)].into();
    small.calibrated.clear();
    let vcpu_initiators =
        (0..initiators).flat_map(|number| vec![InitiatorId(number as u8); of(number).into()]);
    Prepared { vcpu_initiators: vcpu_initiators.collect(), machine: small }
}

/// A shared cache's share for some of an initiator's CPUs.
fn cache_share(cache: &Cache, cpus: u16, vcpus: u16) -> Cache {
    let instances = cpus.div_ceil(cache.shared_by).max(1);
    let most = vcpus.div_ceil(instances);
    let sharers = (1..=most).rev().find(|sharers| vcpus.is_multiple_of(*sharers)).unwrap_or(1);
    Cache { slice: true, ..cache.share(sharers) }
}

/// A dram node's figures as those of a fixed node, including the path through the caches (`out`).
fn measured(node: &Node, out: Time) -> Fixed {
    let peak_mbps = node.bandwidth(1.0).as_mbps();
    let requests = (peak_mbps * 1e6 * PROBE_TIME.as_seconds()) as u64 / LINE_BYTES;
    let requests = requests.max(REQUESTS);
    let probe = |pattern, read_share, share_of_peak| -> ProbePoint {
        probe(node, Load { pattern, read_share, share_of_peak, requests, seed: SEED })
    };
    let idle_ns = probe(Pattern::Chase, 1.0, 1.0).mean_ns;
    let most = |pattern, read_share| probe(pattern, read_share, 1.2).achieved.as_mbps();
    let (random, sequential) = (most(Pattern::Random, 1.0), most(Pattern::Sequential, 1.0));
    let (pattern, read_mbps) =
        if sequential > random { (Pattern::Sequential, sequential) } else { (Pattern::Random, random) };
    // Reads and writes share the node's time: half and half take 1/2 / read + 1/2 / write a byte.
    let mixed = most(pattern, 0.5);
    let write_time = (2.0 / mixed - 1.0 / read_mbps).max(0.25 / read_mbps);
    let mut latency_ns = idle_ns;
    let loaded = LOADS.iter().map(|&load| {
        let mbps = load * random;
        let point = probe(Pattern::Random, 1.0, mbps / peak_mbps);
        if !point.saturated {
            latency_ns = latency_ns.max(point.mean_ns);
        }
        LoadPoint { load: mbps / read_mbps, latency_ns: latency_ns + out.as_ns() }
    });
    Fixed {
        loaded: loaded.collect(),
        read_latency_ns: idle_ns + out.as_ns(),
        write_latency_ns: None,
        read_bandwidth_mbps: read_mbps,
        write_bandwidth_mbps: Some(1.0 / write_time),
    }
}
