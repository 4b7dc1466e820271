//! Machines by name, from a file, or from this system.

use std::borrow::Cow;
use std::io::{self, Read};
use std::path::Path;

use memtide_core::machine::bundled;
use memtide_core::{FileError, Machine, suggest};

use crate::input;
use crate::topology::{Measurements, NoMachine, System};

/// Why a machine cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The name is neither a bundled machine's nor a file's.
    #[error("{}; or give the path of a machine file", suggest::unknown("machine", name, &bundled::names()))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The file cannot be read.
    #[error("{file}: cannot be read ({error}); check the path and its permissions")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// The file is a trace.
    #[error("{file}: a trace, not a machine file")]
    Trace {
        /// The file.
        file: String,
    },
    /// The file is not text.
    #[error("{file}: not a machine file, which is UTF-8 text")]
    NotText {
        /// The file.
        file: String,
    },
    /// The file is not a valid machine file.
    #[error(transparent)]
    Refused(#[from] FileError),
    /// The machine's number of memory nodes differs from this system's.
    #[error("machine '{machine}' has {nodes} memory nodes, this system {here}")]
    OtherNodes {
        /// The machine's name.
        machine: String,
        /// Number of its memory nodes.
        nodes: usize,
        /// Number of this system's memory nodes.
        here: usize,
    },
    /// This system provides too little data.
    #[error(transparent)]
    NoMachine(#[from] NoMachine),
}

/// Loads a bundled machine by name, or a machine file by path.
///
/// # Errors
/// If there is no such machine, or its file is refused.
pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
    let (file, text) = text(name_or_path)?;
    Ok(Machine::parse(&file, &text)?)
}

/// As [`load`], with [warnings on probable mistakes](Machine::warnings) in its file.
///
/// # Errors
/// As [`load`].
pub fn load_with_warnings(name_or_path: &str) -> Result<(Machine, Vec<FileError>), MachineError> {
    let (file, text) = text(name_or_path)?;
    let machine = Machine::parse(&file, &text)?;
    let warnings = machine.warnings(&file, &text);
    Ok((machine, warnings))
}

/// A machine file's name and text.
fn text(name_or_path: &str) -> Result<(String, Cow<'static, str>), MachineError> {
    let file = || name_or_path.to_owned();
    match bundled::text(name_or_path) {
        Some(text) => Ok((format!("{name_or_path}.toml"), text.into())),
        None if is_path(name_or_path) || Path::new(name_or_path).exists() => {
            let bytes =
                read(name_or_path).map_err(|error| MachineError::Unreadable { file: file(), error })?;
            let text = String::from_utf8(bytes).map_err(|error| match error.as_bytes() {
                // A trace is the file most easily mistaken for a machine file.
                [b'P', b'A', b'R', b'1', ..] => MachineError::Trace { file: file() },
                _ => MachineError::NotText { file: file() },
            })?;
            Ok((file(), text.into()))
        }
        None => Err(MachineError::Unknown { name: file() }),
    }
}

/// A file's bytes, up to just over the size limit: it may be an endless device.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(Path::new(path))?.take(Machine::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether this can only be a machine file's path, not a bundled machine's name.
pub fn is_path(name_or_path: &str) -> bool {
    let path = Path::new(name_or_path);
    path.extension().is_some() || path.components().count() > 1
}

/// This system as a machine.
///
/// With a name: the machine of that name or path, which must have as many memory nodes as this system, in the
/// same order.
/// Without: the machine that the kernel and the firmware describe; if `figures`, latencies and bandwidths
/// must be known.
///
/// # Errors
/// As [`load`]; if the numbers of nodes differ; or if the firmware does not provide the figures.
pub fn of_host(host: &System, name: Option<&str>, figures: bool) -> Result<Machine, MachineError> {
    let Some(name) = name else {
        let machine = if figures {
            host.machine("host", &Measurements::default())
        } else {
            host.machine_without_figures("host")
        };
        return Ok(machine?);
    };
    let machine = load(name)?;
    let here = host.with_memory().count();
    if machine.nodes.len() != here {
        let nodes = machine.nodes.len();
        return Err(MachineError::OtherNodes { machine: machine.name, nodes, here });
    }
    // A real machine is whole.
    Ok(Machine { slice: 1, scale: 1, ..machine }.without_deviation())
}
