//! The memtide daemon: watches processes and migrates their pages by a migration policy.
//!
//! [`Daemon`] is the loop, [`control`] the client protocol, [`journal`] the record for replays of its
//! decisions. Nothing here prints: the caller receives messages through a callback, data, and
//! [`DaemonError`].

mod accesses;
pub mod config;
pub mod control;
mod daemon;
mod error;
mod history;
mod host;
pub mod journal;
mod policy;
mod recent;
mod reload;
mod replies;
mod run;
mod setup;
pub mod status;
#[cfg(test)]
mod tests;
pub mod transfers;
mod troubles;
mod watcher;

pub use config::{Config, ConfigSource, TIME_SCALE_MAX};
pub use daemon::Daemon;
pub use error::{DaemonError, Fault};
pub use host::DaemonHost;
pub use policy::{PolicyRefused, migration, parse_migration};
pub use run::End;
pub use setup::Setup;
