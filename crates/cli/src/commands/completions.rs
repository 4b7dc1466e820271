//! `memtide completions`.

use clap_complete::Shell;

use crate::answer;
use crate::cli;
use crate::failure::Failure;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::definition(), "memtide", &mut script);
    answer::print(&String::from_utf8_lossy(&script))
}
