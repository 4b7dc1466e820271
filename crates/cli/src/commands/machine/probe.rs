//! `memtide machine probe`.

use clap::{ValueEnum, ValueHint};
use memtide_core::machine::Machine;
use memtide_core::{InitiatorId, NodeId, Time, suggest};
use memtide_memory::probe::{Load, Pattern, ProbePoint, probe};

use crate::failure::Failure;
use crate::options::Common;
use crate::options::share;
use crate::output::VERSION;
use crate::output::{Cell, Document, Table};
use crate::progress::Progress;
use crate::{interrupt, machines, parallel};

/// Offered load for measuring bandwidth, as a share of the peak.
const FLOOD: f64 = 1.5;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of a bundled machine, or machine file
    #[arg(value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: String,
    /// Probe from this initiator only [default: all]
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    /// Probe this node only [default: all]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Access pattern
    #[arg(long, value_enum, default_value_t = Order::Random)]
    pattern: Order,
    /// Share of reads; the others are writes
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share::parse)]
    reads: f64,
    /// Offered loads as shares of the node's peak bandwidth
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share::parse_positive,
        default_value = "5%,10%,20%,30%,40%,50%,60%,70%,75%,80%,85%,90%,95%")]
    load: Vec<f64>,
    /// Requests per load; the first tenth is the warm-up
    #[arg(long, value_name = "N", default_value_t = 200_000,
        value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    requests: u64,
    #[command(flatten)]
    common: Common,
}

/// Order of the requested lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Random lines of the whole node, as a Poisson process
    Random,
    /// Consecutive lines, as a Poisson process
    Sequential,
    /// A pointer chase: one request in flight
    Chase,
}

impl Order {
    fn pattern(self) -> Pattern {
        match self {
            Order::Random => Pattern::Random,
            Order::Sequential => Pattern::Sequential,
            Order::Chase => Pattern::Chase,
        }
    }
}

/// What to measure of a node.
#[derive(Clone, Copy)]
struct Task {
    node: NodeId,
    load: Load,
}

/// Probes the machine's nodes from every initiator and prints the figures.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = arguments.common;
    let machine = machines::load(&arguments.machine)?;
    let initiators =
        pick("initiator", arguments.initiator.as_deref(), machine.initiators.iter().map(|i| &i.name))?;
    let nodes = pick("node", arguments.node.as_deref(), machine.nodes.iter().map(|n| &n.name))?;
    let tasks: Vec<Task> = nodes
        .iter()
        .flat_map(|&node| {
            tasks(arguments, common.seed).map(move |load| Task { node: NodeId::from(node), load })
        })
        .collect();
    let progress = Progress::new("probing", tasks.len());
    let points = parallel::map(&tasks, |index, task| {
        interrupt::check()?;
        let (node, load) = (machine.nodes[task.node.index()].clone(), task.load);
        let point = interrupt::interruptible(move || Ok(probe(&node, load)))?;
        progress.set(index, 1.0);
        Ok(point)
    });
    drop(progress);
    let points = points.into_iter().collect::<Result<Vec<ProbePoint>, Failure>>()?;

    let mut document = Document {
        about: vec![
            ("machine", Cell::text(&machine.name)),
            (
                "pattern",
                Cell::text(arguments.pattern.to_possible_value().expect("none is hidden").get_name()),
            ),
            ("read_share", Cell::Real(arguments.reads, 2)),
            ("seed", Cell::Whole(common.seed)),
            ("memtide", Cell::text(VERSION)),
        ],
        tables: vec![summary_table(), curve_table()],
        notes: vec![
            "Latencies are load-to-use, links included. Idle is that of a pointer chase over the whole node, \
             as Intel MLC measures it: on a dram node it also meets rows that must be closed first, and \
             refreshes. Closed row is that of a single read of a bank without an open row, as in machine \
             show. Load is a share of the node's peak. Latencies of a saturated point depend on the length \
             of the probe."
                .to_owned(),
        ],
    };
    let per_node = tasks.len() / nodes.len();
    for &initiator in &initiators {
        for (tasks, points) in tasks.chunks(per_node).zip(points.chunks(per_node)) {
            let pair = InitiatorNode::new(&machine, InitiatorId::from(initiator), tasks[0].node);
            pair.rows(tasks, points, &mut document);
        }
    }
    document.print(common.output)
}

/// Index of the named entry, or of all entries.
fn pick<'a>(
    kind: &str,
    name: Option<&str>,
    all: impl Iterator<Item = &'a String>,
) -> Result<Vec<usize>, Failure> {
    let all: Vec<&str> = all.map(String::as_str).collect();
    let Some(name) = name else { return Ok((0..all.len()).collect()) };
    match all.iter().position(|other| *other == name) {
        Some(index) => Ok(vec![index]),
        None => Err(Failure::Usage(suggest::unknown(kind, name, &all))),
    }
}

/// A chase for the idle latency (as Intel MLC measures it), a flood, and every load or the chase.
fn tasks(arguments: &Arguments, seed: u64) -> impl Iterator<Item = Load> + use<> {
    let (pattern, read_share, requests) = (arguments.pattern.pattern(), arguments.reads, arguments.requests);
    let idle = Load {
        pattern: Pattern::Chase,
        read_share: 1.0,
        share_of_peak: 0.0,
        requests: requests.min(20_000),
        seed,
    };
    let open = if pattern == Pattern::Chase { Pattern::Random } else { pattern };
    let flood = Load { pattern: open, read_share, share_of_peak: FLOOD, requests, seed };
    let loads = if pattern == Pattern::Chase { vec![0.0] } else { arguments.load.clone() };
    let loads = loads.into_iter().map(move |share_of_peak| Load { pattern, share_of_peak, ..flood });
    [idle, flood].into_iter().chain(loads)
}

fn summary_table() -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("tier", "tier"),
        ("idle_ns", "idle, ns"),
        ("closed_row_ns", "closed row, ns"),
        ("peak_mbps", "peak, MB/s"),
        ("cap_mbps", "cap, MB/s"),
        ("cap_share", "cap, % of peak"),
    ];
    Table::new("nodes", &columns).with_keys(2)
}

fn curve_table() -> Table {
    let columns = [
        ("initiator", "initiator"),
        ("node", "node"),
        ("load_share", "load, %"),
        ("offered_mbps", "offered, MB/s"),
        ("achieved_mbps", "achieved, MB/s"),
        ("mean_ns", "mean, ns"),
        ("p50_ns", "p50, ns"),
        ("p95_ns", "p95, ns"),
        ("p99_ns", "p99, ns"),
        ("row_hit_share", "row hits, %"),
        ("line_energy_nj", "nJ/line"),
        ("power_mw", "mW"),
        ("saturated", ""),
    ];
    Table::new("curve", &columns).with_keys(3)
}

/// A node as an initiator sees it.
struct InitiatorNode<'m> {
    machine: &'m Machine,
    initiator: InitiatorId,
    node: NodeId,
    /// Latency added by caches and links.
    route_latency: Time,
    /// The narrowest link on the path.
    link_mbps: f64,
    peak_mbps: f64,
}

impl InitiatorNode<'_> {
    fn new(machine: &Machine, initiator: InitiatorId, node: NodeId) -> InitiatorNode<'_> {
        let links =
            machine.topology.hops(initiator, node).iter().map(|hop| machine.links[hop.link].bandwidth_mbps);
        let memory = &machine.nodes[node.index()];
        let (before, peak_mbps) = match (&memory.dram, &memory.fixed) {
            (Some(dram), _) => {
                let caches = machine.caches.last().map_or(0.0, |cache| cache.latency_cycles);
                (machine.core.cycles(caches), dram.channel_peak().as_mbps() * f64::from(dram.channels))
            }
            (None, fixed) => (Time::ZERO, fixed.as_ref().map_or(0.0, |fixed| fixed.read_bandwidth_mbps)),
        };
        let route_latency = before + machine.topology.link_latency(initiator, node);
        InitiatorNode {
            machine,
            initiator,
            node,
            route_latency,
            link_mbps: links.fold(f64::INFINITY, f64::min),
            peak_mbps,
        }
    }

    fn rows(&self, tasks: &[Task], points: &[ProbePoint], document: &mut Document) {
        let [idle, flood] = [points[0], points[1]];
        let cap = flood.achieved.as_mbps().min(self.link_mbps);
        document.tables[0].rows.push(vec![
            self.initiator(),
            self.node(),
            Cell::Whole(self.machine.nodes[self.node.index()].tier.into()),
            Cell::Real(self.idle_ns(idle), 1),
            self.closed_row(),
            Cell::Real(self.peak_mbps, 0),
            Cell::Real(cap, 0),
            Cell::Percent(cap / self.peak_mbps),
        ]);
        for (task, point) in tasks[2..].iter().zip(&points[2..]) {
            document.tables[1].rows.push(self.point(task.load.share_of_peak, point));
        }
    }

    /// A dram node's latency is that of its chase. A fixed node's is its figure: without the links and caches
    /// in between, a chase overloads a node whose service time exceeds its latency.
    fn idle_ns(&self, chase: ProbePoint) -> f64 {
        match self.machine.nodes[self.node.index()].dram {
            Some(_) => chase.mean_ns + self.route_latency.as_ns(),
            None => self.machine.idle_latency(self.initiator, self.node).as_ns(),
        }
    }

    /// Minimum read latency of an idle dram node: no open row in the bank.
    fn closed_row(&self) -> Cell {
        match self.machine.nodes[self.node.index()].dram {
            Some(_) => Cell::Real(self.machine.idle_latency(self.initiator, self.node).as_ns(), 1),
            None => Cell::Absent,
        }
    }

    fn point(&self, load: f64, point: &ProbePoint) -> Vec<Cell> {
        let latency =
            |ns: f64| if ns > 0.0 { Cell::Real(ns + self.route_latency.as_ns(), 1) } else { Cell::Absent };
        let known =
            |value: Option<f64>, digits| value.map_or(Cell::Absent, |value| Cell::Real(value, digits));
        let is_dram = self.machine.nodes[self.node.index()].dram.is_some();
        let saturated = point.saturated || point.offered.as_mbps() > self.link_mbps;
        vec![
            self.initiator(),
            self.node(),
            if load > 0.0 { Cell::Percent(load) } else { Cell::Absent },
            Cell::Real(point.offered.as_mbps(), 0),
            Cell::Real(point.achieved.as_mbps().min(self.link_mbps), 0),
            latency(point.mean_ns),
            latency(point.p50_ns),
            latency(point.p95_ns),
            latency(point.p99_ns),
            if is_dram { Cell::Percent(point.row_hit_rate) } else { Cell::Absent },
            known(point.line_energy_nj, 2),
            known(point.power_mw, 0),
            Cell::Flag(saturated, "saturated"),
        ]
    }

    fn initiator(&self) -> Cell {
        Cell::text(&self.machine.initiators[self.initiator.index()].name)
    }

    fn node(&self) -> Cell {
        Cell::text(&self.machine.nodes[self.node.index()].name)
    }
}
