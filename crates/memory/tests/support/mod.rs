//! Shared by tests of caches and the uncore: random streams and small machines.

use memtide_core::Machine;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// Draws from a Zipf distribution by inverse transform, from a table.
pub struct Zipf {
    random: SplitMix64,
    cumulative: Vec<f64>,
}

impl Zipf {
    pub fn new(items: usize, exponent: f64, seed: u64) -> Zipf {
        let mut sum = 0.0;
        let cumulative = (1..=items)
            .map(|rank| {
                sum += libm::pow(rank as f64, -exponent);
                sum
            })
            .collect();
        Zipf { random: SplitMix64::seed_from_u64(seed), cumulative }
    }

    /// An item; popular ones are scattered over all numbers.
    pub fn draw(&mut self) -> u64 {
        let items = self.cumulative.len();
        let unit = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let at = unit * self.cumulative[items - 1];
        let rank = self.cumulative.partition_point(|&sum| sum < at) as u64;
        rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % items as u64
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.random.next_u64().is_multiple_of(one_in)
    }
}

/// A machine of 1 GHz cores (one ns per cycle); `rest` has caches, TLBs, initiators, nodes and links.
pub fn machine(rest: &str) -> Machine {
    let text = format!(
        "name = \"test\"\nsummary = \"a test's\"\nsources.default = \"assumed: a test's\"\n[core]\n\
         clock_mhz = 1000\ninstructions_per_cycle = 1\nreorder_buffer = 64\noutstanding_misses = 8\n{rest}"
    );
    Machine::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A cache level in machine file syntax.
pub fn level(name: &str, kib: u64, ways: u16, latency: u32, shared_by: u16) -> String {
    format!(
        "[[cache]]\nname = \"{name}\"\ncapacity_kib = {kib}\nways = {ways}\nlatency_cycles = {latency}\n\
         shared_by = {shared_by}\n"
    )
}

/// A socket with this many CPUs.
pub fn socket(name: &str, cpus: u16) -> String {
    format!("[[initiator]]\nname = \"{name}\"\ncpus = {cpus}\n")
}

/// A fixed node of 1 MiB; `beside` is its initiator, or `None` if it is behind a link.
pub fn node(name: &str, beside: Option<&str>, latency_ns: f64, mbps: f64) -> String {
    let beside = beside.map(|socket| format!("initiator = \"{socket}\"\n")).unwrap_or_default();
    format!(
        "[[node]]\nname = \"{name}\"\ntier = 0\ncapacity_mib = 1\n{beside}\
         fixed = {{ read_latency_ns = {latency_ns}, read_bandwidth_mbps = {mbps} }}\n"
    )
}

/// A link.
pub fn link(between: [&str; 2], latency_ns: f64, mbps: f64) -> String {
    format!("[[link]]\nbetween = {between:?}\nlatency_ns = {latency_ns}\nbandwidth_mbps = {mbps}\n")
}
