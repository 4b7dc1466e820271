//! A machine file with the figures that `memtide measure -o json` printed.

use std::io::Read;
use std::path::Path;

use memtide_linux::input;
use memtide_linux::topology::{MeasuredFile, NoMachine, System};

use crate::commands::measure::doubts;
use crate::failure::Failure;

fn read(file: &str) -> Result<MeasuredFile, Failure> {
    let mut text = String::new();
    input::open(Path::new(file))
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|error| Failure::unreadable(file, &error))?;
    MeasuredFile::parse(text.as_bytes()).map_err(|error| {
        Failure::Input(format!("{file}: is not what `memtide measure -o json` prints ({error})"))
    })
}

/// A machine file of this system: measurements from `file` override the firmware's figures. Prints which of
/// them are doubtful.
pub fn machine_file(host: &System, name: &str, file: &str) -> Result<String, Failure> {
    let measured = read(file)?;
    for doubt in doubts(&measured, "--mib") {
        message!("memtide: {file}: {doubt}");
    }
    let machine = host.machine(name, &measured.figures()).map_err(|error| refused(file, &error))?;
    Ok(machine.to_toml())
}

fn refused(file: &str, error: &NoMachine) -> Failure {
    let again = format!("measure again: memtide measure -o json > {file}");
    match error {
        NoMachine::Unknown { initiator, node } => Failure::Input(format!(
            "{file}: latency and bandwidth of {node} from the CPUs of {initiator} are in neither this file \
             nor the firmware; {again}, without --nodes and --initiators, and with memory free on each node"
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
    use memtide_core::NodeId;

    use super::*;

    #[test]
    fn refusals_name_the_file_and_what_to_do() {
        let unknown = NoMachine::Unknown { initiator: NodeId(0), node: NodeId(3) };
        let Failure::Input(message) = refused("m.json", &unknown) else { panic!("{unknown}") };
        for part in ["m.json: ", "node3", "memtide measure -o json > m.json", "without --nodes"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(matches!(refused("m.json", &NoMachine::Nothing("CPUs")), Failure::Run(_)));
    }
}
