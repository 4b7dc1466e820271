//! A slice of a machine: a part of every resource, on which a part of the threads meets the whole machine's
//! contention.
//!
//! A machine of `c` cores, `h` channels and a shared cache of `s` KiB in slices of N:
//!
//! ```text
//!   c / N cores    s / N KiB of shared cache    h / N whole channels
//!                                               or, where N does not divide h, h / g whole channels that
//!                                               N / g slices share (g = gcd(h, N))
//! ```
//!
//! Invariant: cache, bandwidth and capacity per core are those of the whole machine. A channel is never made
//! narrower, since devices have no narrower burst: a slice that gets less than one shares it with the other
//! slices ([`Node::sharing_slices`]), whose requests the memory model adds. Links and fixed nodes are always
//! shared.
//!
//! [`Node::sharing_slices`]: super::Node::sharing_slices

use super::{Cache, Dram, Machine, Node};

impl Machine {
    /// The divisor of capacities and page counts: `slice` times `scale`.
    pub fn reduction(&self) -> u64 {
        u64::from(self.slice) * u64::from(self.scale)
    }

    /// The machine with as many CPUs as its slice has, and all else whole. The simulator makes policies with
    /// it, as they see the CPUs of the slice and divide page counts by [`Machine::reduction`] themselves.
    pub fn with_cpus_of_slice(&self) -> Machine {
        Machine { initiators: self.sliced().initiators, ..self.clone() }
    }

    /// The machine with its `slice` and then its `scale` applied, as it is simulated. Both are then 1.
    pub fn reduced(&self) -> Machine {
        self.sliced().scaled()
    }

    /// The machine with its `slice` applied: divides cores, channels, links, shared caches and capacities by
    /// it; private caches, TLBs, latencies and times stay. The result has slice 1.
    ///
    /// What the kernel does once for all cores is divided or multiplied so that each core bears the same
    /// share: the hint scanner marks a part of the pages, a monitor's sample costs a part, and a page that
    /// moves interrupts each CPU as often as all slices' pages do.
    pub fn sliced(&self) -> Machine {
        let by = self.slice as u16;
        let mut machine = Machine { slice: 1, ..self.clone() }.without_deviation();
        if by <= 1 {
            return machine;
        }
        for initiator in &mut machine.initiators {
            initiator.cpus = (initiator.cpus / by).max(1);
        }
        let cpus: Vec<u16> = machine.initiators.iter().map(|initiator| initiator.cpus).collect();
        for (cache, whole) in machine.caches.iter_mut().zip(&self.caches).filter(|(_, c)| c.is_shared()) {
            // An instance lies in one initiator, unless it spans several.
            let spans = self.initiators.iter().any(|i| !i.cpus.is_multiple_of(whole.shared_by));
            let left = if spans { cpus.iter().sum() } else { cpus.iter().copied().fold(0, gcd) };
            *cache = whole.share(gcd(whole.shared_by, left));
        }
        for node in &mut machine.nodes {
            slice_node(node, by);
        }
        for link in &mut machine.links {
            link.bandwidth_mbps /= f64::from(by);
            link.sharing_slices = link.sharing_slices.saturating_mul(by);
        }
        let kernel = &mut machine.kernel;
        kernel.sample_ns /= f64::from(by);
        kernel.access_sample_ns /= f64::from(by);
        kernel.shootdown_ns *= f64::from(by);
        kernel.divide_scan(u64::from(by));
        machine
    }
}

fn slice_node(node: &mut Node, by: u16) {
    node.capacity_mib = (node.capacity_mib / u64::from(by)).max(1);
    node.energy.standby_mw /= f64::from(by);
    let mut sharing = by;
    if let Some(dram) = &mut node.dram {
        let whole = gcd(dram.channels, by);
        if let Some(part) = dram.with_channels(dram.channels / whole) {
            *dram = part;
            sharing = by / whole;
        }
    }
    if let Some(fixed) = &mut node.fixed {
        fixed.read_bandwidth_mbps /= f64::from(by);
        fixed.write_bandwidth_mbps = fixed.write_bandwidth_mbps.map(|mbps| mbps / f64::from(by));
    }
    node.sharing_slices = node.sharing_slices.saturating_mul(sharing);
}

impl Dram {
    /// The device with fewer channels, a power of two: the channel's fields of the address map lose their
    /// upper bits, and address hashes those terms. `None` if the remaining hashes give two lines the same
    /// place.
    fn with_channels(&self, channels: u16) -> Option<Dram> {
        let is_left = |bit: &str| {
            let number = bit.strip_prefix("channel[").and_then(|bit| bit.strip_suffix(']'));
            number.and_then(|number| number.parse().ok()).is_none_or(|n: u32| n < channels.trailing_zeros())
        };
        let hash = |entry: &String| {
            let (target, terms) = entry.split_once("^=").map(|(target, terms)| (target.trim(), terms))?;
            let terms: Vec<&str> = terms.split('^').map(str::trim).filter(|term| is_left(term)).collect();
            (is_left(target) && !terms.is_empty()).then(|| format!("{target} ^= {}", terms.join(" ^ ")))
        };
        let address_hash = self.address_hash.iter().filter_map(hash).collect();
        let address_map = self.map_of_channels(channels);
        let part = Dram { channels, address_map, address_hash, ..self.clone() };
        (part.map_fields().is_ok() && part.map_hashes().is_ok()).then_some(part)
    }

    fn map_of_channels(&self, channels: u16) -> String {
        let mut left = channels.trailing_zeros();
        let parts = self.address_map.rsplit('|').map(|part| match part.trim().split_once(':') {
            Some(("channel", bits)) => {
                let bits = bits.parse::<u32>().unwrap_or(0).min(left);
                left -= bits;
                format!("channel:{bits}")
            }
            _ => part.to_owned(),
        });
        let mut parts: Vec<String> = parts.collect();
        parts.reverse();
        parts.join("|")
    }
}

impl Cache {
    /// The part of an instance that some of its CPUs have: its capacity by their number, rounded down to
    /// whole sets and KiB. It remains a shared level.
    pub fn share(&self, cpus: u16) -> Cache {
        let capacity_kib = self.capacity_kib * u64::from(cpus) / u64::from(self.shared_by);
        let slice = self.slice || cpus < self.shared_by;
        Cache { capacity_kib: self.whole_sets(capacity_kib), shared_by: cpus, slice, ..self.clone() }
    }

    /// A capacity in KiB, rounded down to whole sets, at least one.
    pub(super) fn whole_sets(&self, capacity_kib: u64) -> u64 {
        let step_kib = self.step_kib();
        (capacity_kib / step_kib * step_kib).max(step_kib)
    }

    /// A capacity in KiB, rounded up to whole sets.
    pub(super) fn sets_for(&self, capacity_kib: u64) -> u64 {
        capacity_kib.next_multiple_of(self.step_kib())
    }

    /// Smallest number of KiB that are whole sets.
    fn step_kib(&self) -> u64 {
        let ways = u64::from(self.ways);
        (1..=ways).find(|kib| (kib * 16).is_multiple_of(ways)).unwrap_or(1)
    }
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}
