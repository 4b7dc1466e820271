//! The command without the lab. One program, to link once.

mod command;
mod explain;
mod figures;
mod machines;
mod mix;
mod output;
mod probe;
mod record;
mod refused;
mod report;
mod repro;
mod run_file;
mod support;
mod validate;
mod verdict;
mod what_if;
mod words;
