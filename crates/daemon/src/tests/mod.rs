//! The daemon on a fake host, without a virtual machine.

mod bench;
mod control;
mod fake;
mod journal;
mod migrate;
mod policy;
mod reload;
