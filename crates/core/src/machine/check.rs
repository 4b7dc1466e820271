//! Checks a machine against limits and contradictions.

use super::check_dram::dram;
use super::field_error::FieldError;
use super::setting::entry_name;
use super::{Cache, Fixed, Kernel, Machine, Node, Tlb, current_path, plausible};

pub(super) type Checked = Result<(), FieldError>;

/// Maximum number of links: one between any two of 64 initiators and 64 nodes, and some more.
const LINKS_MAX: usize = 1 << 13;

/// Maximum length of a name, in characters.
const NAME_MAX: usize = 64;

/// The first error of a machine in the file's order, except that CPUs are checked before the caches that they
/// share.
pub(super) fn check(machine: &Machine) -> Checked {
    name("name", &machine.name)?;
    few("cache", machine.caches.len(), 8)?;
    few("tlb", machine.tlbs.len(), 8)?;
    few("link", machine.links.len(), LINKS_MAX)?;
    whole("slice", machine.slice.into(), 1, 1024)?;
    whole("scale", machine.scale.into(), 1, 1 << 20)?;
    if let Some(percent) = machine.reduction_deviation_percent {
        figure("reduction_deviation_percent", percent, 0.0, 1e6)?;
    }
    sources(machine)?;
    core(machine)?;
    initiators(machine)?;
    for (i, cache) in machine.caches.iter().enumerate() {
        cache_level(machine, i, cache)?;
    }
    names("cache", machine.caches.iter().map(|cache| cache.name.as_str()))?;
    for (i, tlb) in machine.tlbs.iter().enumerate() {
        tlb_level(&format!("tlb[{i}]"), tlb)?;
    }
    names("tlb", machine.tlbs.iter().map(|tlb| tlb.name.as_str()))?;
    if let Some(p) = &machine.prefetcher {
        whole("prefetcher.streams", p.streams.into(), 1, 256)?;
        whole("prefetcher.distance_lines", p.distance_lines.into(), 1, 64)?;
        whole("prefetcher.stride_lines", p.stride_lines.into(), 1, 32)?;
        whole("prefetcher.trigger_misses", p.trigger_misses.into(), 2, 3)?;
    }
    kernel(machine)?;
    nodes(machine)?;
    links(machine)
}

pub(super) fn refuse<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, FieldError> {
    Err(FieldError::new(field, message))
}

/// Checks a list's length.
fn few(list: &str, count: usize, most: usize) -> Checked {
    if count <= most {
        return Ok(());
    }
    refuse(list, format!("{count} of them; a machine has at most {most}"))
}

/// Checks a name of a machine, node, initiator, cache or TLB.
///
/// # Errors
/// If it is empty, longer than 64 bytes, or has other characters than letters, digits, `-`, `_` and `.`: what
/// is wrong, and what is allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.len() > NAME_MAX {
        return Err(format!("has {} bytes; a name has at most {NAME_MAX}", name.len()));
    }
    if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Ok(());
    }
    Err(format!("is {name:?}; must be made of letters, digits, '-', '_' and '.'"))
}

fn name(field: impl Into<String>, name: &str) -> Checked {
    check_name(name).map_err(|message| FieldError::new(field, message))
}

/// Checks the names of a list's entries, which must be unique.
fn names<'m>(list: &str, all: impl Iterator<Item = &'m str>) -> Checked {
    let mut before: Vec<&str> = Vec::new();
    for (i, this) in all.enumerate() {
        let field = format!("{list}[{i}].name");
        if before.contains(&this) {
            return refuse(field, format!("'{this}' is taken by another {list}"));
        }
        name(field, this)?;
        before.push(this);
    }
    Ok(())
}

pub(super) fn whole(field: &str, value: u64, least: u64, most: u64) -> Checked {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("invalid value {value}: expected an integer from {least} to {most}"))
}

pub(super) fn power_of_two(field: &str, value: u64, most: u64) -> Checked {
    if value.is_power_of_two() && value <= most {
        return Ok(());
    }
    refuse(field, format!("invalid value {value}: expected a power of two up to {most}"))
}

pub(super) fn figure(field: &str, value: f64, least: f64, most: f64) -> Checked {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("invalid value {value}: expected a number from {least} to {most}"))
}

/// Checks a bandwidth in MB/s.
fn bandwidth(field: &str, mbps: f64) -> Checked {
    figure(field, mbps, 1.0, 1e9)
}

/// Maximum latency of memory, in ns.
pub(super) const LONGEST_NS: f64 = 1e6;

fn positive(field: &str, value: f64, most: f64) -> Checked {
    if value.is_finite() && value > 0.0 && value <= most {
        return Ok(());
    }
    refuse(field, format!("invalid value {value}: expected a number above 0, up to {most}"))
}

fn sources(machine: &Machine) -> Checked {
    if machine.sources.get("default").is_none_or(|s| s.trim().is_empty()) {
        return refuse("sources", "needs a `default`: the source of every figure that no other entry names");
    }
    let tree = toml::Value::try_from(machine).map_err(|e| FieldError::new("", e.to_string()))?;
    for (path, source) in &machine.sources {
        let field = format!("sources.{path}");
        if source.trim().is_empty() {
            return refuse(field, "is empty; name the source of the figures");
        }
        if path != "default" && !exists(&tree, path) {
            return refuse(
                field,
                format!("there is no `{path}` in this file (list entries are named, not numbered)"),
            );
        }
    }
    if machine.calibrated.len() > 2 {
        return refuse("calibrated", "lists more than two figures; at most two may be fitted");
    }
    for (i, path) in machine.calibrated.iter().enumerate() {
        if !exists(&tree, path) {
            return refuse(format!("calibrated[{i}]"), format!("there is no `{path}` in this file"));
        }
    }
    Ok(())
}

/// Whether a dotted path, with list entries by name, exists. Spellings of older files are accepted.
fn exists(tree: &toml::Value, path: &str) -> bool {
    let mut at = tree;
    for part in current_path(path).split('.') {
        let next = match at {
            toml::Value::Table(table) => table.get(part),
            toml::Value::Array(list) => {
                list.iter().enumerate().find(|&entry| entry_name(entry) == part).map(|(_, entry)| entry)
            }
            _ => None,
        };
        let Some(next) = next else { return false };
        at = next;
    }
    true
}

fn core(machine: &Machine) -> Checked {
    let core = &machine.core;
    figure("core.clock_mhz", core.clock_mhz, 1.0, 100_000.0)?;
    figure("core.instructions_per_cycle", core.instructions_per_cycle, 0.01, 16.0)?;
    whole("core.reorder_buffer", core.reorder_buffer.into(), 1, 4096)?;
    whole("core.store_queue", core.store_queue.into(), 1, 1024)?;
    whole("core.write_streaming_lines", core.write_streaming_lines.into(), 0, 1024)?;
    whole("core.outstanding_misses", core.outstanding_misses.into(), 1, 64)
}

fn cache_level(machine: &Machine, index: usize, cache: &Cache) -> Checked {
    let at = |name: &str| format!("cache[{index}].{name}");
    whole(&at("capacity_kib"), cache.capacity_kib, 1, 16 << 20)?;
    whole(&at("ways"), cache.ways.into(), 1, 64)?;
    positive(&at("latency_cycles"), cache.latency_cycles, 10_000.0)?;
    let cpus = machine.cpus() as u64;
    whole(&at("shared_by"), cache.shared_by.into(), 1, cpus)?;
    let lines = cache.capacity_kib * 1024 / crate::units::LINE_BYTES;
    if lines < u64::from(cache.ways) || !lines.is_multiple_of(u64::from(cache.ways)) {
        let message = format!("{lines} lines are not whole sets of {} ways", cache.ways);
        return refuse(at("capacity_kib"), message);
    }
    if index == 0 {
        return Ok(());
    }
    let inner = &machine.caches[index - 1];
    if cache.latency_cycles <= inner.latency_cycles {
        let message = format!("must be above that of '{}', which is nearer to the core", inner.name);
        return refuse(at("latency_cycles"), message);
    }
    if !cache.shared_by.is_multiple_of(inner.shared_by) {
        let message = format!("must be a multiple of that of '{}', {}", inner.name, inner.shared_by);
        return refuse(at("shared_by"), message);
    }
    Ok(())
}

fn tlb_level(at: &str, tlb: &Tlb) -> Checked {
    whole(&format!("{at}.entries"), tlb.entries.into(), 1, 1 << 20)?;
    whole(&format!("{at}.ways"), tlb.ways.into(), 1, tlb.entries.min(4096).into())?;
    figure(&format!("{at}.latency_cycles"), tlb.latency_cycles, 0.0, 10_000.0)?;
    figure(&format!("{at}.walk_cycles"), tlb.walk_cycles, 0.0, 100_000.0)?;
    whole(&format!("{at}.walkers"), tlb.walkers.into(), 1, 64)?;
    match tlb.cold_walk_cycles {
        Some(cycles) => figure(&format!("{at}.cold_walk_cycles"), cycles, tlb.walk_cycles, 100_000.0),
        None if tlb.nested_walks => refuse(
            format!("{at}.nested_walks"),
            "has no effect without `cold_walk_cycles`: walks then read no lines",
        ),
        None => Ok(()),
    }
}

fn kernel(machine: &Machine) -> Checked {
    let k = &machine.kernel;
    let costs = [
        ("kernel.fault_ns", k.fault_ns),
        ("kernel.huge_fault_ns", k.huge_fault_ns),
        ("kernel.hint_fault_ns", k.hint_fault_ns),
        ("kernel.marked_miss_ns", k.marked_miss_ns),
        ("kernel.unmap_ns", k.unmap_ns),
        ("kernel.shootdown_ns", k.shootdown_ns),
        ("kernel.remap_ns", k.remap_ns),
        ("kernel.swap_ns", k.swap_ns),
        ("kernel.sample_ns", k.sample_ns),
        ("kernel.access_sample_ns", k.access_sample_ns),
        ("kernel.walk_entry_ns", k.walk_entry_ns),
    ];
    for (field, value) in costs {
        figure(field, value, 0.0, 1e9)?;
    }
    figure("kernel.numa_scan_period_ms", k.numa_scan_period_ms, 0.001, 1e6)?;
    figure("kernel.numa_scan_mib", k.numa_scan_mib, Kernel::SCAN_MIB_MIN, f64::from(1 << 20))?;
    whole("kernel.watermark_low_bp", k.watermark_low_bp.into(), 0, 5000)?;
    whole("kernel.watermark_high_bp", k.watermark_high_bp.into(), k.watermark_low_bp.into(), 5000)
}

fn initiators(machine: &Machine) -> Checked {
    if machine.initiators.is_empty() || machine.initiators.len() > 64 {
        return refuse("initiator", "a machine has 1 to 64 of them");
    }
    for (i, initiator) in machine.initiators.iter().enumerate() {
        whole(&format!("initiator[{i}].cpus"), initiator.cpus.into(), 1, 1024)?;
        if !u32::from(initiator.cpus).is_multiple_of(machine.slice) {
            let (name, cpus) = (&initiator.name, initiator.cpus);
            let message =
                format!("invalid value {}: expected a divisor of the {cpus} CPUs of '{name}'", machine.slice);
            return refuse("slice", message);
        }
    }
    names("initiator", machine.initiators.iter().map(|initiator| initiator.name.as_str()))
}

fn nodes(machine: &Machine) -> Checked {
    if machine.nodes.is_empty() || machine.nodes.len() > 64 {
        return refuse("node", "a machine has 1 to 64 of them");
    }
    names("node", machine.nodes.iter().map(|node| node.name.as_str()))?;
    for (i, node) in machine.nodes.iter().enumerate() {
        let at = format!("node[{i}]");
        if machine.initiators.iter().any(|initiator| initiator.name == node.name) {
            return refuse(format!("{at}.name"), format!("'{}' is taken by an initiator", node.name));
        }
        memory_node(machine, &at, node)?;
    }
    if machine.nodes.iter().all(|node| node.isolated) {
        return refuse("node", "all are isolated, so that nothing can be allocated; leave one out");
    }
    for tier in 0..machine.tiers() {
        if !machine.nodes.iter().any(|n| usize::from(n.tier) == tier) {
            return refuse(
                "node",
                format!("no node is in tier {tier}; tiers are numbered from 0 without a gap"),
            );
        }
    }
    Ok(())
}

fn memory_node(machine: &Machine, at: &str, node: &Node) -> Checked {
    whole(&format!("{at}.capacity_mib"), node.capacity_mib, 1, 1 << 30)?;
    if node.capacity_mib < machine.reduction() {
        let (slice, scale) = (machine.slice, machine.scale);
        let by = if slice == 1 { String::new() } else { format!("a slice of {slice} and ") };
        let message = format!(
            "is {}; {by}a scale of {scale}, the file's own, leave no memory: give it {} or more",
            node.capacity_mib,
            machine.reduction()
        );
        return refuse(format!("{at}.capacity_mib"), message);
    }
    whole(&format!("{at}.sharing_slices"), node.sharing_slices.into(), 1, 1024)?;
    if let Some(name) = &node.initiator
        && !machine.initiators.iter().any(|i| i.name == *name)
    {
        let known: Vec<&str> = machine.initiators.iter().map(|i| i.name.as_str()).collect();
        let message = format!("there is no initiator '{name}'; there are: {}", known.join(", "));
        return refuse(format!("{at}.initiator"), message);
    }
    let e = &node.energy;
    let energies = [
        ("read_nj", e.read_nj),
        ("write_nj", e.write_nj),
        ("activate_nj", e.activate_nj),
        ("refresh_nj", e.refresh_nj),
        ("standby_mw", e.standby_mw),
    ];
    for (name, value) in energies {
        figure(&format!("{at}.energy.{name}"), value, 0.0, 1e9)?;
    }
    if let Some(writes) = node.endurance_writes {
        positive(&format!("{at}.endurance_writes"), writes, 1e18)?;
    }
    match (&node.dram, &node.fixed) {
        (Some(figures), None) => dram(&format!("{at}.dram"), figures, node.capacity_mib),
        (None, Some(figures)) => fixed(machine, &format!("{at}.fixed"), figures),
        (Some(_), Some(_)) => refuse(at, "is both `dram` and `fixed`; remove one of the two tables"),
        (None, None) => {
            refuse(at, "needs a table `dram` (device timings) or `fixed` (latency and bandwidth)")
        }
    }
}

fn fixed(machine: &Machine, at: &str, fixed: &Fixed) -> Checked {
    let least = machine.caches.last().map_or(0.001, |c| machine.core.cycles(c.latency_cycles).as_ns());
    if fixed.read_latency_ns < least {
        // The latency of the path through the caches may be the one that is wrong.
        if let Some(cause) = plausible::clock(machine).or_else(|| plausible::slow_cache(machine)) {
            let message = format!(
                "{}. The way through the caches takes {least:.0} ns by it, more than the {} ns of {at}",
                cause.message, fixed.read_latency_ns
            );
            return refuse(cause.field, message);
        }
        let message = format!(
            "is {} ns, below the {least:.1} ns of the path through the caches; it is load-to-use",
            fixed.read_latency_ns
        );
        return refuse(format!("{at}.read_latency_ns"), message);
    }
    figure(&format!("{at}.read_latency_ns"), fixed.read_latency_ns, 0.001, LONGEST_NS)?;
    if let Some(ns) = fixed.write_latency_ns {
        figure(&format!("{at}.write_latency_ns"), ns, 0.001, LONGEST_NS)?;
    }
    bandwidth(&format!("{at}.read_bandwidth_mbps"), fixed.read_bandwidth_mbps)?;
    if let Some(mbps) = fixed.write_bandwidth_mbps {
        bandwidth(&format!("{at}.write_bandwidth_mbps"), mbps)?;
    }
    let mut before = (-1.0, 0.0);
    for (i, point) in fixed.loaded.iter().enumerate() {
        let at = format!("{at}.loaded[{i}]");
        figure(&format!("{at}.load"), point.load, 0.0, 1.0)?;
        figure(&format!("{at}.latency_ns"), point.latency_ns, fixed.read_latency_ns, LONGEST_NS)?;
        if point.load <= before.0 || point.latency_ns < before.1 {
            return refuse(at, "loads must rise from point to point, and latencies must not fall");
        }
        before = (point.load, point.latency_ns);
    }
    Ok(())
}

fn links(machine: &Machine) -> Checked {
    for (i, link) in machine.links.iter().enumerate() {
        let at = format!("link[{i}]");
        for end in &link.between {
            let known =
                machine.initiators.iter().map(|x| &x.name).chain(machine.nodes.iter().map(|n| &n.name));
            let known: Vec<&str> = known.map(String::as_str).collect();
            if !known.contains(&end.as_str()) {
                let message =
                    format!("there is no initiator or node '{end}'; there are: {}", known.join(", "));
                return refuse(format!("{at}.between"), message);
            }
        }
        if link.between[0] == link.between[1] {
            return refuse(format!("{at}.between"), "names the same end twice");
        }
        figure(&format!("{at}.latency_ns"), link.latency_ns, 0.0, LONGEST_NS)?;
        bandwidth(&format!("{at}.bandwidth_mbps"), link.bandwidth_mbps)?;
        whole(&format!("{at}.sharing_slices"), link.sharing_slices.into(), 1, 1024)?;
    }
    Ok(())
}
