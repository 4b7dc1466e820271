//! Measures idle latency, bandwidth and loaded latency, as Intel MLC does on real memory.
//!
//! What is probed is a [`Target`]: a node alone, or the path to it from an initiator, with the caches'
//! latency and the links' queues as in the simulator. An *open* loop ([`Target::probe`]) offers a rate
//! whatever comes back; a *closed* one ([`Target::probe_in_flight`]) keeps a number of reads in flight, as
//! cores do.

mod closed;
mod open;
mod path;
mod seen;
mod source;

use memtide_core::Bandwidth;
use memtide_core::machine::Node;

pub use path::Target;
pub use seen::ProbePoint;

use closed::closed_loop;
use open::open_loop;
use source::Source;

/// Inverse of the share of requests used for warm-up.
const WARM_UP: u64 = 10;

/// Order of the requested lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Random lines of the whole node, as a Poisson process.
    Random,
    /// Consecutive lines, as a Poisson process.
    Sequential,
    /// Random lines of the whole node, each requested when the previous one has arrived: a pointer chase.
    Chase,
}

/// Load of an open loop, or of a chase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Order of the lines.
    pub pattern: Pattern,
    /// Share of reads among requests, 0 to 1; a chase only reads.
    pub read_share: f64,
    /// Offered load as a share of the target's peak for this share of reads, above 0; may exceed 1. Ignored
    /// by a chase.
    pub share_of_peak: f64,
    /// Number of requests, including a tenth for warm-up.
    pub requests: u64,
    /// Seed of lines and arrival times.
    pub seed: u64,
}

/// Load of a closed loop: each arrival of a read's line starts the next one. Writes are posted with the read
/// after them, and are not in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InFlight {
    /// Whether lines are consecutive; else random ones of the whole node.
    pub sequential: bool,
    /// Share of reads among requests, above 0, up to 1.
    pub read_share: f64,
    /// Reads in flight, at least 1.
    pub reads: u32,
    /// Number of requests, including a tenth for warm-up.
    pub requests: u64,
    /// Seed of lines.
    pub seed: u64,
}

/// Probes a node of a checked machine, without caches and links.
pub fn probe(node: &Node, load: Load) -> ProbePoint {
    Target::node(node).probe(load)
}

impl Target<'_> {
    /// Probes it with an open loop, or a chase.
    pub fn probe(self, load: Load) -> ProbePoint {
        let Load { pattern, read_share, share_of_peak, requests, seed } = load;
        let lines = self.at_end().lines();
        if pattern == Pattern::Chase {
            return closed_loop(self.idle(), &mut Source::new(seed, false, 1.0, lines), 1, requests)
                .point(&self.at_end().energy);
        }
        let mut source = Source::new(seed, pattern == Pattern::Sequential, read_share, lines);
        let rate = Bandwidth(self.peak(read_share).as_mbps() * share_of_peak);
        open_loop(self.idle(), &mut source, rate, requests).point(&self.at_end().energy)
    }

    /// Probes it with a closed loop.
    ///
    /// # Panics
    /// If no read is in flight, or the share of reads is 0.
    pub fn probe_in_flight(self, load: InFlight) -> ProbePoint {
        assert!(load.reads > 0 && load.read_share > 0.0, "a closed loop waits for reads: {load:?}");
        let mut source = Source::new(load.seed, load.sequential, load.read_share, self.at_end().lines());
        closed_loop(self.idle(), &mut source, load.reads, load.requests).point(&self.at_end().energy)
    }
}
