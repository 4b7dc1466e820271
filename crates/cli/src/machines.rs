//! Machines by name or by file.

use std::path::Path;

use include_dir::{Dir, include_dir};
use memtide_core::Machine;
use memtide_linux::topology::System;
use memtide_policies::Info;

use crate::failure::Failure;
use crate::suggest;

static BUNDLED: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../machines");

/// Names of the bundled machines, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = BUNDLED.files().filter_map(|f| f.path().file_stem()?.to_str()).collect();
    names.sort_unstable();
    names
}

/// The bundled machine of a name.
pub fn bundled(name: &str) -> Option<Result<Machine, Failure>> {
    let file = BUNDLED.get_file(format!("{name}.toml"))?;
    Some(parsed(&format!("{name}.toml"), file.contents_utf8().unwrap_or_default()))
}

/// The machine that a command line names: a bundled one by its name, or a machine file by its path.
pub fn load(name_or_path: &str) -> Result<Machine, Failure> {
    let path = Path::new(name_or_path);
    match bundled(name_or_path) {
        Some(machine) => machine,
        None if is_path(name_or_path) || path.is_file() => {
            let bytes = std::fs::read(path).map_err(|e| Failure::unreadable(name_or_path, &e))?;
            let text = String::from_utf8(bytes).map_err(|error| no_text(name_or_path, error.as_bytes()))?;
            parsed(name_or_path, &text)
        }
        None => {
            let unknown = suggest::unknown("machine", name_or_path, &names());
            Err(Failure::Usage(format!("{unknown}; or give the path of a machine file")))
        }
    }
}

/// Whether this can only be a machine file, and no bundled machine's name.
pub fn is_path(name_or_path: &str) -> bool {
    let path = Path::new(name_or_path);
    path.extension().is_some() || path.components().count() > 1
}

/// As [`load`], with another `scale` if one is given.
pub fn load_at(name_or_path: &str, scale: Option<u32>) -> Result<Machine, Failure> {
    let mut machine = load(name_or_path)?;
    let Some(scale) = scale else { return Ok(machine) };
    let most = machine.nodes.iter().map(|node| node.capacity_mib).min().unwrap_or(1);
    if scale == 0 || u64::from(scale) > most {
        let message = format!(
            "--scale {scale}: must be from 1 to {most}, or a node of '{}' has no memory left",
            machine.name
        );
        return Err(Failure::Usage(message));
    }
    machine.scale = scale;
    Ok(machine)
}

/// This system as a machine: the one named, which has as many nodes as there are here, in their order, or the firmware's figures, which
/// must be there if `policy` reckons with them.
pub fn of_host(host: &System, name: Option<&str>, policy: &Info) -> Result<Machine, Failure> {
    let Some(name) = name else {
        let text = match policy.figures {
            true => host.machine_file("host", &[]),
            false => host.machine_file_without_figures("host"),
        };
        let text = text.map_err(|error| Failure::Run(format!("policy '{}': {error}", policy.name)))?;
        return Machine::parse("host", &text).map_err(|error| Failure::Run(error.to_string()));
    };
    let machine = load(name)?;
    let here = host.with_memory().count();
    if machine.nodes.len() != here {
        let (named, nodes) = (&machine.name, machine.nodes.len());
        return Err(Failure::Usage(format!(
            "machine '{named}' has {nodes} memory nodes, this system {here}; see `memtide topo`, and \
             `memtide topo -o machine` for a file of it"
        )));
    }
    // What is real is not scaled.
    Ok(Machine { scale: 1, ..machine })
}

/// A machine file is text; a trace is what is most easily taken for one.
fn no_text(file: &str, bytes: &[u8]) -> Failure {
    let what = if bytes.starts_with(b"PAR1") {
        "a trace, no machine file; give it by --trace"
    } else {
        "no machine file, which is text in UTF-8"
    };
    Failure::Input(format!("{file}: {what}"))
}

fn parsed(file: &str, text: &str) -> Result<Machine, Failure> {
    Machine::parse(file, text).map_err(|error| Failure::Input(error.to_string()))
}
