//! `memtide topo`.

pub mod measured;
mod picture;

use clap::ValueEnum;
use memtide_core::CpuId;
use memtide_core::machine::check_name;
use memtide_linux::topology::{Measurements, Node, Performance, System};

use crate::advice;
use crate::failure::Failure;
use crate::output::{Cell, Document, Format, Table, print};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORMAT")]
    output: Output,
    /// JSON of `memtide measure`, for -o machine [default: the firmware]
    #[arg(long, value_name = "FILE")]
    measured: Option<String>,
    /// Name of the machine in a machine file [default: host]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// How a topology is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Rounded figures, for people
    Table,
    /// One object with exact figures
    Json,
    /// A header and one line per node
    Csv,
    /// A drawing, as SVG
    Picture,
    /// A machine file for the other commands
    Machine,
}

/// Shows this system's nodes.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    only_for_machines(arguments)?;
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    match arguments.output {
        Output::Table => document(&host).print(Format::Table),
        Output::Json => document(&host).print(Format::Json),
        Output::Csv => document(&host).print(Format::Csv),
        Output::Picture => print(&picture::svg(&host)),
        Output::Machine => print(&machine_file(arguments, &host)?),
    }
}

/// Refuses options without effect.
fn only_for_machines(arguments: &Arguments) -> Result<(), Failure> {
    let given = [("--measured", arguments.measured.is_some()), ("--name", arguments.name.is_some())];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) if arguments.output != Output::Machine => {
            Err(Failure::Usage(format!("{option} is for machine files; add -o machine, or leave it out")))
        }
        _ => Ok(()),
    }
}

fn machine_file(arguments: &Arguments, host: &System) -> Result<String, Failure> {
    let name = arguments.name.as_deref().unwrap_or("host");
    check_name(name).map_err(|why| Failure::Usage(format!("--name: {why}")))?;
    match &arguments.measured {
        Some(file) => measured::machine_file(host, name, file),
        None => Ok(host
            .machine(name, &Measurements::default())
            .map_err(|error| advice::on_no_machine(&error))?
            .to_toml()),
    }
}

fn document(host: &System) -> Document {
    let columns = [
        ("node", "node"),
        ("cpus", "CPUs"),
        ("memory_mib", "memory, MiB"),
        ("free_mib", "free, MiB"),
        ("tier", "kernel's tier"),
        ("distances", "distances"),
        ("read_latency_ns", "read, ns"),
        ("write_latency_ns", "write, ns"),
        ("read_bandwidth_mbps", "reads, MB/s"),
        ("write_bandwidth_mbps", "writes, MB/s"),
        ("initiators", "from nodes"),
    ];
    let mut table = Table::new("nodes", &columns);
    table.rows = host.nodes.iter().map(row).collect();
    let mut document = Document::of(table);
    document.notes.push(if host.nodes.iter().any(|node| node.firmware.is_some()) {
        "Latency and bandwidth are from the firmware (ACPI HMAT); `memtide measure` measures them.".to_owned()
    } else {
        "The firmware reports no latency or bandwidth (no ACPI HMAT); `memtide measure` measures them."
            .to_owned()
    });
    document
}

fn row(node: &Node) -> Vec<Cell> {
    let firmware = node.firmware.clone().unwrap_or_default();
    let Performance {
        read_latency_ns,
        write_latency_ns,
        read_bandwidth_mbps,
        write_bandwidth_mbps,
        initiators,
    } = firmware;
    let figure = |figure: Option<f64>| figure.map_or(Cell::Absent, |figure| Cell::Real(figure, 0));
    let distances: Vec<String> = node.distances.iter().map(|(_, distance)| distance.to_string()).collect();
    let mib = |kib: fn(&memtide_linux::topology::Capacity) -> u64| {
        node.memory.as_ref().map_or(Cell::Whole(0), |memory| Cell::Whole(kib(memory) >> 10))
    };
    vec![
        Cell::Whole(node.id.0.into()),
        list(node.cpus.iter().map(|cpu| cpu.0)),
        mib(|memory| memory.total_kib),
        mib(|memory| memory.free_kib),
        node.tier.map_or(Cell::Absent, |tier| Cell::Whole(tier.into())),
        Cell::text(distances.join(" ")),
        figure(read_latency_ns),
        figure(write_latency_ns),
        figure(read_bandwidth_mbps),
        figure(write_bandwidth_mbps),
        list(initiators.iter().map(|node| node.0.into())),
    ]
}

/// Numbers as the kernel lists them, such as `0-3,7`.
fn list(numbers: impl Iterator<Item = u16>) -> Cell {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let word = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    let words: Vec<String> = ranges.into_iter().map(word).collect();
    if words.is_empty() { Cell::Absent } else { Cell::text(words.join(",")) }
}

/// The CPUs of a node, for a table.
fn cpus(cpus: &[CpuId]) -> String {
    list(cpus.iter().map(|cpu| cpu.0)).display()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_lists_are_as_the_kernel_prints_them() {
        let shown = |numbers: &[u16]| list(numbers.iter().copied()).display();
        assert_eq!(shown(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(shown(&[]), "-");
        assert!(matches!(list(std::iter::empty()), Cell::Absent));
    }
}
