//! QEMU: its command line, its process, and the pipes to it.

mod channel;
mod command;
mod process;

pub use channel::{Pump, Tail};
pub use command::VirtualMachine;
pub use process::Process;
