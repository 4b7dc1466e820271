use memtide_core::{InitiatorId, LINE_BYTES, NodeId};
use memtide_lab_protocol::clock::Range;

use super::*;

const MACHINE: &str = r#"
name = "two"
summary = "a fast and a slow node"
[sources]
default = "assumed: for a test"
[core]
clock_mhz = 2000
instructions_per_cycle = 2
reorder_buffer = 200
outstanding_misses = 10
[[cache]]
name = "L1"
capacity_kib = 32
ways = 8
latency_cycles = 4
[[cache]]
name = "L2"
capacity_kib = 256
ways = 8
latency_cycles = 40
slice = true
[[initiator]]
name = "cpu"
cpus = 1
[[node]]
name = "fast"
tier = 0
capacity_mib = 64
initiator = "cpu"
fixed = { read_latency_ns = 80, read_bandwidth_mbps = 6400 }
[[node]]
name = "slow"
tier = 1
capacity_mib = 64
fixed = { read_latency_ns = 300, read_bandwidth_mbps = 3200 }
[[link]]
between = ["cpu", "slow"]
latency_ns = 100
bandwidth_mbps = 1600
"#;

/// Instructions from one access to the next.
const STEP: u64 = 4;

/// A machine with some virtual CPUs.
fn curve(machine: &str, cpus: usize) -> Curve {
    let machine = Machine::parse("two.toml", machine).expect("a machine");
    let range = |node: u8| Range { node: NodeId(node), start: u64::from(node) << 26, bytes: 64 << 20 };
    let config = Config {
        machine: String::new(),
        vcpu_initiators: vec![InitiatorId(0); cpus],
        memory: vec![range(0), range(1)],
        parallel: false,
        by_instruction: false,
        boot_ps: 250,
        counters: "unused".into(),
        guest_nodes: vec![0, 1],
        results: "unused".into(),
    };
    Curve::new(&machine, &config)
}

struct Run {
    curve: Curve,
    instruction: u64,
    stores: u64,
}

impl Run {
    fn new() -> Run {
        Run { curve: curve(MACHINE, 1), instruction: 0, stores: 0 }
    }

    /// Accesses an address that is known at a time; returns when the value is.
    fn access(&mut self, address: u64, write: bool, ready: Time) -> Time {
        self.instruction += STEP;
        let line = address / LINE_BYTES;
        self.stores += u64::from(write);
        let access = Access {
            instruction: self.instruction,
            stores: self.stores,
            line,
            write,
            ready,
            overwritten: false,
            arrival: Time::ZERO,
            translation: Time::ZERO,
        };
        match self.curve.touch(CpuId(0), line, write) {
            Touched::First => ready,
            touched => self.curve.open(CpuId(0), access, touched),
        }
    }

    /// Elapsed time, with all accesses finished.
    fn end(&mut self) -> Time {
        self.curve.drain(CpuId(0), self.instruction);
        self.curve.clock(CpuId(0), self.instruction).at(self.instruction)
    }
}

#[test]
fn overwritten_line_is_written_back_but_not_fetched() {
    let lines = (1 << 20) / LINE_BYTES;
    for overwritten in [false, true] {
        let mut curve = curve(MACHINE, 1);
        let mut instruction = 0;
        for line in 0..lines {
            instruction += STEP;
            let touched = curve.touch(CpuId(0), line, true);
            let access = Access {
                instruction,
                stores: line + 1,
                line,
                write: true,
                overwritten,
                ready: Time::ZERO,
                arrival: Time::ZERO,
                translation: Time::ZERO,
            };
            curve.open(CpuId(0), access, touched);
        }
        let node = &curve.counts(CpuId(0)).nodes[0];
        assert_eq!(node.reads, if overwritten { 0 } else { lines });
        assert!(node.writes > lines / 2 && node.writes < lines, "what the caches do not hold");
    }
}

/// Lines of a node, each once, in an order that defeats the prefetcher.
fn scattered(node: u64, lines: u64) -> impl Iterator<Item = u64> {
    (0..lines).map(move |n| (node << 26) + n * 7919 % (1 << 19) * LINE_BYTES)
}

#[test]
fn chase_takes_configured_latency_including_links() {
    for (node, latency_ns) in [(0, 80.0), (1, 400.0 + 40.0)] {
        let mut run = Run::new();
        let mut ready = Time::ZERO;
        for address in scattered(node, 20_000) {
            ready = run.access(address, false, ready);
        }
        let ns = run.end().as_ns() / 20_000.0;
        // A line's own 40 ns on the slow node's link are part of a chase there.
        let latency_ns = if node == 1 { latency_ns - 40.0 } else { latency_ns };
        assert!((ns / latency_ns - 1.0).abs() < 0.01, "node {node}: {ns} ns");
    }
}

#[test]
fn dependent_loads_of_a_stream_wait_for_l2_unless_prefetched_into_first_cache() {
    const PAGES: u64 = 20;
    for (first_cache, hit_ns) in [(false, 20.0), (true, 0.0)] {
        let prefetcher =
            format!("[prefetcher]\nstreams = 1\ndistance_lines = 16\nfirst_cache = {first_cache}\n");
        let mut run = Run { curve: curve(&format!("{MACHINE}{prefetcher}"), 1), instruction: 0, stores: 0 };
        let mut ready = Time::ZERO;
        for line in 0..PAGES * 64 {
            ready = run.access(line * LINE_BYTES, false, ready);
        }
        let page_ns = run.end().as_ns() / PAGES as f64;
        // Three misses begin a page's stream; the node needs 10 ns for each line prefetched.
        let expected = f64::max(3.0 * 80.0 + 61.0 * hit_ns, 61.0 * 10.0);
        assert!((page_ns / expected - 1.0).abs() < 0.02, "{first_cache}: {page_ns} ns, not {expected}");
    }
}

#[test]
fn independent_misses_overlap_up_to_registers_and_bandwidth() {
    for (node, line_ns) in [(0, 10.0), (1, 40.0)] {
        let mut run = Run::new();
        scattered(node, 20_000).for_each(|address| _ = run.access(address, false, Time::ZERO));
        let ns = run.end().as_ns() / 20_000.0;
        let registers_ns = [80.0, 400.0][node as usize] / 10.0;
        let expected = f64::max(line_ns, registers_ns);
        assert!((ns / expected - 1.0).abs() < 0.02, "node {node}: {ns} ns a line, not {expected}");
    }
}

#[test]
fn written_lines_are_read_and_written_back() {
    let mut run = Run::new();
    scattered(0, 100_000).for_each(|address| _ = run.access(address, true, Time::ZERO));
    let ns = run.end().as_ns() / 100_000.0;
    assert!((ns / 20.0 - 1.0).abs() < 0.06, "{ns} ns a line");
    let counts = run.curve.counts(CpuId(0)).nodes[0];
    assert_eq!(counts.reads, 100_000);
    assert!(counts.writes > 95_000, "{counts:?}");
}

/// Stores of 16 bytes each to these lines, past the caches; `parts` of the four of each line.
fn fill(run: &mut Run, lines: impl Iterator<Item = u64>, parts: u64) {
    for address in lines {
        for part in 0..parts {
            run.instruction += STEP;
            let access = Access {
                instruction: run.instruction,
                stores: 0,
                line: address / LINE_BYTES,
                write: true,
                ready: Time::ZERO,
                overwritten: false,
                arrival: Time::ZERO,
                translation: Time::ZERO,
            };
            run.curve.store_past(CpuId(0), access, part * 16, 16);
        }
    }
}

#[test]
fn non_temporal_stores_are_one_write_a_line_at_the_bandwidth_of_node_and_link() {
    for (node, line_ns) in [(0, 10.0), (1, 40.0)] {
        for parts in [4, 1] {
            let mut run = Run::new();
            fill(&mut run, scattered(node, 50_000), parts);
            let ns = run.end().as_ns() / 50_000.0;
            assert!((ns / line_ns - 1.0).abs() < 0.02, "node {node}: {ns} ns a line of {parts} parts");
            let counts = run.curve.counts(CpuId(0));
            let traffic = counts.nodes[node as usize];
            assert_eq!((traffic.reads, traffic.prefetches, traffic.writes), (0, 0, 50_000));
            assert_eq!(counts.llc_misses, 0);
        }
    }
}

#[test]
fn non_temporal_store_evicts_its_line_and_load_of_it_closes_its_buffer() {
    let mut run = Run::new();
    run.access(0, true, Time::ZERO);
    fill(&mut run, [0].into_iter(), 2);
    let writes = |run: &Run| run.curve.counts(CpuId(0)).nodes[0].writes;
    assert_eq!(writes(&run), 0);
    run.access(0, false, Time::ZERO);
    assert_eq!((writes(&run), run.curve.counts(CpuId(0)).nodes[0].reads), (1, 2));
    fill(&mut run, [0].into_iter(), 2);
    run.end();
    assert_eq!(writes(&run), 2);
}

#[test]
fn cache_hits_cost_instructions_only() {
    let mut run = Run::new();
    for _ in 0..100 {
        (0..256).for_each(|line| _ = run.access(line * LINE_BYTES, false, Time::ZERO));
    }
    let ns = run.end().as_ns();
    let instructions_ns = run.instruction as f64 * 0.25;
    assert!(ns < instructions_ns + 256.0 * 20.0, "{ns} ns for {instructions_ns} ns of instructions");
}

#[test]
fn reorder_buffer_bounds_load_overlap() {
    let mut run = Run::new();
    // One miss in 400 instructions: each completes before the next can start.
    for address in scattered(0, 1000) {
        run.instruction += 396;
        run.access(address, false, Time::ZERO);
    }
    let ns = run.end().as_ns() / 1000.0;
    // 400 instructions take 100 ns; the load's 80 ns overlap 200 of them, 50 ns.
    assert!((ns - 130.0).abs() < 2.0, "{ns}");
}

/// Stores leave the queue in order: one miss in 16 stores lets four of them overlap in a queue of 64.
#[test]
fn store_queue_bounds_store_overlap() {
    let per_miss_ns = |stores: u64| {
        let mut run = Run::new();
        for address in scattered(0, 1000) {
            run.access(address, true, Time::ZERO);
            run.stores += stores - 1;
        }
        run.end().as_ns() / 1000.0
    };
    for (stores, overlapping) in [(64, 1.0), (32, 2.0), (16, 4.0)] {
        let ns = per_miss_ns(stores);
        assert!((ns / (80.0 / overlapping) - 1.0).abs() < 0.05, "{stores}: {ns}");
    }
}

#[test]
fn clock_is_continuous_across_rate_change() {
    let mut clock = Clock { offset: Time::ZERO, per_instruction: 10_000 << FRACTION };
    assert_eq!(clock.at(1000), Time(10_000_000));
    clock.change_rate(1000, 154 << FRACTION);
    assert_eq!(clock.at(1000), Time(10_000_000));
    assert_eq!(clock.at(2000), Time(10_154_000));
    clock.change_rate(2000, 10_000 << FRACTION);
    assert_eq!(clock.at(2001), Time(10_164_000));
}

/// Stores to lines in the first cache, each with a page walk, are as slow as the walker.
#[test]
fn stores_wait_for_their_translations() {
    let mut run = Run::new();
    (0..64).for_each(|line| _ = run.access(line * LINE_BYTES, true, Time::ZERO));
    let before = run.end();
    for line in 0..10_000 {
        run.instruction += STEP;
        let access = Access {
            instruction: run.instruction,
            stores: line,
            line: line % 64,
            write: true,
            ready: Time::ZERO,
            overwritten: false,
            arrival: Time::ZERO,
            translation: Time::from_ns(50.0),
        };
        run.curve.open(CpuId(0), access, Touched::First);
    }
    // The walks of at most 200 instructions are still to come.
    let at = run.curve.clock(CpuId(0), run.instruction).at(run.instruction);
    let (waited, bound) = (at.since(before).as_ns(), 10_000.0 * 50.0);
    assert!(waited <= bound && waited >= bound - 51.0 * 50.0, "{waited} ns, {bound} for all walks");
}

#[test]
fn slow_translation_delays_cache_hit() {
    let mut run = Run::new();
    run.access(0, false, Time::ZERO);
    let before = run.end();
    let access = Access {
        instruction: run.instruction,
        stores: 0,
        line: 0,
        write: false,
        ready: Time::ZERO,
        overwritten: false,
        arrival: Time::ZERO,
        translation: Time::from_ns(500.0),
    };
    run.curve.open(CpuId(0), access, Touched::First);
    assert_eq!(run.end().since(before), Time::from_ns(502.0));
}

/// Two CPUs that read lines in slices, as the emulator runs them: one goes on, in turns of 20 us, until it is
/// more than 20 us ahead of the other.
struct Pair {
    curve: Curve,
    instructions: [u64; 2],
}

impl Pair {
    const TURN: Time = Time::from_us(20);

    fn now(&mut self, cpu: usize) -> Time {
        let instruction = self.instructions[cpu];
        self.curve.clock(CpuId::from(cpu), instruction).at(instruction)
    }

    /// Reads a line whose address is known at a time; returns when it begins and ends.
    fn read(&mut self, cpu: usize, address: u64, ready: Time) -> (Time, Time) {
        let line = address / LINE_BYTES;
        let begin = self.now(cpu).max(ready);
        let touched = self.curve.touch(CpuId::from(cpu), line, false);
        assert_eq!(touched, Touched::Missed);
        let (arrival, translation, instruction) = (Time::ZERO, Time::ZERO, self.instructions[cpu]);
        let (stores, write, overwritten) = (0, false, false);
        let access = Access { instruction, stores, line, write, overwritten, ready, arrival, translation };
        (begin, self.curve.open(CpuId::from(cpu), access, touched))
    }

    /// The CPU that runs after a turn of this one.
    fn next(&mut self, cpu: usize) -> usize {
        if self.now(cpu) > self.now(1 - cpu) + Pair::TURN { 1 - cpu } else { cpu }
    }
}

#[test]
fn chase_meets_load_of_cpu_that_runs_in_other_slices() {
    let points = "loaded = [{ load = 0.5, latency_ns = 100 }, { load = 1, latency_ns = 200 }]";
    let text = MACHINE.replacen("= 6400 }", &format!("= 6400, {points} }}"), 1);
    let text = text.replace("outstanding_misses = 10", "outstanding_misses = 40");
    let text = text.replace("reorder_buffer = 200", "reorder_buffer = 4000");
    let mut pair = Pair { curve: curve(&text, 2), instructions: [0; 2] };
    let mut lines = [scattered(0, u64::MAX), scattered(0, u64::MAX)];
    let (mut cpu, mut ready, mut latencies) = (0, Time::ZERO, Vec::new());
    while pair.now(0) < Time::from_us(20_000) {
        let end = pair.now(cpu) + Pair::TURN;
        while pair.now(cpu) < end {
            // 12.5 ns of instructions for each line of 10 ns: a load of 80 %.
            pair.instructions[cpu] += 50;
            let address = lines[cpu].next().expect("a line");
            let (begin, end) = pair.read(cpu, address, if cpu == 0 { ready } else { Time::ZERO });
            if cpu == 0 {
                ready = end;
                latencies.push(end.since(begin).as_ns());
            }
        }
        cpu = pair.next(cpu);
    }
    let ns = latencies.iter().sum::<f64>() / latencies.len() as f64;
    // 80 % lies between the points of 100 and 200 ns.
    assert!((ns / 160.0 - 1.0).abs() < 0.02, "{ns} ns");
}
