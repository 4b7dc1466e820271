//! A machine file with the figures that `memtide measure -o json` printed.

use std::fs;

use memtide_core::NodeId;
use memtide_linux::topology::{Measured, NoMachine, System};
use serde::Deserialize;

use crate::failure::Failure;

/// A pair, as it was printed.
#[derive(Debug, Deserialize)]
struct Row {
    initiator: NodeId,
    node: NodeId,
    idle_ns: Option<f64>,
    read_mbps: Option<f64>,
    #[serde(default)]
    write_mbps: Option<f64>,
    #[serde(default)]
    cached: bool,
}

#[derive(Debug, Deserialize)]
struct Point {
    initiator: NodeId,
    node: NodeId,
    mbps: f64,
    latency_ns: f64,
}

#[derive(Debug, Deserialize)]
struct Printed {
    nodes: Vec<Row>,
    #[serde(default)]
    loaded: Vec<Point>,
}

impl Printed {
    fn read(file: &str) -> Result<Printed, Failure> {
        let text = fs::read_to_string(file).map_err(|error| Failure::unreadable(file, &error))?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::Input(format!("{file}: is not what `memtide measure -o json` prints ({error})"))
        })
    }

    /// The pairs' figures. What could not be measured is left out.
    fn figures(&self) -> Vec<Measured> {
        let figures = |row: &Row| {
            let here = |point: &&Point| (point.initiator, point.node) == (row.initiator, row.node);
            Some(Measured {
                initiator: row.initiator,
                node: row.node,
                idle_ns: row.idle_ns?,
                read_mbps: row.read_mbps?,
                write_mbps: row.write_mbps,
                loaded: self.loaded.iter().filter(here).map(|point| (point.mbps, point.latency_ns)).collect(),
            })
        };
        self.nodes.iter().filter_map(figures).collect()
    }

    /// What is to be said of figures that are in doubt.
    fn doubts(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().filter(|row| row.cached).map(|row| {
            format!(
                "a cache held much of the measured memory of {} from {}: its figures may be too good; raise --mib",
                row.node, row.initiator
            )
        })
    }
}

/// A machine file of this system with what a file says before the firmware's figures; says which of them are in doubt.
pub fn machine_file(host: &System, name: &str, file: &str) -> Result<String, Failure> {
    let printed = Printed::read(file)?;
    for doubt in printed.doubts() {
        message!("memtide: {file}: {doubt}");
    }
    let machine = host.machine(name, &printed.figures()).map_err(|error| refused(file, &error))?;
    Ok(machine.to_toml())
}

fn refused(file: &str, error: &NoMachine) -> Failure {
    let again = format!("measure again: memtide measure -o json > {file}");
    match error {
        NoMachine::Unknown { initiator, node } => Failure::Input(format!(
            "{file}: latency and bandwidth of {node} from the CPUs of {initiator} are in neither this file nor the firmware; \
             {again}, without --nodes and --initiators, and with memory free on each node"
        )),
        NoMachine::Refused(why) => {
            let field = if why.field.is_empty() { String::new() } else { format!("{}: ", why.field) };
            Failure::Input(format!(
                "{file}: its figures are not a valid machine: {field}{}; {again}",
                why.message
            ))
        }
        NoMachine::Nothing(_) => Failure::Run(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Printed {
        serde_json::from_str(text).expect("what is printed")
    }

    #[test]
    fn unmeasured_pairs_are_left_out_and_cached_ones_reported() {
        let printed = printed(
            r#"{"nodes": [
                {"initiator": 0, "node": 0, "cached": true, "idle_ns": 90.0, "read_mbps": 5000.0, "write_mbps": null},
                {"initiator": 0, "node": 1, "cached": false, "idle_ns": null, "read_mbps": null}],
              "loaded": [{"initiator": 0, "node": 0, "rate": 0.5, "mbps": 100.0, "latency_ns": 95.0}]}"#,
        );
        let figures = printed.figures();
        assert_eq!(figures.iter().map(|found| found.node).collect::<Vec<_>>(), [NodeId(0)]);
        assert_eq!(figures[0].loaded, [(100.0, 95.0)]);
        let doubts: Vec<String> = printed.doubts().collect();
        assert!(doubts.len() == 1 && doubts[0].contains("the measured memory of node0"), "{doubts:?}");
    }

    #[test]
    fn refusals_name_the_file_and_what_to_do() {
        let unknown = NoMachine::Unknown { initiator: NodeId(0), node: NodeId(3) };
        let Failure::Input(told) = refused("m.json", &unknown) else { panic!("{unknown}") };
        for part in ["m.json: ", "node3", "memtide measure -o json > m.json", "without --nodes"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(matches!(refused("m.json", &NoMachine::Nothing("CPUs")), Failure::Run(_)));
    }
}
