//! Warnings about figures that a machine may have but that are probably mistakes: wrong units, inverted
//! tiers.

use super::field_error::FieldError;
use super::{Dram, Link, Machine};
use crate::ids::{InitiatorId, NodeId};
use crate::units::LINE_BYTES;

/// Plausible core clocks, in MHz.
const CLOCK_MHZ: [f64; 2] = [100.0, 10_000.0];

/// Maximum plausible cycles of a cache hit.
const CACHE_CYCLES: f64 = 500.0;

/// Plausible idle latencies of nodes without links, and of links, in ns.
const LATENCY_NS: [f64; 2] = [20.0, 20_000.0];

/// Maximum plausible bandwidth of a node or link, in MB/s: 20 TB/s.
const BANDWIDTH_MBPS: f64 = 2e7;

/// Minimum relative difference for a figure to count as better or worse.
const MARGIN: f64 = 0.05;

/// All doubtful figures of a checked machine, in the file's order.
pub(super) fn doubts(machine: &Machine) -> Vec<FieldError> {
    let clock = clock(machine);
    let mut doubts: Vec<FieldError> = clock.into_iter().chain(caches(machine)).collect();
    doubts.extend(machine.node_ids().flat_map(|node| of_node(machine, node)));
    doubts.extend(tiers(machine));
    doubts.extend((0..machine.links.len()).flat_map(|link| of_link(machine, link)));
    doubts
}

/// An implausible clock, if any.
pub(super) fn clock(machine: &Machine) -> Option<FieldError> {
    let [least, most] = CLOCK_MHZ;
    let mhz = machine.core.clock_mhz;
    let unit = if mhz < least { " (GHz?)" } else { "" };
    let message = format!("is {mhz} MHz{unit}; cores have {least} to {most} MHz");
    (!(least..=most).contains(&mhz)).then(|| FieldError::new("core.clock_mhz", message))
}

/// A cache with implausible latency, if any.
pub(super) fn slow_cache(machine: &Machine) -> Option<FieldError> {
    let slow = machine.caches.iter().position(|cache| cache.latency_cycles > CACHE_CYCLES)?;
    let cycles = machine.caches[slow].latency_cycles;
    let message = format!("is {cycles} cycles; a hit in a cache takes at most {CACHE_CYCLES}");
    Some(FieldError::new(format!("cache[{slow}].latency_cycles"), message))
}

fn caches(machine: &Machine) -> Vec<FieldError> {
    slow_cache(machine).into_iter().chain(spread_cache(machine)).collect()
}

/// A cache instance that spans initiators, if any.
fn spread_cache(machine: &Machine) -> Option<FieldError> {
    let mut first_cpu = 0;
    let ends: Vec<usize> = machine
        .initiators
        .iter()
        .map(|initiator| {
            first_cpu += usize::from(initiator.cpus);
            first_cpu
        })
        .collect();
    machine.caches.iter().enumerate().find_map(|(index, cache)| {
        let shared_by = usize::from(cache.shared_by);
        let inner = &ends[..ends.len() - 1];
        let cut = inner.iter().position(|end| !end.is_multiple_of(shared_by))?;
        let [a, b] = [cut, cut + 1].map(|at| &machine.initiators[at]);
        let message = format!(
            "is {shared_by}: an instance of '{}' is shared across initiators '{}' and '{}'; a cache lies in \
             one, so expected is a divisor of its {} CPUs",
            cache.name, a.name, b.name, a.cpus
        );
        Some(FieldError::new(format!("cache[{index}].shared_by"), message))
    })
}

/// Bandwidth of one load at a time from a node, in MB/s: with less, a single pointer chase would saturate it.
fn one_load_mbps(machine: &Machine, from: InitiatorId, node: NodeId) -> f64 {
    LINE_BYTES as f64 * 1e3 / machine.idle_latency(from, node).as_ns()
}

/// A row that would close before its column command, if any.
fn short_row(dram: &Dram, path: &str) -> Option<FieldError> {
    let (ras, rcd) = (dram.ras, dram.rcd);
    let message = format!("is {ras} cycles; a row stays open longer than rcd, {rcd} cycles");
    (ras <= rcd).then(|| FieldError::new(format!("{path}.ras"), message))
}

fn of_node(machine: &Machine, id: NodeId) -> Vec<FieldError> {
    let (index, node) = (id.index(), &machine.nodes[id.index()]);
    let from = machine.nearest_initiator(id);
    // Links have their own warnings; the clock and the caches are part of every node's latency.
    let own_ns = (machine.idle_latency(from, id) - machine.topology.link_latency(from, id)).as_ns();
    let [least, most] = LATENCY_NS;
    if !(least..=most).contains(&own_ns) {
        let field = if node.fixed.is_some() { "fixed.read_latency_ns" } else { "dram.controller_ns" };
        let message = format!("an idle read takes {own_ns:.1} ns; plausible is {least} to {most}");
        let cause = clock(machine).or_else(|| slow_cache(machine));
        let doubt = FieldError::new(format!("node[{index}].{field}"), message);
        return if cause.is_none() { vec![doubt] } else { Vec::new() };
    }
    let mut doubts: Vec<FieldError> =
        node.dram.iter().filter_map(|dram| short_row(dram, &format!("node[{index}].dram"))).collect();
    let least = one_load_mbps(machine, from, id);
    let fixed = node.fixed.iter().flat_map(|fixed| {
        [
            ("read_bandwidth_mbps", Some(fixed.read_bandwidth_mbps)),
            ("write_bandwidth_mbps", fixed.write_bandwidth_mbps),
        ]
    });
    for (name, mbps) in fixed {
        doubts.extend(mbps.and_then(|mbps| rate(format!("node[{index}].fixed.{name}"), mbps, least)));
    }
    doubts
}

/// A bandwidth in MB/s that one load at a time would saturate, or that is implausibly high.
fn rate(field: String, mbps: f64, least: f64) -> Option<FieldError> {
    // A figure derived from the latency is rounded.
    if mbps < least * (1.0 - MARGIN) {
        let message = format!(
            "is {mbps} MB/s (GB/s?); one load at a time draws {least:.0} MB/s at the idle latency: plausible \
             is {least:.0} to {BANDWIDTH_MBPS}"
        );
        return Some(FieldError::new(field, message));
    }
    let message = format!("is {mbps} MB/s (KB/s or B/s?); plausible is {least:.0} to {BANDWIDTH_MBPS}");
    (mbps > BANDWIDTH_MBPS).then(|| FieldError::new(field, message))
}

/// A node of a faster tier that is not faster in any respect than one of a slower tier.
fn tiers(machine: &Machine) -> Option<FieldError> {
    let figures = |id: NodeId| {
        let ns = machine.idle_latency(machine.nearest_initiator(id), id).as_ns();
        (ns, machine.node_bandwidth(id).as_mbps())
    };
    let pairs = machine.node_ids().flat_map(|fast| machine.node_ids().map(move |slow| (fast, slow)));
    for (fast, slow) in pairs.filter(|&(fast, slow)| machine.tier_of(fast) < machine.tier_of(slow)) {
        let [(a_ns, a_mbps), (b_ns, b_mbps)] = [fast, slow].map(figures);
        let more = |a: f64, b: f64| a > b * (1.0 + MARGIN);
        let better = more(b_ns, a_ns) || more(a_mbps, b_mbps);
        if !better && (more(a_ns, b_ns) || more(b_mbps, a_mbps)) {
            let [a, b] = [fast, slow].map(|id| &machine.nodes[id.index()]);
            let message = format!(
                "is {}, but '{}' ({a_ns:.0} ns, {a_mbps:.0} MB/s) is slower than '{}' of tier {} ({b_ns:.0} \
                 ns, {b_mbps:.0} MB/s); tier 0 is the fastest",
                a.tier, a.name, b.name, b.tier
            );
            return Some(FieldError::new(format!("node[{}].tier", fast.index()), message));
        }
    }
    None
}

fn of_link(machine: &Machine, index: usize) -> Vec<FieldError> {
    let link = &machine.links[index];
    let mut doubts = Vec::new();
    let ends = |link: &Link| {
        let [a, b] = link.between.each_ref().map(String::as_str);
        (a.min(b).to_owned(), a.max(b).to_owned())
    };
    let before = machine.links[..index].iter().position(|other| ends(other) == ends(link));
    if let Some(before) = before {
        let message = format!(
            "link[{before}] has the same ends, '{}' and '{}', and only the one with less latency is used: \
             enter one link with the bandwidth of both",
            link.between[0], link.between[1]
        );
        doubts.push(FieldError::new(format!("link[{index}].between"), message));
    }
    let [_, most] = LATENCY_NS;
    if link.latency_ns > most {
        let message = format!("is {} ns (ps?); plausible is 0 to {most}", link.latency_ns);
        doubts.push(FieldError::new(format!("link[{index}].latency_ns"), message));
        return doubts;
    }
    // Of all routes over this link, the one with the least latency.
    let routes = machine.node_ids().flat_map(|node| {
        let initiators = (0..machine.initiators.len()).map(InitiatorId::from);
        initiators.map(move |from| (from, node))
    });
    let over =
        routes.filter(|&(from, node)| machine.topology.hops(from, node).iter().any(|hop| hop.link == index));
    let least = over.map(|(from, node)| one_load_mbps(machine, from, node)).fold(0.0, f64::max);
    doubts.extend(rate(format!("link[{index}].bandwidth_mbps"), link.bandwidth_mbps, least));
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bundled;

    /// Two sockets with memory each, and an expander attached to the first: nothing implausible.
    const PLAUSIBLE: &str = include_str!("../../../../machines/ddr5-cxl.toml");
    const FIXED: &str = include_str!("../../../../machines/optane.toml");

    /// A machine file without loaded-latency curves, which would refuse another idle latency.
    fn without_curves(text: &str) -> String {
        let (first, rest) = text.split_once("loaded = [").expect("a curve");
        let rest = rest.split("loaded = [").map(|part| part.split_once("\n]\n").expect("its end").1);
        first.to_owned() + &rest.collect::<String>()
    }

    /// The only warning about a machine with one change: its field, its line's text, and the message.
    fn doubt(text: &str, from: &str, to: &str) -> (String, String, String) {
        assert!(text.contains(from), "the test's own text lacks {from}");
        // Warnings on what the scale leaves are not of interest here.
        let text = text.replacen("\nscale = 32\n", "\nscale = 1\n", 1).replacen(from, to, 1);
        let machine = Machine::parse("m.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let warnings = machine.warnings("m.toml", &text);
        let [warning] = &warnings[..] else { panic!("{to}: {warnings:#?}") };
        let line = text.lines().nth(warning.line - 1).unwrap_or_default();
        (warning.field.clone(), line.to_owned(), warning.message.clone())
    }

    #[test]
    fn no_bundled_machine_is_doubtful() {
        for name in bundled::names() {
            let (machine, text) = (bundled::machine(name).unwrap().unwrap(), bundled::text(name).unwrap());
            assert_eq!(machine.warnings(name, text), [], "{name}");
            assert_eq!(machine.reduced().warnings(name, text), [], "{name}, reduced");
        }
    }

    #[test]
    fn doubtful_figure_is_named_with_field_line_value_and_what_is_plausible() {
        let plain = without_curves(FIXED);
        let cases = [
            (
                FIXED,
                "read_bandwidth_mbps = 106000",
                "read_bandwidth_mbps = 106",
                "node[0].fixed.read_bandwidth_mbps",
                "is 106 MB/s (GB/s?); one load at a time draws 634 MB/s at the idle latency: plausible is \
                 634 to 20000000",
            ),
            (
                FIXED,
                "read_bandwidth_mbps = 106000",
                "read_bandwidth_mbps = 280",
                "node[0].fixed.read_bandwidth_mbps",
                "is 280 MB/s (GB/s?)",
            ),
            (
                FIXED,
                "write_bandwidth_mbps = 13900",
                "write_bandwidth_mbps = 13.9",
                "node[2].fixed.write_bandwidth_mbps",
                "is 13.9 MB/s (GB/s?)",
            ),
            (
                FIXED,
                "read_bandwidth_mbps = 106000",
                "read_bandwidth_mbps = 106000000",
                "node[0].fixed.read_bandwidth_mbps",
                "is 106000000 MB/s (KB/s or B/s?)",
            ),
            (
                &plain,
                "read_latency_ns = 101",
                "read_latency_ns = 101000",
                "node[0].fixed.read_latency_ns",
                "an idle read takes 101000.0 ns; plausible is 20 to 20000",
            ),
            (
                PLAUSIBLE,
                "bandwidth_mbps = 24000",
                "bandwidth_mbps = 30",
                "link[1].bandwidth_mbps",
                "is 30 MB/s (GB/s?); one load at a time draws 299 MB/s",
            ),
            (PLAUSIBLE, "latency_ns = 77", "latency_ns = 77000", "link[0].latency_ns", "is 77000 ns (ps?)"),
            (
                PLAUSIBLE,
                "shared_by = 32",
                "shared_by = 64",
                "cache[2].shared_by",
                "is 64: an instance of 'L3' is shared across initiators 'socket0' and 'socket1'; a cache \
                 lies in one, so expected is a divisor of its 32 CPUs",
            ),
            (
                PLAUSIBLE,
                "clock_mhz = 2100",
                "clock_mhz = 2.1",
                "core.clock_mhz",
                "is 2.1 MHz (GHz?); cores have 100 to 10000 MHz",
            ),
            (
                PLAUSIBLE,
                "latency_cycles = 70",
                "latency_cycles = 700",
                "cache[2].latency_cycles",
                "is 700 cycles; a hit in a cache takes at most 500",
            ),
        ];
        for (text, from, to, field, says) in cases {
            let (found, line, message) = doubt(text, from, to);
            assert_eq!(found, field, "{message}");
            assert!(line.starts_with(to), "{field} is at: {line}");
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn second_link_between_the_same_ends_is_doubtful_either_way_round() {
        for ends in ["\"socket0\", \"cxl\"", "\"cxl\", \"socket0\""] {
            let link = format!("\n[[link]]\nbetween = [{ends}]\nlatency_ns = 100\nbandwidth_mbps = 24000\n");
            let last = "[[link]]\nbetween = [\"socket0\", \"cxl\"]";
            let (field, line, message) = doubt(PLAUSIBLE, last, &format!("{}\n{last}", link.trim()));
            assert_eq!((field.as_str(), line.as_str()), ("link[2].between", &last[9..]), "{message}");
            assert!(message.starts_with("link[1] has the same ends, 'socket0' and 'cxl'"), "{message}");
        }
    }

    #[test]
    fn row_that_closes_before_its_column_command_is_doubtful() {
        let text = bundled::text("ddr4-2400").unwrap();
        let (field, line, message) = doubt(text, "ras = 39", "ras = 17");
        assert_eq!((field.as_str(), line.as_str()), ("node[0].dram.ras", "ras = 17"), "{message}");
    }

    #[test]
    fn tiers_the_wrong_way_round_are_doubtful() {
        let swapped = FIXED
            .replace("tier = 0", "tier = 9")
            .replace("tier = 1", "tier = 0")
            .replace("tier = 9", "tier = 1");
        let (field, line, message) = doubt(&swapped, "tier = 1", "tier = 1");
        assert_eq!((field.as_str(), line.as_str()), ("node[2].tier", "tier = 0"), "{message}");
        assert_eq!(
            message,
            "is 0, but 'optane0' (305 ns, 39400 MB/s) is slower than 'dram0' of tier 1 (101 ns, 106000 \
             MB/s); tier 0 is the fastest"
        );
    }

    #[test]
    fn wrong_clock_is_not_blamed_on_a_nodes_latency() {
        let text = FIXED.replacen("clock_mhz = 2200", "clock_mhz = 2.2", 1);
        let error = Machine::parse("m.toml", &text).expect_err("accepted");
        assert_eq!(error.field, "core.clock_mhz", "{error}");
        assert!(text.lines().nth(error.line - 1).unwrap().starts_with("clock_mhz"), "{error}");
        assert!(error.message.starts_with("is 2.2 MHz (GHz?); cores have 100 to 10000 MHz"), "{error}");
        let text = FIXED.replacen("latency_cycles = 50", "latency_cycles = 5000", 1);
        let error = Machine::parse("m.toml", &text).expect_err("accepted");
        assert_eq!(error.field, "cache[2].latency_cycles", "{error}");
    }
}
