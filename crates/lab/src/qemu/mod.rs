//! QEMU: its command line, its process, and the pipes to it.

mod channel;
mod command;
mod monitor;
mod process;

pub use channel::{Pump, Tail};
pub use command::VirtualMachine;
pub use monitor::Monitor;
pub use process::Process;
