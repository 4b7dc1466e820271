//! Write bandwidth, which ordinary stores cannot show alone: each reads its line first.

use super::figure::Figure;

/// Bandwidth of writes over that of reads above which the two mostly overlap.
pub const MOST_WRITES_PER_READ: f64 = 4.0;

/// Bandwidth of writes alone, in MB/s, from streams with their shares of reads; the stream with the most
/// writes counts. Assumes that reads and writes alternate, as machine files do. `None` where they mostly
/// overlap: the result would exceed [`MOST_WRITES_PER_READ`] times
/// the read bandwidth.
pub fn write_mbps(streams: &[(f64, Figure)]) -> Option<f64> {
    let (_, alone) = streams.iter().find(|(reads, _)| *reads == 1.0)?;
    let (reads, mixed) =
        streams.iter().filter(|(reads, _)| *reads < 1.0).min_by(|a, b| a.0.total_cmp(&b.0))?;
    let time = (1.0 / mixed.median - reads / alone.median) / (1.0 - reads);
    (time * MOST_WRITES_PER_READ > 1.0 / alone.median).then(|| 1.0 / time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(median: f64) -> Figure {
        Figure { median, least: median, spread: 0.0 }
    }

    #[test]
    fn write_bandwidth_assumes_alternation_with_reads() {
        // 1 / (0.5 / 4000 + 0.5 / 1000) = 1600.
        let found = write_mbps(&[(1.0, figure(4000.0)), (0.75, figure(2500.0)), (0.5, figure(1600.0))]);
        assert!(found.is_some_and(|mbps| (mbps - 1000.0).abs() < 1e-6), "{found:?}");
        assert_eq!(write_mbps(&[(1.0, figure(4000.0))]), None);
        let both_at_once = write_mbps(&[(1.0, figure(4000.0)), (0.5, figure(8000.0))]);
        assert_eq!(both_at_once, None);
    }
}
