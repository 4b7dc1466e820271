//! `memtide man`.

use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::answer;
use crate::cli;
use crate::failure::Failure;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder for the pages; made if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes `memtide.1` and a page for every command below it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).map_err(|error| Failure::unwritable(folder.display(), &error))?;
    let mut definition = cli::definition();
    definition.build();
    let written = pages(definition, "memtide", folder)?;
    answer::print(&format!("{written} man pages in {}\n", folder.display()))
}

fn pages(command: clap::Command, name: &str, folder: &Path) -> Result<usize, Failure> {
    let mut written = 1;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        written += pages(sub.clone(), &format!("{name}-{}", sub.get_name()), folder)?;
    }
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .render(&mut page)
        .and_then(|()| std::fs::write(&path, page))
        .map_err(|error| Failure::unwritable(path.display(), &error))?;
    Ok(written)
}
