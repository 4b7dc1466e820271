//! Failures from errors of libraries: exit codes, and advice about options and commands.

pub mod lab;
pub mod system;
pub mod trace;

use memtide_daemon::{DaemonError, Fault, PolicyRefused};
use memtide_linux::machines::MachineError;
use memtide_linux::topology::NoMachine;

use crate::failure::Failure;

/// For a machine that cannot be loaded.
pub fn on_machine(error: MachineError) -> Failure {
    let message = format!("{error}{}", of_machine(&error));
    match error {
        MachineError::Unknown { .. } | MachineError::OtherNodes { .. } => Failure::Usage(message),
        MachineError::NoMachine(_) => Failure::Run(message),
        _ => Failure::Input(message),
    }
}

/// For a system that cannot be converted to a machine.
pub fn on_no_machine(error: &NoMachine) -> Failure {
    Failure::Run(format!("{error}{}", of_no_machine(error)))
}

/// For a request that a paused daemon refuses.
pub fn on_paused() -> Failure {
    Failure::Run("the daemon is paused; resume it with `memtide resume`".to_owned())
}

/// For a policy that a daemon cannot run.
pub fn on_policy(error: &PolicyRefused) -> Failure {
    Failure::Usage(format!("{error}{}", of_policy(error)))
}

/// For an error of the daemon or its client.
pub fn on_daemon(error: DaemonError) -> Failure {
    match error {
        DaemonError::ConfigUnreadable { .. }
        | DaemonError::ConfigNotText { .. }
        | DaemonError::ConfigRefused { .. } => Failure::Input(error.to_string()),
        DaemonError::Key { ref fault, .. } => Failure::Input(match fault {
            Fault::Policy(why) => format!("{error}{}", of_policy(why)),
            Fault::Machine(why) => format!("{error}{}", of_machine(why)),
            Fault::Value(_) => error.to_string(),
        }),
        DaemonError::MachineFile(error) => on_machine(error),
        DaemonError::NoMachine { error: ref why, .. } => {
            Failure::Run(format!("{error}{}", of_no_machine(why)))
        }
        DaemonError::NodeList { field, why } => Failure::Usage(format!("--{field}: {why}")),
        DaemonError::SameNode(node) => Failure::Usage(format!("--from and --to both name node {}", node.0)),
        DaemonError::NoRate => {
            Failure::Usage("invalid value '0' for '--max-rate': expected an integer of at least 1".to_owned())
        }
        other => Failure::Run(other.to_string()),
    }
}

fn of_machine(error: &MachineError) -> String {
    match error {
        MachineError::Trace { .. } => "; give it by --trace".to_owned(),
        MachineError::OtherNodes { .. } => {
            "; see `memtide topo`, and `memtide topo -o machine` for a file of it".to_owned()
        }
        MachineError::NoMachine(error) => of_no_machine(error),
        _ => String::new(),
    }
}

fn of_no_machine(error: &NoMachine) -> String {
    match error {
        NoMachine::Unknown { .. } => {
            "; measure them (memtide measure -o json > measured.json), write a machine file (memtide topo -o \
             machine --measured measured.json > machine.toml), and name that one: --machine machine.toml, or \
             for the daemon machine = \"machine.toml\""
                .to_owned()
        }
        _ => String::new(),
    }
}

fn of_policy(error: &PolicyRefused) -> String {
    match error {
        PolicyRefused::Pair { placement, .. } => {
            format!(". `memtide run --placement {placement}` is for the placement")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_key_keeps_its_place_and_gains_advice() {
        let why = memtide_daemon::parse_migration("local+hot-cold").map(drop).expect_err("a pair");
        let key = DaemonError::Key { place: "memtide.toml:3: policy".to_owned(), fault: why.into() };
        let Failure::Input(message) = on_daemon(key) else { panic!("a configuration is a file") };
        assert_eq!(
            message,
            "memtide.toml:3: policy: 'local+hot-cold' has a placement; name the migration policy only: \
             'hot-cold'. `memtide run --placement local` is for the placement"
        );
    }

    #[test]
    fn refused_request_names_its_option() {
        let field = DaemonError::NodeList { field: "from", why: "no node 7".to_owned() };
        assert!(matches!(on_daemon(field), Failure::Usage(message) if message == "--from: no node 7"));
        let no_rate = on_daemon(DaemonError::NoRate);
        assert!(matches!(no_rate, Failure::Usage(message) if message.contains("--max-rate")));
    }
}
