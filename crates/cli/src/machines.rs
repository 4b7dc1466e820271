//! Machines by name or path.

use memtide_core::{FileError, Machine};
use memtide_linux::machines;

use crate::advice;
use crate::failure::Failure;
use crate::options::{Overrides, Settings};
use crate::output::Cell;

/// Loads a bundled machine by name, or a machine file by path.
pub fn load(name_or_path: &str) -> Result<Machine, Failure> {
    machines::load(name_or_path).map_err(advice::on_machine)
}

/// As [`load`], with warnings about doubtful figures.
pub fn load_with_warnings(name_or_path: &str) -> Result<(Machine, Vec<FileError>), Failure> {
    machines::load_with_warnings(name_or_path).map_err(advice::on_machine)
}

/// As [`load`], with other figures if they are given.
pub fn load_with(name_or_path: &str, Settings { set }: &Settings) -> Result<Machine, Failure> {
    let machine = load(name_or_path)?;
    let changed = if set.is_empty() { Ok(machine) } else { machine.with(set) };
    changed.map_err(|error| Failure::Usage(format!("--set {error}")))
}

/// As [`load_with`], with another `slice` and `scale` if they are given.
pub fn load_at(name_or_path: &str, overrides: &Overrides) -> Result<Machine, Failure> {
    let Overrides { settings, slice, scale } = overrides;
    for (name, given) in [("slice", slice), ("scale", scale)] {
        check_set_once(settings, name, *given)?;
    }
    let (slice, scale) = (*slice, *scale);
    let mut machine = load_with(name_or_path, settings)?;
    let measured_at = u64::from(machine.slice) * u64::from(machine.scale);
    if let Some(slice) = slice {
        check_slice(&machine, slice)?;
        machine.slice = slice;
    }
    let scale = scale.unwrap_or(machine.scale);
    if u64::from(machine.slice) * u64::from(scale) < measured_at {
        // It was measured at the file's slice and scale: it is less here, by how much is not known.
        machine = machine.without_deviation();
    }
    let least_mib = machine.nodes.iter().map(|node| node.capacity_mib).min().unwrap_or(1);
    let most = least_mib / u64::from(machine.slice);
    if scale == 0 || u64::from(scale) > most {
        let message = format!(
            "invalid value '{scale}' for '--scale': expected an integer from 1 to {most}, so that each node \
             of '{}' has memory",
            machine.name
        );
        return Err(Failure::Usage(message));
    }
    machine.scale = scale;
    Ok(machine)
}

/// A machine's name, and the figures that were set, for results.
pub fn about(machine: &Machine) -> Vec<(&'static str, Cell)> {
    let set: Vec<&str> = machine.settings().collect();
    let set = (!set.is_empty()).then(|| ("set", Cell::text(set.join(" "))));
    [("machine", Cell::text(&machine.name))].into_iter().chain(set).collect()
}

/// Refuses a value both from its option and from `--set`.
fn check_set_once(Settings { set }: &Settings, name: &str, given: Option<u32>) -> Result<(), Failure> {
    match (set.iter().find(|setting| setting.path() == name), given) {
        (Some(setting), Some(given)) => {
            Err(Failure::Usage(format!("--{name} {given}: --set {setting} sets it, too; give one of them")))
        }
        _ => Ok(()),
    }
}

/// Refuses a slice that would divide a core.
fn check_slice(machine: &Machine, slice: u32) -> Result<(), Failure> {
    let divides = |by: u32| machine.initiators.iter().all(|i| u32::from(i.cpus).is_multiple_of(by));
    let least_mib = machine.nodes.iter().map(|node| node.capacity_mib).min().unwrap_or(1);
    let allowed = |by: &u32| divides(*by) && u64::from(*by) <= least_mib;
    let most = machine.initiators.iter().map(|i| u32::from(i.cpus)).min().unwrap_or(1);
    if slice > 0 && allowed(&slice) {
        return Ok(());
    }
    let known: Vec<String> = (1..=most).filter(allowed).map(|by| by.to_string()).collect();
    let message = format!(
        "invalid value '{slice}' for '--slice': expected a divisor of the CPUs of each initiator of '{}': {}",
        machine.name,
        known.join(", ")
    );
    Err(Failure::Usage(message))
}
