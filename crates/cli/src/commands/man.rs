//! `memtide man`.

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::failure::Failure;
use crate::output::{self, VERSION};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder for the pages; created if missing
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes `memtide.1` and a page for every command below it.
pub fn run(arguments: &Arguments, mut definition: clap::Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    let made = match folder.exists() && !folder.is_dir() {
        true => Err(io::Error::other("it is a file; name a folder")),
        false => std::fs::create_dir_all(folder),
    };
    made.map_err(|error| Failure::unwritable(folder.display(), &error))?;
    definition.build();
    let written = pages(definition, "memtide", folder)?;
    output::print(&output::escaped(&format!("{written} man pages in {}\n", folder.display())))
}

fn pages(command: clap::Command, name: &str, folder: &Path) -> Result<usize, Failure> {
    let mut written = 1;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        written += pages(sub.clone(), &format!("{name}-{}", sub.get_name()), folder)?;
    }
    let path = folder.join(format!("{name}.1"));
    page(command, name)
        .and_then(|page| std::fs::write(&path, page))
        .map_err(|error| Failure::unwritable(path.display(), &error))?;
    Ok(written)
}

/// Renders a page. Works around the library: it omits the `--` before a program, and titles the text below
/// the options "extra".
fn page(command: clap::Command, name: &str) -> io::Result<String> {
    let program = command.get_positionals().find(|argument| argument.is_last_set()).cloned();
    let mut page = Vec::new();
    let source = format!("memtide {VERSION}");
    clap_mangen::Man::new(command).title(name.to_uppercase()).source(source).render(&mut page)?;
    let page = String::from_utf8_lossy(&page).replace(".SH EXTRA", ".SH \"EXIT STATUS\"");
    let Some([value]) = program.as_ref().and_then(|program| program.get_value_names()) else {
        return Ok(page);
    };
    Ok(["<", "["].iter().fold(page, |page, open| {
        page.replacen(&format!("{open}\\fI{value}\\fR"), &format!("\\-\\- {open}\\fI{value}\\fR"), 1)
    }))
}
