//! `memtide lab shell`.

use std::ffi::OsString;
use std::io::{IsTerminal, sink, stdin, stdout};

use memtide_lab::{Options, Output, run as run_in_lab};

use super::{guest, memory};
use crate::failure::Failure;
use crate::interrupt;

/// A shell with the usual programs in one file.
const BUSYBOX: &str = "busybox";

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    guest: guest::GuestOptions,
    #[command(flatten)]
    memory: memory::MemoryOptions,
    /// Seed for everything random in the guest
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// Opens the shell on the terminal, until it ends.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::Usage(
            "a shell needs a terminal; for a script: memtide lab run -- SCRIPT".to_owned(),
        ));
    }
    let command: Vec<OsString> = [BUSYBOX, "sh", "-l"].map(OsString::from).into();
    let (options, tools) = arguments.guest.options(command, arguments.seed)?;
    let environment = options.environment.into_iter().chain([("PS1".to_owned(), "lab:\\w\\$ ".to_owned())]);
    let options = Options { environment: environment.collect(), interactive: true, ..options };
    let options = arguments.memory.of(options);
    message!("memtide: booting the guest; `exit` ends it");
    let output = Output { out: Box::new(sink()), err: Box::new(sink()) };
    let outcome = run_in_lab(&options, &tools, output, &interrupt::requested).map_err(guest::failure)?;
    if let Some(kept) = outcome.kept {
        message!("memtide: kept in {}", kept.display());
    }
    Ok(())
}
