//! Closed-form latency and bandwidth of a machine's nodes, from its file's figures alone: the reference for
//! tests of models.

#![allow(dead_code, reason = "each test uses its part")]

use memtide_core::machine::{Dram, Machine, Node, PagePolicy};

/// Idle read latency of a node from its attached CPUs, in ns: a fixed node's figure; for a dram node the mean
/// of a chase over random lines, including the path through the caches.
pub fn idle_ns(machine: &Machine, node: &Node) -> f64 {
    match (&node.fixed, &node.dram) {
        (Some(fixed), _) => fixed.read_latency_ns,
        (_, Some(dram)) => {
            let cycles = machine.caches.last().map_or(0.0, |cache| cache.latency_cycles);
            dram_ns(dram) + cycles * 1e3 / machine.core.clock_mhz
        }
        (None, None) => unreachable!("a checked node is fixed or dram"),
    }
}

/// Latency of a chase over random lines of a dram node, in ns: activate and read, precharge if a row is open,
/// and an occasional wait for a refresh.
fn dram_ns(dram: &Dram) -> f64 {
    let ns = |cycles: u32| f64::from(cycles) * f64::from(dram.t_ck_ps) / 1e3;
    let closed = dram.controller_ns + ns((dram.rcd + dram.cl + dram.burst).into());
    let (refresh, interval) = (ns(dram.rfc.into()), ns(dram.refi));
    // Channels refresh at the same time; their ranks one after the other if staggered.
    let units = if dram.refresh_staggered { f64::from(dram.ranks) } else { 1.0 };
    let banks = f64::from(dram.channels)
        * f64::from(dram.ranks)
        * f64::from(dram.bank_groups)
        * f64::from(dram.banks);
    let mut latency = closed;
    for _ in 0..20 {
        let reads = interval / latency;
        // A bank's first read after a refresh finds no open row; the others find another one of very many
        // rows.
        let first =
            if interval > 0.0 { banks * (1.0 - (1.0 - 1.0 / banks).powf(reads)) / reads } else { 0.0 };
        let open = match dram.page_policy {
            PagePolicy::Open => ns(dram.rp.into()) * (1.0 - first),
            PagePolicy::Closed => 0.0,
        };
        // Reads during a refresh, the first half a latency after its start, the others one latency apart: the
        // first one to the refreshed unit waits for the end.
        let mut waited = 0.0;
        for read in 0..1000 {
            let left = refresh - (f64::from(read) + 0.5) * latency;
            if left <= 0.0 {
                break;
            }
            waited += (1.0 - 1.0 / units).powi(read) * left;
        }
        latency = closed + open + if interval > 0.0 { waited / reads } else { 0.0 };
    }
    latency
}

/// Mean cost in ns of translating a load of a chase over random lines of this many MiB in base pages: a level
/// holds its entries' share of the pages.
pub fn translation_ns(machine: &Machine, mib: f64) -> f64 {
    let pages = mib * 256.0;
    let (mut held, mut cycles) = (0.0, 0.0);
    for level in &machine.tlbs {
        let share = (f64::from(level.entries) / pages).clamp(held, 1.0);
        cycles += (share - held) * level.latency_cycles;
        held = share;
    }
    cycles += (1.0 - held) * machine.tlbs.last().map_or(0.0, |level| level.walk_cycles);
    cycles * 1e3 / machine.core.clock_mhz
}

/// Added latency in ns and minimum bandwidth in MB/s of the links between an initiator and a node, on the
/// path with the least latency.
pub fn links(machine: &Machine, initiator: &str, node: &Node) -> (f64, f64) {
    let ends: Vec<&str> = match &node.initiator {
        Some(beside) => vec![beside.as_str(), &node.name],
        None => vec![node.name.as_str()],
    };
    // Each endpoint reached, its latency, and the bandwidth of its path.
    let mut reached = vec![(initiator.to_owned(), 0.0, f64::INFINITY)];
    for _ in &machine.links {
        for link in &machine.links {
            for (from, to) in [(0, 1), (1, 0)] {
                let Some((_, ns, mbps)) = reached.iter().find(|(at, ..)| *at == link.between[from]).cloned()
                else {
                    continue;
                };
                let next = (link.between[to].clone(), ns + link.latency_ns, mbps.min(link.bandwidth_mbps));
                match reached.iter_mut().find(|(at, ..)| *at == next.0) {
                    Some(known) if known.1 <= next.1 => {}
                    Some(known) => *known = next,
                    None => reached.push(next),
                }
            }
        }
    }
    let mut ways = reached.iter().filter(|(at, ..)| ends.contains(&at.as_str()));
    let first = ways.next().expect("a path to every node");
    let best = ways.fold(first, |best, way| if way.1 < best.1 { way } else { best });
    (best.1, best.2)
}

/// Bandwidth of reads alone, in MB/s: a fixed node's figure; for a dram node an upper bound, its data bus
/// without refreshes.
pub fn read_mbps(node: &Node) -> f64 {
    match (&node.fixed, &node.dram) {
        (Some(fixed), _) => fixed.read_bandwidth_mbps,
        (_, Some(dram)) => {
            let line_us = f64::from(dram.burst) * f64::from(dram.t_ck_ps) / 1e6;
            let lost = if dram.refi == 0 || dram.refresh_staggered && dram.ranks > 1 {
                0.0
            } else {
                f64::from(dram.rfc + dram.rtp + dram.rp + dram.rcd - dram.burst) / f64::from(dram.refi)
            };
            f64::from(dram.channels) * 64.0 / line_us * (1.0 - lost)
        }
        (None, None) => unreachable!("a checked node is fixed or dram"),
    }
}
