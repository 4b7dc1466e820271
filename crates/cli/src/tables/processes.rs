//! Table of the processes of a guest.

use memtide_lab_protocol::{Process, Who};

use crate::output::{Cell, Table};

/// A row per process, in order of first appearance.
pub fn table(processes: &[Process]) -> Table {
    let columns = [
        ("process", "process"),
        ("name", "name"),
        ("who", "owner"),
        ("instructions", "instructions"),
        ("kernel_instructions", "in the kernel"),
        ("llc_misses", "LLC misses"),
        ("read_lines", "lines read"),
        ("prefetched_lines", "prefetched"),
        ("written_lines", "written"),
        ("bytes", "bytes"),
        ("latency_mean_ns", "mean latency, ns"),
    ];
    let mut table = Table::new("processes", &columns).with_keys(3);
    table.rows = (1..).zip(processes).map(|(number, process)| row(number, process)).collect();
    table
}

fn row(number: u64, process: &Process) -> Vec<Cell> {
    let counts = &process.counts;
    let traffic = counts.all_nodes();
    let who = match process.who {
        Who::Kernel => "kernel",
        Who::Agent => "agent",
        Who::Program => "program",
    };
    let name = if process.name.is_empty() { Cell::Absent } else { Cell::text(&process.name) };
    vec![
        Cell::Whole(number),
        name,
        Cell::text(who),
        Cell::Whole(counts.instructions),
        Cell::Whole(counts.kernel_instructions()),
        Cell::Whole(counts.llc_misses),
        Cell::Whole(traffic.reads),
        Cell::Whole(traffic.prefetches),
        Cell::Whole(traffic.writes),
        Cell::Whole(traffic.bytes()),
        traffic.mean_latency_ns().map_or(Cell::Absent, |ns| Cell::Real(ns, 1)),
    ]
}
