//! Traffic over time.

use serde::{Deserialize, Serialize};

/// Initial length of an interval, and maximum number of intervals.
const SHORTEST_NS: u64 = 1_000_000;
const MOST: u64 = 200;

/// Bytes moved by each node, in intervals of equal length. The number of intervals is bounded: longer runs
/// merge pairs of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of an interval in ns.
    pub interval_ns: u64,
    /// By interval, then by node. The last interval may be incomplete.
    pub bytes: Vec<Vec<u64>>,
    /// Totals at the last [`Timeline::record`].
    #[serde(skip)]
    counted: Vec<u64>,
}

impl Timeline {
    /// Starts from these totals, in bytes per node.
    pub fn new(counted: Vec<u64>) -> Timeline {
        Timeline { interval_ns: SHORTEST_NS, bytes: Vec::new(), counted }
    }

    /// Records totals in bytes per node, `at_ns` after the start. The increase since the previous call goes
    /// to the current interval.
    pub fn record(&mut self, at_ns: u64, counted: Vec<u64>) {
        while at_ns > self.interval_ns * MOST {
            self.halve();
        }
        let interval = (at_ns.saturating_sub(1) / self.interval_ns) as usize;
        if self.bytes.len() <= interval {
            self.bytes.resize(interval + 1, vec![0; counted.len()]);
        }
        let pairs = counted.iter().zip(&self.counted);
        for (bytes, (now, before)) in self.bytes[interval].iter_mut().zip(pairs) {
            *bytes += now - before;
        }
        self.counted = counted;
    }

    fn halve(&mut self) {
        self.interval_ns *= 2;
        let two = |pair: &[Vec<u64>]| {
            let sum = |node: usize| pair.iter().map(|bytes| bytes[node]).sum();
            (0..pair[0].len()).map(sum).collect()
        };
        self.bytes = self.bytes.chunks(2).map(two).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_to_their_interval_without_loss() {
        let mut line = Timeline::new(vec![5, 0]);
        line.record(200_000, vec![15, 1]);
        line.record(1_000_000, vec![20, 1]);
        line.record(1_000_001, vec![27, 3]);
        line.record(3_500_000, vec![28, 3]);
        assert_eq!(
            (line.interval_ns, &line.bytes[..]),
            (1_000_000, &[vec![15, 1], vec![7, 2], vec![0, 0], vec![1, 0]][..])
        );
    }

    #[test]
    fn long_run_merges_intervals() {
        let mut line = Timeline::new(vec![0]);
        (1..=1_000).for_each(|n| line.record(n * 900_000, vec![n]));
        assert_eq!(line.interval_ns, 8_000_000);
        assert!(
            line.bytes.len() as u64 <= MOST && line.bytes.len() as u64 > MOST / 2,
            "{}",
            line.bytes.len()
        );
        assert_eq!(line.bytes.iter().flatten().sum::<u64>(), 1_000);
        // 8 ms hold eight or nine notes, 0.9 ms apart.
        assert!(
            line.bytes[..line.bytes.len() - 1].iter().all(|bytes| (8..=9).contains(&bytes[0])),
            "{:?}",
            line.bytes
        );
        line.record(1 << 50, vec![1_001]);
        assert!(line.bytes.len() as u64 <= MOST, "however long nothing happens");
    }
}
