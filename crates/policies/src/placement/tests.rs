use proptest::prelude::*;

use super::ALL;
use crate::testing::{Full, N, Toucher, bmpm, cpu_of, first, full, machine, node, rule};
use memtide_core::policy::Spill;
use memtide_core::{Machine, NodeId, TierId};

/// Number of pages by tier.
fn by_tier(machine: &Machine, nodes: &[u8]) -> Vec<usize> {
    let mut pages = vec![0; machine.tiers()];
    for &n in nodes {
        pages[machine.tier_of(NodeId(n)).index()] += 1;
    }
    pages
}

/// Each value repeated `count` times.
fn runs(of: &[(u8, usize)]) -> Vec<u8> {
    of.iter().flat_map(|&(value, count)| std::iter::repeat_n(value, count)).collect()
}

#[test]
fn bw_interleave_gives_exactly_d_pages_to_dram_and_then_n_to_nvm() {
    for (ratio, d, n) in [(2.0, 2, 1), (5.0, 5, 1), (10.0, 10, 1), (1.5, 3, 2)] {
        for socket in [0, 1] {
            let expected = runs(&[(0, d), (1, n), (0, d), (1, n), (0, d), (1, n)]);
            assert_eq!(
                first("bw-interleave", &bmpm(ratio), socket, expected.len()),
                expected,
                "ratio {ratio}"
            );
        }
    }
}

#[test]
fn bw_interleave_counts_per_thread() {
    let m = bmpm(2.0);
    let (mut one, mut two) = (Toucher::new("bw-interleave", &m, 1), Toucher::new("bw-interleave", &m, 2));
    let free = Full::default();
    assert_eq!(one.nodes(cpu_of(0), &free, 2), [0, 0]);
    assert_eq!(two.nodes(cpu_of(0), &free, 4), [0, 0, 1, 0]);
    assert_eq!(one.nodes(cpu_of(0), &free, 2), [1, 0]);
}

#[test]
fn bw_interleave_alternates_inside_a_tier() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 0, 10e3), node(1, 1, 10e3)]);
    assert_eq!(first("bw-interleave", &m, 1, 9), [0, 1, 2, 0, 1, 3, 0, 1, 2]);
}

#[test]
fn bw_local_starts_in_the_threads_own_tier() {
    let m = bmpm(5.0);
    assert_eq!(first("bw-local", &m, 0, 12), runs(&[(0, 5), (1, 1), (0, 5), (1, 1)]));
    assert_eq!(first("bw-local", &m, 1, 12), runs(&[(1, 1), (0, 5), (1, 1), (0, 5)]));
    assert_eq!(first("bw-local", &bmpm(1.5), 1, 10), runs(&[(1, 2), (0, 3), (1, 2), (0, 3)]));
}

#[test]
fn bw_local_counts_per_tier_that_the_thread_is_in() {
    let m = bmpm(2.0);
    let (mut thread, free) = (Toucher::new("bw-local", &m, 0), Full::default());
    assert_eq!(thread.nodes(cpu_of(0), &free, 1), [0]);
    assert_eq!(thread.nodes(cpu_of(1), &free, 2), [1, 0]);
    assert_eq!(thread.nodes(cpu_of(0), &free, 2), [0, 1]);
    assert_eq!(thread.nodes(cpu_of(1), &free, 2), [0, 1]);
}

#[test]
fn bw_local_takes_the_nearest_node_of_a_tier() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 0, 10e3), node(1, 1, 10e3)]);
    assert_eq!(first("bw-local", &m, 0, 6), [0, 0, 2, 0, 0, 2]);
    assert_eq!(first("bw-local", &m, 1, 6), [1, 1, 3, 1, 1, 3]);
}

#[test]
fn bw_random_draws_tier_and_node() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 0, 10e3), node(1, 1, 10e3)]);
    let nodes = first("bw-random", &m, 0, 60_000);
    for (n, expected) in [(0, 20e3), (1, 20e3), (2, 10e3), (3, 10e3)] {
        let got = nodes.iter().filter(|&&x| x == n).count() as f64;
        assert!((got - expected).abs() < 5.0 * libm::sqrt(expected), "node {n}: {got} of {expected}");
    }
    assert_ne!(nodes[..600], nodes[600..1200], "no cycle");
}

#[test]
fn shares_of_three_tiers_are_their_bandwidths() {
    let m = machine(&[node(0, 0, 60e3), node(1, 0, 30e3), node(2, 1, 10e3)]);
    assert_eq!(first("bw-interleave", &m, 0, 10), runs(&[(0, 6), (1, 3), (2, 1)]));
    assert_eq!(first("bw-local", &m, 1, 20), runs(&[(2, 1), (0, 6), (1, 3), (2, 1), (0, 6), (1, 3)]));
}

#[test]
fn tier_bandwidth_is_sum_of_its_nodes() {
    let m = machine(&[node(0, 0, 10e3), node(0, 1, 10e3), node(0, 2, 10e3), node(1, 0, 10e3)]);
    assert_eq!(by_tier(&m, &first("bw-interleave", &m, 0, 400)), [300, 100]);
}

#[test]
fn local_takes_own_node_then_nearest_with_free_memory() {
    let m = machine(&[node(0, 0, 20e3), N { read_ns: 300.0, ..node(1, 1, 5e3) }, node(0, 2, 20e3)]);
    assert_eq!(first("local", &m, 1, 2), [1, 1]);
    assert_eq!(first("local", &m, 2, 1), [2]);
    assert_eq!(Toucher::new("local", &m, 0).nodes(cpu_of(2), &full(&[2]), 2), [1, 1]);
    assert_eq!(Toucher::new("local", &m, 0).nodes(cpu_of(2), &full(&[2, 1]), 1), [0]);
    assert_eq!(Toucher::new("local", &m, 0).nodes(cpu_of(2), &full(&[0, 1, 2]), 1), [99]);
}

#[test]
fn interleave_gives_each_node_the_same_in_node_order() {
    let m = machine(&[node(0, 0, 20e3), node(1, 1, 5e3), node(0, 1, 20e3)]);
    assert_eq!(first("interleave", &m, 1, 7), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(Toucher::new("interleave", &m, 0).nodes(cpu_of(0), &full(&[1]), 4), [0, 2, 2, 0]);
}

#[test]
fn fast_only_never_leaves_the_fastest_tier() {
    let m = machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 0, 5e3)]);
    assert_eq!(first("fast-only", &m, 1, 2), [1, 1]);
    assert_eq!(Toucher::new("fast-only", &m, 0).nodes(cpu_of(1), &full(&[1]), 2), [0, 0]);
    assert_eq!(Toucher::new("fast-only", &m, 0).nodes(cpu_of(1), &full(&[0, 1]), 1), [99]);
}

/// Two sockets with DRAM each, an expander on the first, and NVM on the second.
fn four() -> Machine {
    machine(&[node(0, 0, 20e3), node(0, 1, 20e3), node(1, 0, 5e3), node(2, 1, 5e3)])
}

#[test]
fn bind_never_leaves_its_nodes_and_refuses_when_they_are_full() {
    let m = four();
    assert_eq!(first("bind:node=n2", &m, 1, 3), [2, 2, 2]);
    assert_eq!(first("bind:node=n3:n2", &m, 0, 2), [2, 2], "the nearest of them");
    assert_eq!(first("bind:node=n3:n2", &m, 1, 2), [3, 3]);
    assert_eq!(Toucher::new("bind:node=n3:n2", &m, 0).nodes(cpu_of(0), &full(&[2]), 2), [3, 3]);
    let mut bound = Toucher::new("bind:node=n3:n2", &m, 0);
    assert_eq!(bound.nodes(cpu_of(0), &full(&[2, 3]), 2), [99, 99]);
    assert_eq!(bound.rule.spill, Spill::Refuse);
    assert_eq!(first("bind", &m, 1, 2), [1, 1], "the fastest tier");
}

#[test]
fn preferred_spills_to_node_nearest_to_cpu() {
    let m = four();
    assert_eq!(first("preferred:node=n2", &m, 1, 3), [2, 2, 2]);
    let nodes =
        |policy: &str, socket, full: &Full| Toucher::new(policy, &m, 0).nodes(cpu_of(socket), full, 2);
    assert_eq!(nodes("preferred:node=n2", 0, &full(&[2])), [0, 0]);
    assert_eq!(nodes("preferred:node=n2", 1, &full(&[2])), [1, 1]);
    assert_eq!(nodes("preferred:node=n2", 1, &full(&[1, 2])), [3, 3]);
    assert_eq!(nodes("preferred:node=n2:n3", 1, &full(&[3])), [2, 2], "the other preferred node first");
    assert_eq!(nodes("preferred:node=n0:n1:n2:n3", 1, &full(&[1])), [3, 3], "all nodes: as `local`");
    assert_eq!(nodes("preferred", 1, &full(&[0, 1])), [3, 3], "the fastest tier, then the others");
    assert_eq!(nodes("preferred", 1, &full(&[0, 1, 2, 3])), [99, 99]);
}

#[test]
fn unknown_node_is_refused_with_the_known_ones() {
    for policy in ["bind", "preferred"] {
        let parsed = crate::parse(&format!("{policy}:node=n1:cxl")).unwrap();
        assert_eq!(
            parsed.placement(&four()).err().unwrap().to_string(),
            format!("policy '{policy}' on machine 'test': there is no node 'cxl'; nodes: n0, n1, n2, n3")
        );
    }
}

#[test]
fn ratio_defaults_to_four_dram_pages_per_nvm_page() {
    let m = bmpm(2.0);
    assert_eq!(by_tier(&m, &first("ratio", &m, 1, 1000)), [800, 200]);
    assert_eq!(first("ratio:weights=2:3", &m, 1, 5), [0, 0, 1, 1, 1]);
    let three = machine(&[node(0, 0, 9e3), node(1, 0, 9e3), node(2, 0, 9e3)]);
    assert_eq!(by_tier(&three, &first("ratio", &three, 0, 600)), [400, 100, 100]);
    assert_eq!(first("ratio", &machine(&[node(0, 0, 9e3)]), 0, 3), [0, 0, 0]);
    let one = machine(&[node(0, 0, 9e3)]);
    for (weights, machine, says) in [
        ("2:3", &three, "2 weights for 3 tiers"),
        ("2", &three, "1 weight for 3 tiers"),
        ("2:3", &one, "2 weights for 1 tier"),
    ] {
        let policy = crate::parse(&format!("ratio:weights={weights}")).unwrap();
        assert_eq!(
            policy.placement(machine).err().unwrap().to_string(),
            format!("policy 'ratio' on machine 'test': {says}; give one for each tier, fastest first")
        );
    }
}

/// hinuma's testbed: NVM's reads take twice as long as DRAM's, its writes eight times, at half the bandwidth.
fn hinuma() -> Machine {
    let nvm = N { read_ns: 160.0, write_ns: 640.0, ..node(1, 1, 8500.0) };
    machine(&[node(0, 0, 17_000.0), nvm])
}

#[test]
fn low_latency_places_by_equation_4() {
    let m = hinuma();
    for (policy, dram, nvm) in [
        ("low-latency:read-share=1", 2, 1),
        ("low-latency:read-share=0", 8, 1),
        ("low-latency:read-share=0.5", 5, 1),
        ("low-latency", 19, 5), // 0.7 x 2 + 0.3 x 8 = 3.8
    ] {
        assert_eq!(first(policy, &m, 0, dram + nvm), runs(&[(0, dram), (1, nvm)]), "{policy}");
    }
}

#[test]
fn low_latency_takes_the_mean_latency_of_a_tier() {
    let (quick, slow) = (N { read_ns: 120.0, ..node(1, 0, 9e3) }, N { read_ns: 200.0, ..node(1, 1, 9e3) });
    let m = machine(&[node(0, 0, 9e3), quick, slow]);
    assert_eq!(by_tier(&m, &first("low-latency:read-share=1", &m, 0, 300)), [200, 100]);
}

#[test]
fn hi_bandwidth_places_by_equation_5_with_dram_first() {
    assert_eq!(first("hi-bandwidth", &hinuma(), 1, 6), [0, 0, 1, 0, 0, 1]);
}

#[test]
fn threshold_is_consecutive_dram_pages() {
    let m = hinuma();
    assert_eq!(
        first("hi-bandwidth:threshold=100", &m, 0, 300),
        runs(&[(0, 100), (1, 50), (0, 100), (1, 50)])
    );
    assert_eq!(first("low-latency:read-share=1:threshold=4", &m, 0, 6), runs(&[(0, 4), (1, 2)]));
}

#[test]
fn hinuma_policies_take_nearest_free_node_then_other_group() {
    let m = machine(&[node(0, 0, 10e3), node(0, 1, 10e3), node(1, 0, 5e3), node(1, 1, 5e3)]);
    for policy in ["hi-bandwidth", "low-latency:read-share=1"] {
        let pages = |full: &Full, count| Toucher::new(policy, &m, 0).nodes(cpu_of(1), full, count);
        let dram: Vec<u8> = pages(&full(&[]), 20).into_iter().filter(|&n| n < 2).collect();
        assert!(dram.iter().all(|&n| n == 1));
        assert_eq!(pages(&full(&[1]), 1), [0], "the other DRAM node before any NVM");
        assert_eq!(pages(&full(&[0, 1]), 20), [3; 20], "no free DRAM: the NVM node nearest by");
        assert_eq!(pages(&full(&[2, 3]), 20), [1; 20]);
        assert_eq!(pages(&full(&[0, 1, 2, 3]), 1), [99], "all full: reclaim");
    }
}

prop_compose! {
    fn any_node()(
        tier in 0..4u8,
        socket in 0..3u16,
        power in 0.0..2.0f64,
        read_ns in 50.0..900.0f64,
        times in 1.0..9.0f64,
    ) -> N {
        N { tier, socket, mbps: 1e3 * libm::exp10(power), read_ns, write_ns: read_ns * times }
    }
}

/// A machine with 1 to 4 tiers, numbered without gaps, of about 1 to 3 nodes each.
fn any_machine() -> impl Strategy<Value = Machine> {
    prop::collection::vec(any_node(), 1..9).prop_map(|mut nodes| {
        let mut present: Vec<u8> = nodes.iter().map(|n| n.tier).collect();
        present.sort_unstable();
        present.dedup();
        for n in &mut nodes {
            n.tier = present.iter().position(|&tier| tier == n.tier).unwrap() as u8;
        }
        machine(&nodes)
    })
}

/// Maximum difference between a tier's shares of pages and of bandwidth, for a thread that switches sockets
/// at a fixed interval of pages.
fn worst_share(policy: &str, m: &Machine, pages: usize, stay: usize) -> f64 {
    let mut thread = Toucher::new(policy, m, 7);
    let nodes: Vec<u8> = (0..pages)
        .map(|page| thread.touch(cpu_of((page / stay) as u16 % 3), &Full::default()).unwrap().0)
        .collect();
    let placed = by_tier(m, &nodes);
    let mbps: Vec<f64> = (0..m.tiers()).map(|t| m.tier_bandwidth(TierId::from(t)).as_mbps()).collect();
    let total: f64 = mbps.iter().sum();
    let shares = placed.iter().map(|&n| n as f64 / pages as f64);
    shares.zip(&mbps).map(|(share, mbps)| (share - mbps / total).abs()).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn page_goes_to_node_of_rule_with_free_memory(
        m in any_machine(),
        entry in prop::sample::select(ALL.iter().map(|e| e.info.name).collect::<Vec<_>>()),
        steps in prop::collection::vec((0..12u16, prop::collection::btree_set(0..9u8, 0..9)), 1..60),
    ) {
        let mut thread = Toucher::new(entry, &m, 3);
        for (cpu, full) in steps {
            let full = Full(full.into_iter().map(NodeId).collect());
            let allowed: Vec<NodeId> = m.node_ids().filter(|&n| thread.rule.allows(n)).collect();
            match thread.touch(memtide_core::CpuId(cpu), &full) {
                Some(n) => prop_assert!(allowed.contains(&n) && !full.0.contains(&n)),
                None => prop_assert!(allowed.iter().all(|n| full.0.contains(n))),
            }
        }
    }

    #[test]
    fn every_rule_has_each_node_at_most_once_and_all_unless_it_binds(m in any_machine()) {
        for entry in ALL {
            let mut nodes: Vec<NodeId> =
                rule(entry.info.name, &m).groups.iter().flat_map(|g| g.nodes.clone()).collect();
            nodes.sort_unstable();
            let expected: Vec<NodeId> = match entry.info.name {
                "fast-only" | "bind" => m.nodes_in(TierId(0)).collect(),
                _ => m.node_ids().collect(),
            };
            prop_assert_eq!(nodes, expected);
        }
    }

    #[test]
    fn shares_are_within_one_per_cent_of_the_bandwidths_after_10_000_pages(m in any_machine()) {
        for policy in ["bw-interleave", "hi-bandwidth", "bw-local"] {
            let worst = worst_share(policy, &m, 10_000, 10_000);
            prop_assert!(worst < 0.01, "{}: {}", policy, worst);
        }
    }

    #[test]
    fn migrating_thread_is_off_by_part_of_a_cycle_per_tier(m in any_machine()) {
        prop_assert!(worst_share("bw-local", &m, 10_000, 1000) < 3.0 * 0.01);
    }

    #[test]
    fn random_shares_match_bandwidths_statistically(m in any_machine()) {
        let five_sigma = 5.0 * 0.005;
        prop_assert!(worst_share("bw-random", &m, 10_000, 10_000) < 0.01 + five_sigma);
    }

    #[test]
    fn local_takes_first_free_node_in_link_order(
        m in any_machine(),
        cpu in 0..12u16,
        full in prop::collection::btree_set(0..9u8, 0..9),
    ) {
        let (cpu, full) = (memtide_core::CpuId(cpu), Full(full.into_iter().map(NodeId).collect()));
        let from = m.initiator_of(cpu);
        let nearest = m
            .node_ids()
            .filter(|n| !full.0.contains(n))
            .min_by_key(|&n| (m.topology.link_latency(from, n), m.idle_latency(from, n), n));
        let own = m.nearest_nodes(cpu)[0];
        let got = Toucher::new("local", &m, 0).touch(cpu, &full);
        if m.nodes[own.index()].initiator.as_deref() == Some(m.initiators[from.index()].name.as_str()) {
            prop_assert_eq!(got, nearest);
        } else {
            prop_assert_eq!(got.is_some(), nearest.is_some());
        }
    }
}

#[test]
fn bw_random_is_within_one_per_cent_after_many_pages() {
    let m = machine(&[node(0, 0, 60e3), node(1, 0, 31e3), node(2, 1, 9e3)]);
    assert!(worst_share("bw-random", &m, 250_000, 1000) < 0.01);
}
