//! `memtide completions`.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &Arguments, mut definition: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "memtide", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
