//! Measures how far ratios between policies depend on a machine's reduction: eight workloads, five policies,
//! at the file's slice and scale, at half and at a quarter of them. Called by `scripts/reductions`:
//! `cargo run --release -p memtide-sim --example reductions -- [--write] [MACHINE..]`.
//!
//! Prints a row for each machine and workload. `--write` writes `docs/reductions.md`, and
//! `reduction_deviation_percent` in each machine file; rows of machines that are not named stay.

#[path = "../tests/support/reductions.rs"]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io, thread};

use memtide_core::machine::bundled;
use support::{Workload, deviation, less_reduced, times_ms};

const POLICIES: [&str; 6] = [
    "local",
    "interleave",
    "bw-interleave",
    "local+anb",
    "local+hot-cold:epoch_ms=100",
    "bw-local+bw-migration",
];

const OPERATIONS: Option<&str> = Some("operations");

const WORKLOADS: [Workload; 8] = [
    Workload { name: "stream", params: "kernel=triad,iterations=3", operations: None },
    Workload { name: "gups", params: "", operations: OPERATIONS },
    Workload { name: "zipf", params: "", operations: OPERATIONS },
    Workload { name: "uniform", params: "", operations: OPERATIONS },
    Workload { name: "chase", params: "", operations: OPERATIONS },
    Workload { name: "pagerank", params: "", operations: None },
    Workload { name: "cg", params: "", operations: None },
    Workload { name: "is", params: "", operations: None },
];

const FOOTPRINT_MIB: u64 = 32;

/// The field of a machine file.
const FIGURE: &str = "reduction_deviation_percent";

/// Reductions: the file's, a half, a quarter.
const LESS: [u32; 3] = [1, 2, 4];

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let write = arguments.iter().any(|argument| argument == "--write");
    let chosen: Vec<&String> = arguments.iter().filter(|argument| *argument != "--write").collect();
    let names = bundled::names().into_iter();
    let names = names.filter(|name| chosen.is_empty() || chosen.iter().any(|other| *other == name));
    let measured = on_all_cores(&names.collect::<Vec<_>>());
    if write {
        let path = root().join("docs/reductions.md");
        let earlier = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, page(&measured, &earlier))?;
        measured.iter().try_for_each(Measured::write)?;
    }
    Ok(())
}

/// Measures machines, as many at once as the host has cores.
fn on_all_cores(names: &[&'static str]) -> Vec<Measured> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let measured = measure(name);
            done.lock().expect("no thread panicked").insert(*name, measured);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    done.into_inner().expect("no thread panicked").into_values().collect()
}

/// A machine's deviations.
struct Measured {
    name: &'static str,
    slice: u32,
    scale: u32,
    /// In per cent, by workload; empty if the file does not reduce the machine by 4, or it has one node.
    percent: Vec<f64>,
}

fn measure(name: &'static str) -> Measured {
    let machines: Option<Vec<_>> = LESS.iter().map(|&less| less_reduced(name, less)).collect();
    let machine = less_reduced(name, 1).expect("a bundled machine");
    let (slice, scale) = (machine.slice, machine.scale);
    let machines = machines.filter(|_| machine.nodes.len() > 1).unwrap_or_default();
    if machines.is_empty() {
        return Measured { name, slice, scale, percent: Vec::new() };
    }
    let of_workload = |workload: &Workload| {
        let runs = LESS.iter().zip(&machines);
        let times: Vec<Vec<f64>> = runs
            .map(|(&less, machine)| times_ms(machine, less, *workload, FOOTPRINT_MIB, &POLICIES))
            .collect();
        let percent = (deviation(&times) * 1000.0).round() / 10.0;
        let ratios: Vec<Vec<f64>> =
            times.iter().map(|times| times.iter().map(|time| time / times[0]).collect()).collect();
        println!("{name} {}: {percent} %, ratios to local {ratios:.3?}", workload.name);
        percent
    };
    Measured { name, slice, scale, percent: WORKLOADS.iter().map(of_workload).collect() }
}

impl Measured {
    fn row(&self) -> String {
        let cell = |percent: Option<f64>| percent.map_or("-".to_owned(), |percent| format!("{percent:?}"));
        let mut row = format!("| `{}` | {} | {} |", self.name, self.slice, self.scale);
        for index in 0..WORKLOADS.len() {
            let _ = write!(row, " {} |", cell(self.percent.get(index).copied()));
        }
        row + &format!(" {} |", cell(self.largest()))
    }

    fn largest(&self) -> Option<f64> {
        self.percent.iter().copied().reduce(f64::max)
    }

    /// Sets the machine file's figure, below its scale, and the figure's source.
    fn write(&self) -> io::Result<()> {
        let path = root().join("machines").join(format!("{}.toml", self.name));
        let text = fs::read_to_string(&path)?;
        let mut lines: Vec<String> =
            text.lines().filter(|line| !line.starts_with(FIGURE)).map(str::to_owned).collect();
        if let Some(percent) = self.largest() {
            let mut insert_below = |start: &str, line: String| {
                if let Some(at) = lines.iter().position(|line| line.starts_with(start)) {
                    lines.insert(at + 1, line);
                }
            };
            insert_below("scale = ", format!("{FIGURE} = {percent:?}"));
            insert_below("default = ", format!("{FIGURE} = \"memtide: scripts/reductions\""));
        }
        fs::write(path, lines.join("\n") + "\n")
    }
}

/// The page: rows of the measured machines, and the earlier ones of the others.
fn page(measured: &[Measured], earlier: &str) -> String {
    let mut page = format!(
        "# Reductions of the bundled machines\n\nWritten by `scripts/reductions`. Each workload runs under\n\
         {}\n\
         at the slice and scale of the machine's file, at half and at a quarter of them, with a thread on\n\
         each CPU and {FOOTPRINT_MIB} MiB for the first, so that all stand for the same program. Figures\n\
         are the largest difference of a policy's ratio to `local` between the first and the others, in per\n\
         cent.\n\n| machine | slice | scale |",
        POLICIES.map(|policy| format!("`{policy}`")).join(", ")
    );
    for workload in WORKLOADS {
        let _ = write!(page, " {} |", workload.name);
    }
    page += " largest |\n";
    page += &"| --- ".repeat(WORKLOADS.len() + 4);
    page += "|\n";
    for name in bundled::names() {
        let old =
            || earlier.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).map(str::to_owned);
        let new = measured.iter().find(|machine| machine.name == name).map(Measured::row);
        if let Some(row) = new.or_else(old) {
            let _ = writeln!(page, "{row}");
        }
    }
    page += "\nA dash: one node, or not reduced by 4.\n";
    page
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
