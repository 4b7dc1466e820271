//! Why the daemon, or what asks it, fails.

use std::io;
use std::path::PathBuf;

use memtide_core::policy::SensorRefused;
use memtide_core::{FileError, NodeId};
use memtide_linux::machines::MachineError;
use memtide_linux::topology::{NoMachine, TopologyError};

use crate::policy::PolicyRefused;

/// Why the daemon cannot start or go on, or why it cannot do what a request asks for.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be read.
    #[error("{}: cannot be read ({error}); check the path and its permissions", file.display())]
    ConfigUnreadable {
        /// Its file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The configuration is not text.
    #[error("{}: not a configuration, which is UTF-8 text", file.display())]
    ConfigNotText {
        /// Its file.
        file: PathBuf,
    },
    /// The configuration is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{error}{}{}", if hint.is_empty() { "" } else { "; " }, hint)]
    ConfigRefused {
        /// What is wrong and where.
        error: FileError,
        /// How to write such a value; empty if the error says all.
        hint: &'static str,
    },
    /// The value of a key of the configuration is refused.
    #[error("{place}: {fault}")]
    Key {
        /// The key, after its file and line if the configuration is from a file.
        place: String,
        /// What is wrong with the value.
        fault: Fault,
    },
    /// The machine file that the configuration names is refused.
    #[error(transparent)]
    MachineFile(MachineError),
    /// This system does not tell the figures that the policy uses.
    #[error("policy '{policy}': {error}")]
    NoMachine {
        /// The migration policy's name.
        policy: &'static str,
        /// What is missing.
        error: NoMachine,
    },
    /// This system's topology cannot be read.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A sensor that the policy requires cannot be had.
    #[error("cannot monitor memory: {0}")]
    Unwatched(#[from] SensorRefused),
    /// No monitor works for a new configuration, nor does that of the old one any more.
    #[error("cannot monitor memory: {error}; the previous monitor failed too: {before}")]
    NoLongerWatched {
        /// Why not as the new configuration says.
        error: SensorRefused,
        /// Why not as the old one says.
        before: SensorRefused,
    },
    /// A signal handler cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The thread that serves the control socket has ended.
    #[error("the control socket has failed")]
    SocketFailed,
    /// A new configuration finds other memory nodes than the daemon started with.
    #[error("memory nodes were added or removed; restart the daemon")]
    NodesChanged,
    /// A list of nodes in a request is refused.
    #[error("{field}: {why}")]
    NodeList {
        /// `from` or `to`.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A request names a node both as one to leave and as one to go to.
    #[error("from and to both name node {}", .0.0)]
    SameNode(NodeId),
    /// A request allows no rate.
    #[error("invalid value 0 for max_rate_mbps: expected an integer of at least 1")]
    NoRate,
    /// There is no such process, or it is another user's.
    #[error("{0}")]
    NoProcess(String),
    /// The caller wanted to stop.
    #[error("stopped")]
    Stopped,
    /// The pages of a process cannot be moved.
    #[error("process {pid}: {why}")]
    Process {
        /// The process.
        pid: i32,
        /// Why.
        why: String,
    },
}

/// What is wrong with a value of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The policy cannot be had.
    #[error(transparent)]
    Policy(#[from] PolicyRefused),
    /// There is no such machine, or it is not this system.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Anything else, with what is allowed.
    #[error("{0}")]
    Value(String),
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault::Value(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Fault {
        Fault::Value(why.to_owned())
    }
}
