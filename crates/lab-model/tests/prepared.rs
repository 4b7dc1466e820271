//! Prepared machines match the models that they are made from.

#[path = "support/closed_form.rs"]
mod closed_form;

use memtide_core::{Machine, Time};
use memtide_lab_model::{CurveNode, prepare};
use memtide_memory::probe::{Load, Pattern, probe};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn bundled() -> Vec<Machine> {
    let names = memtide_core::machine::bundled::names().into_iter();
    let machines = names.filter_map(memtide_core::machine::bundled::machine);
    machines.map(|machine| machine.expect("a checked machine")).collect()
}

#[test]
fn bundled_machines_prepare_and_serialise() {
    for machine in bundled() {
        for vcpus in [1, 2, 4] {
            let prepared = prepare(&machine, vcpus);
            assert_eq!(prepared.vcpu_initiators.len(), usize::from(vcpus));
            let text = prepared.machine.to_toml();
            let again =
                Machine::parse("prepared.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert!(again.nodes.iter().all(|node| node.fixed.is_some()), "{}", machine.name);
            assert_eq!(again.to_toml(), text);
        }
    }
}

#[test]
fn idle_latency_and_bandwidth_match_machine_file() {
    for machine in bundled() {
        let all = u16::try_from(machine.cpus()).unwrap();
        let prepared = prepare(&machine, all).machine;
        for (node, full) in prepared.nodes.iter().zip(&machine.nodes) {
            let fixed = node.fixed.as_ref().unwrap();
            let (ns, mbps) = (closed_form::idle_ns(&machine, full), closed_form::read_mbps(full));
            let (slower, narrower) =
                (fixed.read_latency_ns / ns - 1.0, 1.0 - fixed.read_bandwidth_mbps / mbps);
            println!(
                "{} {}: {:.2} % slower, {:.2} % narrower",
                machine.name,
                node.name,
                100.0 * slower,
                100.0 * narrower
            );
            if let Some(whole) = &full.fixed {
                assert!(slower.abs() < 1e-9 && narrower.abs() < 1e-9, "{} {}", machine.name, node.name);
                assert_eq!(fixed.write_bandwidth_mbps, whole.write_bandwidth_mbps);
                continue;
            }
            // Late row activations and rank switches cost bandwidth, turnarounds that of writes.
            let write = fixed.write_bandwidth_mbps.expect("a dram node's writes") / fixed.read_bandwidth_mbps;
            assert!(slower.abs() < 0.015, "{} {}: {slower} off {ns} ns", machine.name, node.name);
            assert!(
                (-0.001..0.08).contains(&narrower),
                "{} {}: {narrower} off {mbps} MB/s",
                machine.name,
                node.name
            );
            assert!(
                (0.7..1.0).contains(&write),
                "{} {}: writes at {write} of reads",
                machine.name,
                node.name
            );
        }
    }
}

#[test]
fn bandwidth_is_divided_by_cpus_per_vcpu() {
    for machine in bundled().iter().filter(|m| m.nodes.iter().all(|n| n.fixed.is_some())) {
        let mbps = |vcpus| {
            let prepared = prepare(machine, vcpus).machine;
            prepared.nodes.iter().map(|n| n.fixed.as_ref().unwrap().read_bandwidth_mbps).collect::<Vec<_>>()
        };
        for (one, four) in mbps(1).iter().zip(mbps(4)) {
            assert!((four / one - 4.0).abs() < 1e-9, "{}: {one} {four}", machine.name);
        }
    }
}

/// Poisson arrivals of random reads, as from a probe, on a node with undivided bandwidth, after it has met
/// this load for 400 us.
fn mean_ns(node: &mut CurveNode, mbps: f64) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut at_ps, mut sum, mut left) = (1e7, 0.0, 50_000.max((mbps * 60.0) as u32 / 64));
    let reads = f64::from(left);
    while left > 0 {
        let unit = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        at_ps += -libm::log(1.0 - unit) * 64e6 / mbps;
        let at = Time(at_ps as u64);
        let end = node.read(at, false);
        if at > Time::from_us(400) {
            sum += end.since(at).as_ns();
            left -= 1;
        }
    }
    sum / reads
}

#[test]
fn curve_matches_channel_model() {
    for machine in bundled().iter().filter(|m| m.nodes.iter().any(|n| n.dram.is_some())) {
        let all = u16::try_from(machine.cpus()).unwrap();
        let prepared = prepare(machine, all).machine;
        let out_ns = machine.core.cycles(machine.caches.last().map_or(0.0, |c| c.latency_cycles)).as_ns();
        let mut seen = Vec::new();
        for (node, full) in prepared.nodes.iter().zip(&machine.nodes).filter(|(_, full)| full.dram.is_some())
        {
            if seen.contains(&&full.dram) {
                continue;
            }
            seen.push(&full.dram);
            let fixed = node.fixed.as_ref().unwrap();
            // Close to saturation, latency depends on the duration.
            let most = 0.9 * fixed.loaded.last().unwrap().load;
            for share in [0.05, 0.25, 0.5, 0.65].into_iter().filter(|&share| share < most) {
                let mbps = share * fixed.read_bandwidth_mbps;
                let peak = full.bandwidth(1.0).as_mbps();
                let load = Load {
                    pattern: Pattern::Random,
                    read_share: 1.0,
                    share_of_peak: mbps / peak,
                    requests: 100_000.max((peak * 1e6 * 60e-6) as u64 / 64),
                    seed: 3,
                };
                let event = probe(full, load);
                if event.saturated {
                    continue;
                }
                let curve_ns = mean_ns(&mut CurveNode::new(fixed), mbps) - out_ns;
                let off = curve_ns / event.mean_ns - 1.0;
                println!(
                    "{} {} at {share}: {curve_ns:.1} ns, channels {:.1} ns",
                    machine.name, node.name, event.mean_ns
                );
                assert!(
                    off.abs() < 0.1,
                    "{} {} at {share}: {curve_ns} ns, not {}",
                    machine.name,
                    node.name,
                    event.mean_ns
                );
            }
        }
    }
}
