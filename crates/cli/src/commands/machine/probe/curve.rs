//! Which loads show the shape of a loaded-latency curve.

/// Loads of every curve, as shares of the cap.
pub const FIRST: [f64; 7] = [0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95];

/// How often the curve is refined, and loads that each refinement adds at most.
pub const REFINEMENTS: usize = 2;
const ADDED: usize = 3;

/// Rise of the latency from a load to the next one that is drawn without another between them.
const RISE: f64 = 1.15;

/// Loads closer than this are not refined.
const APART: f64 = 0.02;

/// Loads between those of a curve, in the middle of the steepest rises. `curve` has loads, which rise, and
/// mean latencies.
pub fn bends(curve: &[(f64, f64)]) -> Vec<f64> {
    let mut steep: Vec<(f64, f64)> = curve
        .windows(2)
        .filter(|pair| pair[1].0 - pair[0].0 > APART && pair[1].1 > RISE * pair[0].1)
        .map(|pair| (pair[1].1 / pair[0].1, (pair[0].0 + pair[1].0) / 2.0))
        .collect();
    steep.sort_by(|a, b| b.0.total_cmp(&a.0));
    steep.truncate(ADDED);
    // Whole thousandths print as what they are.
    steep.into_iter().map(|(_, load)| (load * 1000.0).round() / 1000.0).collect()
}

/// The rate at which a curve of rates and mean latencies reaches twice the idle latency, by linear
/// interpolation; `None` if it does not.
pub fn doubles_at(curve: &[(f64, f64)], idle_ns: f64) -> Option<f64> {
    let wanted = 2.0 * idle_ns;
    let pair = curve.windows(2).find(|pair| pair[0].1 < wanted && pair[1].1 >= wanted)?;
    let [(low, low_ns), (high, high_ns)] = [pair[0], pair[1]];
    Some(low + (high - low) * (wanted - low_ns) / (high_ns - low_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steepest_rises_are_refined_first_and_flat_or_narrow_ones_not() {
        let curve = [(0.05, 100.0), (0.4, 101.0), (0.8, 140.0), (0.9, 300.0), (0.95, 301.0), (0.96, 900.0)];
        assert_eq!(bends(&curve), [0.85, 0.6]);
        assert!(bends(&curve[..2]).is_empty() && bends(&[]).is_empty());
        // As in M/M/1, the rises are towards the cap; three are equal.
        let wait = |load: f64| 50.0 + 50.0 * load / (1.0 - load);
        let mut loads = bends(&FIRST.map(|load| (load, wait(load))));
        loads.sort_by(f64::total_cmp);
        assert_eq!(loads, [0.7, 0.85, 0.925]);
    }

    #[test]
    fn doubling_is_interpolated() {
        let curve = [(10.0, 100.0), (20.0, 150.0), (30.0, 250.0)];
        assert_eq!(doubles_at(&curve, 100.0), Some(25.0));
        assert_eq!(doubles_at(&curve, 130.0), None);
        assert_eq!(doubles_at(&[], 130.0), None);
    }
}
