//! QEMU: its command line, its process, its control protocol, and the pipes to it.

mod channel;
mod command;
mod process;
mod qmp;

pub use channel::{Pump, Tail};
pub use command::CommandLine;
pub use process::Process;
pub use qmp::Qmp;
