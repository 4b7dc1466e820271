//! Machines by name or path.

use memtide_core::{FileError, Machine};
use memtide_linux::machines;

use crate::advice;
use crate::failure::Failure;

/// Loads a bundled machine by name, or a machine file by path.
pub fn load(name_or_path: &str) -> Result<Machine, Failure> {
    machines::load(name_or_path).map_err(advice::on_machine)
}

/// As [`load`], with warnings about doubtful figures.
pub fn load_with_warnings(name_or_path: &str) -> Result<(Machine, Vec<FileError>), Failure> {
    machines::load_with_warnings(name_or_path).map_err(advice::on_machine)
}

/// As [`load`], with another `scale` if one is given.
pub fn load_at(name_or_path: &str, scale: Option<u32>) -> Result<Machine, Failure> {
    let mut machine = load(name_or_path)?;
    let Some(scale) = scale else { return Ok(machine) };
    let most = machine.nodes.iter().map(|node| node.capacity_mib).min().unwrap_or(1);
    if scale == 0 || u64::from(scale) > most {
        let message = format!(
            "invalid value '{scale}' for '--scale': expected an integer from 1 to {most}, or a node of '{}' \
             has no memory left",
            machine.name
        );
        return Err(Failure::Usage(message));
    }
    machine.scale = scale;
    Ok(machine)
}
