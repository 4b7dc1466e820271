//! A device that slices share serves each of them as the whole device serves all.

use memtide_core::Machine;
use memtide_core::machine::{Node, bundled};
use memtide_memory::probe::{Load, Pattern, ProbePoint, probe};

fn node(machine: &str, name: &str) -> Node {
    let machine: Machine = bundled::machine(machine).expect("a bundled machine").expect("a checked machine");
    machine.nodes.into_iter().find(|node| node.name == name).expect("the node")
}

/// One slice's part of a whole device.
fn part(whole: &Node, slices: u16) -> Node {
    let mut part = whole.clone();
    part.sharing_slices = slices;
    part.capacity_mib /= u64::from(slices);
    part.energy.standby_mw /= f64::from(slices);
    if let Some(fixed) = &mut part.fixed {
        fixed.read_bandwidth_mbps /= f64::from(slices);
        fixed.write_bandwidth_mbps = fixed.write_bandwidth_mbps.map(|mbps| mbps / f64::from(slices));
    }
    part
}

fn seen(node: &Node, pattern: Pattern, read_share: f64, share_of_peak: f64) -> ProbePoint {
    probe(node, Load { pattern, read_share, share_of_peak, requests: 20_000, seed: 3 })
}

#[track_caller]
fn near(part: f64, whole: f64, tolerance: f64, what: &str) {
    assert!((part / whole - 1.0).abs() <= tolerance, "{what}: {part}, whole device {whole}");
}

const NODES: [(&str, &str); 3] = [("ddr5-cxl", "cxl"), ("bmpm-5", "nvm"), ("optane", "optane0")];

#[test]
fn loaded_latency_of_a_share_is_that_of_the_whole_device() {
    for (machine, name) in NODES {
        let whole = node(machine, name);
        for slices in [2, 8] {
            for (read_share, load) in [(1.0, 0.3), (1.0, 0.6), (0.7, 0.25)] {
                let [of_part, of_whole] =
                    [&part(&whole, slices), &whole].map(|node| seen(node, Pattern::Random, read_share, load));
                let what = format!("{machine} {name} / {slices}, {read_share} reads at {load}");
                near(of_part.mean_ns, of_whole.mean_ns, 0.04, &what);
                near(
                    of_part.achieved.as_mbps() * f64::from(slices),
                    of_whole.achieved.as_mbps(),
                    0.03,
                    &what,
                );
            }
        }
    }
}

#[test]
fn saturated_shares_add_up_to_the_device() {
    for (machine, name) in NODES {
        let whole = node(machine, name);
        let mbps = |node: &Node, pattern| seen(node, pattern, 1.0, 1.3).achieved.as_mbps();
        let [of_part, of_whole] = [&part(&whole, 4), &whole].map(|node| mbps(node, Pattern::Random));
        near(of_part * 4.0, of_whole, 0.05, &format!("{machine} {name}"));
        // Four streams spread over more banks than one.
        let [of_part, of_whole] = [&part(&whole, 4), &whole].map(|node| mbps(node, Pattern::Sequential));
        let peak = whole.bandwidth(1.0).as_mbps();
        assert!((0.95 * of_whole..=peak * 1.01).contains(&(of_part * 4.0)), "{machine} {name}: {of_part}");
    }
}

#[test]
fn energy_of_a_share_is_its_part() {
    let whole = node("ddr5-cxl", "cxl");
    let [of_part, of_whole] = [&part(&whole, 8), &whole]
        .map(|node| seen(node, Pattern::Random, 0.8, 0.4).power_mw.expect("energies"));
    near(of_part * 8.0, of_whole, 0.03, "power");
}

#[test]
fn chase_on_a_share_of_an_idle_device_has_the_idle_latency() {
    for (machine, name) in NODES {
        let whole = node(machine, name);
        let [of_part, of_whole] =
            [&part(&whole, 2), &whole].map(|node| seen(node, Pattern::Chase, 1.0, 1.0).mean_ns);
        near(of_part, of_whole, 0.03, &format!("{machine} {name}"));
    }
}
