//! Probes of paths: closed forms, and sanity on every bundled machine.

use memtide_core::machine::{Node, bundled};
use memtide_core::{InitiatorId, LINE_BYTES, Machine, NodeId};
use memtide_memory::probe::{InFlight, Load, Pattern, Target, probe};

/// A socket with an attached node, and a second socket from which a link leads to it.
fn linked(node: &str, link_ns: f64, link_mbps: f64) -> Machine {
    let text = format!(
        "name = 'm'\nsummary = 'made for a test'\nsources = {{ default = 'assumed: made for a test' }}\n\
         [core]\nclock_mhz = 1000\ninstructions_per_cycle = 4\nreorder_buffer = 224\n\
         outstanding_misses = 12\n\
         [[cache]]\nname = 'L1'\ncapacity_kib = 32\nways = 8\nlatency_cycles = 20\n\
         [[initiator]]\nname = 'near'\ncpus = 1\n[[initiator]]\nname = 'far'\ncpus = 1\n\
         [[node]]\nname = 'n'\ntier = 0\ncapacity_mib = 1024\ninitiator = 'near'\n{node}\n\
         [[link]]\nbetween = ['near', 'far']\nlatency_ns = {link_ns}\nbandwidth_mbps = {link_mbps}\n"
    );
    Machine::parse("m.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

const FAST: &str = "[node.energy]\nread_nj = 2\nwrite_nj = 3\nstandby_mw = 10\n\
    [node.fixed]\nread_latency_ns = 100\nread_bandwidth_mbps = 1000000";

const NODE: NodeId = NodeId(0);
const NEAR: InitiatorId = InitiatorId(0);
const FAR: InitiatorId = InitiatorId(1);

fn load(read_share: f64, share_of_peak: f64) -> Load {
    Load { pattern: Pattern::Random, read_share, share_of_peak, requests: 200_000, seed: 7 }
}

fn in_flight(reads: u32, read_share: f64) -> InFlight {
    InFlight { sequential: false, read_share, reads, requests: 100_000, seed: 7 }
}

#[track_caller]
fn near(what: &str, got: f64, expected: f64, share: f64) {
    assert!((got / expected - 1.0).abs() <= share, "{what}: {got}, expected {expected}");
}

/// Each machine with its paths, one of each kind of node and route.
fn bundled_paths() -> Vec<(Machine, Vec<(InitiatorId, NodeId)>)> {
    let mut seen: Vec<(Node, Vec<(f64, f64)>)> = Vec::new();
    let machines = bundled::names().into_iter().map(|name| bundled::machine(name).unwrap().unwrap());
    let mut all = Vec::new();
    for machine in machines {
        let mut paths = Vec::new();
        for from in (0..machine.initiators.len()).map(InitiatorId::from) {
            for to in machine.node_ids() {
                let node = Node { name: String::new(), initiator: None, ..machine.nodes[to.index()].clone() };
                let hops = machine.topology.hops(from, to).iter().map(|hop| &machine.links[hop.link]);
                let kind = (node, hops.map(|link| (link.latency_ns, link.bandwidth_mbps)).collect());
                if !seen.contains(&kind) {
                    seen.push(kind);
                    paths.push((from, to));
                }
            }
        }
        all.push((machine, paths));
    }
    all
}

#[test]
fn littles_law_holds_in_a_closed_loop() {
    let machine = bundled::machine("ddr4-2400").unwrap().unwrap();
    for reads in [1, 2, 5, 16, 64, 200] {
        let point = Target::path(&machine, NEAR, NODE).probe_in_flight(in_flight(reads, 1.0));
        let lines_per_ns = point.achieved.as_mbps() / 1e3 / LINE_BYTES as f64;
        near("reads in flight", lines_per_ns * point.mean_ns, reads.into(), 0.01);
        assert!(!point.saturated);
    }
    // Posted writes are not in flight: two of three requests are reads.
    let point = Target::path(&machine, NEAR, NODE).probe_in_flight(in_flight(8, 2.0 / 3.0));
    let reads_per_ns = point.achieved.as_mbps() / 1.5e3 / LINE_BYTES as f64;
    near("reads in flight beside writes", reads_per_ns * point.mean_ns, 8.0, 0.02);
}

#[test]
fn one_read_in_flight_is_a_chase() {
    let machine = bundled::machine("ddr5-cxl").unwrap().unwrap();
    for to in machine.node_ids() {
        let target = Target::path(&machine, NEAR, to);
        let chase = target.probe(Load { pattern: Pattern::Chase, requests: 20_000, ..load(1.0, 1.0) });
        assert_eq!(target.probe_in_flight(InFlight { requests: 20_000, ..in_flight(1, 1.0) }), chase);
    }
}

#[test]
fn path_adds_latency_of_caches_and_links() {
    // A fixed node's latency includes the caches.
    let machine = linked(FAST, 60.0, 10_000.0);
    let chase =
        |from| Target::path(&machine, from, NODE).probe(Load { pattern: Pattern::Chase, ..load(1.0, 1.0) });
    near("attached", chase(NEAR).mean_ns, 100.0, 1e-9);
    near("linked", chase(FAR).mean_ns, 160.0, 1e-9);
    // A dram node's does not. Without refreshes, of which a slower chase meets more.
    let text = bundled::text("ddr5-cxl").unwrap().replace("refi = 9375", "refi = 0");
    let cxl = Machine::parse("m.toml", &text).unwrap();
    let chase = Load { pattern: Pattern::Chase, ..load(1.0, 1.0) };
    let bare_ns = probe(&cxl.nodes[0], chase).mean_ns;
    let [near_ns, far_ns] =
        [0, 1].map(|from| Target::path(&cxl, InitiatorId(from), NODE).probe(chase).mean_ns);
    near("caches", near_ns - bare_ns, 70.0 / 2.1, 0.02);
    near("caches and link", far_ns - bare_ns, 70.0 / 2.1 + 77.0, 0.01);
}

#[test]
fn saturated_link_carries_its_bandwidth_and_the_node_serves_no_more() {
    let machine = linked(FAST, 60.0, 10_000.0);
    for (read_share, mbps) in [(1.0, 10_000.0), (0.0, 10_000.0), (0.5, 20_000.0), (0.75, 10_000.0 / 0.75)] {
        let target = Target::path(&machine, FAR, NODE);
        near("peak", target.peak(read_share).as_mbps(), mbps, 1e-12);
        let point = target.probe(load(read_share, 1.5));
        assert!(point.saturated);
        near("bandwidth of the link", point.achieved.as_mbps(), mbps, 0.02);
        // Energy is that of the lines carried: 2 or 3 nJ, and 10 mW of standby in the time between two.
        let line_ns = LINE_BYTES as f64 * 1e3 / point.achieved.as_mbps();
        let line_nj = 2.0 * read_share + 3.0 * (1.0 - read_share) + 10e-3 * line_ns;
        near("energy of a line", point.line_energy_nj.unwrap(), line_nj, 0.01);
    }
}

#[test]
fn link_queues_as_a_single_server() {
    // M/D/1: a mean wait of load / (2 (1 - load)) line times. Lines in one slot of four may overlap, which
    // shortens waits by less than a line's time.
    let machine = linked(FAST, 60.0, 10_000.0);
    let line_ns = 6.4;
    for share in [0.3, 0.6, 0.8, 0.9] {
        let wait_ns = Target::path(&machine, FAR, NODE).probe(load(1.0, share)).mean_ns - 160.0;
        let expected_ns = share / (2.0 * (1.0 - share)) * line_ns;
        assert!(
            (expected_ns - line_ns..expected_ns * 1.02).contains(&wait_ns),
            "{wait_ns} of {expected_ns} ns"
        );
        assert!(wait_ns > 0.0);
    }
}

#[test]
fn peak_of_a_node_with_slow_writes_is_that_of_the_mix() {
    let slow =
        "[node.fixed]\nread_latency_ns = 300\nread_bandwidth_mbps = 40000\nwrite_bandwidth_mbps = 10000";
    let machine = linked(slow, 60.0, 100_000.0);
    for (read_share, mbps) in [(1.0, 40_000.0), (0.0, 10_000.0), (0.5, 16_000.0)] {
        let target = Target::path(&machine, NEAR, NODE);
        assert_eq!(target.peak(read_share).as_mbps(), mbps);
        near("bandwidth", target.probe(load(read_share, 1.5)).achieved.as_mbps(), mbps, 0.01);
        assert!(!target.probe(load(read_share, 0.9)).saturated);
    }
}

/// Lowest and highest energy of a device in pJ/bit at 80 % of its cap, rows opened for single lines.
///
/// DDR3: 70 at peak (Malladi et al., ISCA 2012). DDR4 and DDR5: from the data sheets' currents, with a row
/// opened for each line about twice the energy of the transfer. HBM2: 3.9 (O'Connor et al., MICRO 2017).
fn device_pj_per_bit(machine: &str, node: &str) -> (f64, f64) {
    match (machine, node) {
        ("hbm", "hbm0" | "hbm1") | ("bdm", "mcdram") => (3.5, 7.0),
        ("memos", _) => (35.0, 90.0),
        // Many ranks in standby behind a slow link.
        ("ddr5-cxl", "cxl") => (20.0, 60.0),
        // A channel at a fraction of its rate, with the standby power of a whole one.
        (throttled, "nvm") if throttled.starts_with("bmpm") => (25.0, 120.0),
        _ => (5.0, 30.0),
    }
}

#[test]
fn figures_of_every_bundled_machine_are_sane() {
    let mut with_energy = 0;
    for (machine, paths) in bundled_paths() {
        for (from, to) in paths {
            let target = Target::path(&machine, from, to);
            let name = &machine.nodes[to.index()].name;
            let what = format!("{} from initiator {} to {name}", machine.name, from.0);
            let requests = target.requests() / 4;
            let probe = |share| target.probe(Load { requests, ..load(1.0, share) });
            let flood = probe(1.5);
            let cap = flood.achieved.as_mbps() / target.peak(1.0).as_mbps();
            assert!(flood.saturated && cap > 0.3 && cap < 1.01, "{what}: carries {cap} of its peak");
            let idle_ns = machine.idle_latency(from, to).as_ns();
            let mut before_ns = idle_ns;
            for share in [0.05, 0.3, 0.6, 0.8, 0.95] {
                let point = probe(share * cap);
                let what = format!("{what} at {share}: {point:?}");
                assert!(!point.saturated && point.achieved <= flood.achieved, "{what}");
                assert!(point.mean_ns >= before_ns, "{what}, {before_ns} ns before");
                assert!(point.mean_ns < 30.0 * idle_ns, "{what}");
                let ordered = [idle_ns * 0.8, point.p50_ns, point.p95_ns, point.p99_ns];
                assert!(ordered.is_sorted() && point.mean_ns <= point.p99_ns, "{what}");
                before_ns = point.mean_ns;
            }
            if let Some(line_nj) =
                probe(0.8 * cap).line_energy_nj.filter(|_| from == machine.nearest_initiator(to))
            {
                let pj_per_bit = line_nj * 1e3 / (8.0 * LINE_BYTES as f64);
                let (least, most) = device_pj_per_bit(&machine.name, name);
                assert!((least..most).contains(&pj_per_bit), "{what}: {pj_per_bit} pJ/bit");
                with_energy += 1;
            }
        }
    }
    assert!(with_energy >= 10, "only {with_energy} nodes have energy");
}

#[test]
fn requests_grow_with_channels_until_figures_no_longer_change() {
    let machine = bundled::machine("hbm").unwrap().unwrap();
    let target = Target::path(&machine, NEAR, NODE);
    let figures = |requests| {
        let [flood, loaded] = [1.5, 0.52].map(|share| target.probe(Load { requests, ..load(1.0, share) }));
        (flood.achieved.as_mbps(), loaded.mean_ns)
    };
    let [(mbps, ns), (more_mbps, more_ns)] = [1, 2].map(|times| figures(times * target.requests()));
    near("bandwidth", mbps, more_mbps, 0.002);
    near("latency at 95 % of it", ns, more_ns, 0.03);
    // As many requests as one channel needs leave queues half empty.
    let one = bundled::machine("ddr4-2400").unwrap().unwrap();
    let few = figures(Target::path(&one, NEAR, NODE).requests());
    assert!(few.0 > 1.01 * mbps && few.1 < 0.97 * ns, "{few:?}, not {:?}", (mbps, ns));
}
