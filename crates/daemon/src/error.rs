//! Errors of the daemon and of its clients.

use std::io;
use std::path::PathBuf;

use memtide_core::policy::SensorRefused;
use memtide_core::{FileError, NodeId};
use memtide_linux::machines::MachineError;
use memtide_linux::topology::{NoMachine, TopologyError};

use crate::policy::PolicyRefused;

/// Why the daemon cannot start or continue, or cannot serve a request.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration cannot be read.
    #[error("{}: cannot be read ({error}); check the path and its permissions", file.display())]
    ConfigUnreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The configuration is not UTF-8 text.
    #[error("{}: not a configuration, which is UTF-8 text", file.display())]
    ConfigNotText {
        /// The file.
        file: PathBuf,
    },
    /// The configuration is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{error}{}{}", if hint.is_empty() { "" } else { "; " }, hint)]
    ConfigRefused {
        /// What is wrong and where.
        error: FileError,
        /// The correct syntax; empty if the error says all.
        hint: &'static str,
    },
    /// The value of a key of the configuration is refused.
    #[error("{place}: {fault}")]
    Key {
        /// The key, with its file and line if the configuration is from a file.
        place: String,
        /// What is wrong with the value.
        fault: Fault,
    },
    /// The machine file that the configuration names is refused.
    #[error(transparent)]
    MachineFile(MachineError),
    /// This system does not provide the figures that the policy uses.
    #[error("policy '{policy}': {error}")]
    NoMachine {
        /// The migration policy's name.
        policy: &'static str,
        /// The missing figure.
        error: NoMachine,
    },
    /// This system's topology cannot be read.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A sensor that the policy requires is refused.
    #[error("cannot monitor memory: {0}")]
    Unwatched(#[from] SensorRefused),
    /// No monitor works for a new configuration, nor for the old one any more.
    #[error("cannot monitor memory: {error}; the previous monitor failed too: {before}")]
    NoLongerWatched {
        /// The error for the new configuration.
        error: SensorRefused,
        /// The error for the old one.
        before: SensorRefused,
    },
    /// A signal handler cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The thread that serves the control socket has ended.
    #[error("the control socket has failed")]
    SocketFailed,
    /// A new configuration finds other memory nodes than at the daemon's start.
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
    /// A request has a node among both the source and the target nodes.
    #[error("from and to both name node {}", .0.0)]
    SameNode(NodeId),
    /// A request has a rate of 0.
    #[error("invalid value 0 for max_rate_mbps: expected an integer of at least 1")]
    NoRate,
    /// There is no such process, or it is another user's.
    #[error("{0}")]
    NoProcess(String),
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
    /// The pages of a process cannot be moved.
    #[error("process {pid}: {why}")]
    Process {
        /// The process.
        pid: i32,
        /// The cause.
        why: String,
    },
}

/// What is wrong with a value of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The policy is refused.
    #[error(transparent)]
    Policy(#[from] PolicyRefused),
    /// The machine cannot be loaded, or does not match this system.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// Any other error, with the allowed values.
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
