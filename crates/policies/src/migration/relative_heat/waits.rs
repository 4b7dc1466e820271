//! How long accesses to slow memory wait at different times.
//!
//! While programs load slow memory, each access to it waits far longer than at other times, and one to a page
//! of fast memory would, too, if that page were there. Means over an epoch do not show it. So each sample, of
//! whatever node, counts by how long those of slow memory waited at its time.
//!
//! ```text
//!   slow   .. . .. |:||:|||:.|.. . .   each sample's wait
//!   group  |  0.3  |  2.1   |  0.4 |   mean of at least 16, relative to all
//!   fast    x    x     x   x      x    each counts by the group of its time
//! ```

use std::collections::BTreeMap;

use memtide_core::{NodeId, Time};

use super::sampled::Fresh;

/// Minimum samples of slow memory whose mean wait is taken for that of their time.
const GROUP: usize = 16;

/// Minimum samples of a node since the last decision, and their mean wait in ns, to compare waits by.
const SAMPLES_MIN: u32 = 30;
const MEAN_MIN_NS: f32 = 20.0;

/// Successive samples of slow memory.
struct Group {
    last: Time,
    /// Mean wait, relative to all samples of the same nodes.
    wait: f32,
}

/// Multiplies the accesses that each of these samples counts as by how long those of slow memory waited at
/// its time, relative to the mean. Faster if they are in order of time.
pub(super) fn correct(samples: &mut [Fresh]) {
    let groups = groups_of(samples);
    let Some(last) = groups.len().checked_sub(1) else { return };
    let mut at = 0;
    for sample in samples {
        let is_before = |group: &Group| group.last < sample.time;
        let is_right = (at == 0 || is_before(&groups[at - 1])) && (at == last || !is_before(&groups[at]));
        if !is_right {
            at = groups.partition_point(is_before).min(last);
        }
        sample.accesses *= groups[at].wait;
    }
}

/// Groups of samples of slow memory, by time. Those of one time are in one group.
fn groups_of(samples: &[Fresh]) -> Vec<Group> {
    let means_ns = means_of(samples);
    let relative = |sample: &Fresh| {
        let mean_ns = means_ns.get(&sample.node)?;
        Some((sample.time, sample.wait_ns()? / mean_ns))
    };
    let mut waits: Vec<(Time, f32)> = samples.iter().filter_map(relative).collect();
    waits.sort_by_key(|&(time, _)| time);
    let mut groups = Vec::new();
    let mut left = &waits[..];
    while let Some(&(last, _)) = left.get(GROUP - 1).or(left.last()) {
        let number = match left.partition_point(|&(time, _)| time <= last) {
            number if left.len() - number < GROUP => left.len(),
            number => number,
        };
        let (own, later) = left.split_at(number);
        let sum: f32 = own.iter().map(|&(_, wait)| wait).sum();
        groups.push(Group { last: own[number - 1].0, wait: sum / number as f32 });
        left = later;
    }
    groups
}

/// Mean wait of the samples of each node that has enough of them, and waits to speak of.
fn means_of(samples: &[Fresh]) -> BTreeMap<NodeId, f32> {
    let mut sums: BTreeMap<NodeId, (u32, f64)> = BTreeMap::new();
    for sample in samples {
        if let Some(ns) = sample.wait_ns() {
            let (number, sum_ns) = sums.entry(sample.node).or_default();
            (*number, *sum_ns) = (*number + 1, *sum_ns + f64::from(ns));
        }
    }
    let means = sums.into_iter().filter(|(_, (number, _))| *number >= SAMPLES_MIN);
    let means = means.map(|(node, (number, sum_ns))| (node, (sum_ns / f64::from(number)) as f32));
    means.filter(|(_, mean_ns)| *mean_ns >= MEAN_MIN_NS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: NodeId = NodeId(0);
    const SLOW: NodeId = NodeId(1);

    /// What each of these samples counts as once they are corrected.
    fn corrected(samples: impl IntoIterator<Item = Fresh>) -> Vec<f32> {
        let mut samples: Vec<Fresh> = samples.into_iter().collect();
        correct(&mut samples);
        samples.iter().map(|sample| sample.accesses).collect()
    }

    /// Samples of the slow node, one in a microsecond from that one on.
    fn slow(from_us: u64, wait_ns: f32, number: u64) -> impl Iterator<Item = Fresh> {
        (0..number).map(move |at| Fresh::new(Time::from_us(from_us + at), SLOW, Some(wait_ns)))
    }

    #[test]
    fn samples_of_all_nodes_count_by_waits_at_their_time() {
        // The mean is 200 ns.
        let long = slow(500, 1100.0, 16);
        let short = slow(100, 100.0, 144);
        let fast = [0, 99, 200, 501, 900].map(|us| Fresh::new(Time::from_us(us), FAST, None));
        let after = corrected(fast.into_iter().chain(long).chain(short));
        assert_eq!(after[..5], [0.5, 0.5, 0.5, 5.5, 5.5]);
        assert!(after[5..21].iter().all(|&of| of == 5.5), "{after:?}");
        assert!(after[21..].iter().all(|&of| of == 0.5), "{after:?}");
    }

    #[test]
    fn own_wait_does_not_change_what_a_sample_counts_as() {
        let slow = (0..320).map(|at| {
            let wait_ns = if at % 16 == 5 { 1700.0 } else { 100.0 };
            Fresh::new(Time::from_us(at), SLOW, Some(wait_ns))
        });
        let after = corrected(slow);
        assert!(after.iter().all(|accesses| (accesses - 1.0).abs() < 1e-5), "{after:?}");
    }

    #[test]
    fn each_group_has_enough_samples_and_all_of_its_times() {
        for number in SAMPLES_MIN.into()..400 {
            let last = Fresh::new(Time::from_us(number), SLOW, Some(1600.0));
            let after = corrected(slow(0, 100.0, number - 1).chain([last]));
            let mean = (100.0 * (number - 1) as f32 + 1600.0) / number as f32;
            let most = (100.0 + 1500.0 / GROUP as f32) / mean;
            assert!(after.iter().all(|&of| of <= most + 1e-3), "{number}: {after:?}");
        }
        // A host that does not know their times better.
        let waits =
            (0..100).map(|at| Fresh::new(Time::ZERO, SLOW, Some(if at < 20 { 900.0 } else { 100.0 })));
        let after = corrected(waits);
        assert!(after.iter().all(|accesses| (accesses - 1.0).abs() < 1e-5), "{after:?}");
    }

    #[test]
    fn samples_are_compared_with_those_of_their_node() {
        let far = (0..50).map(|us| Fresh::new(Time::from_us(us), NodeId(2), Some(800.0)));
        let after = corrected(slow(50, 160.0, 50).chain(far));
        assert!(after.iter().all(|accesses| (accesses - 1.0).abs() < 1e-6), "{after:?}");
    }

    #[test]
    fn few_or_short_waits_say_nothing() {
        let all_count_as_before = |after: Vec<f32>| after.iter().all(|&accesses| accesses == 1.0);
        assert!(all_count_as_before(corrected(slow(0, 900.0, 14).chain(slow(900, 50.0, 15)))));
        assert!(all_count_as_before(corrected(slow(0, 0.0, 99).chain(slow(200, 1900.0, 1)))));
        assert!(corrected([]).is_empty());
    }
}
