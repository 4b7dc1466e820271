//! QEMU: its command line, its process, its monitor, and the pipes to it.

mod channel;
mod command;
mod monitor;
mod process;

pub use channel::{Pump, Tail};
pub use command::{START_SECONDS, VirtualMachine};
pub use monitor::Monitor;
pub use process::Process;
