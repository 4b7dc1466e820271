//! `memtide lab setup`.

use memtide_lab::{SetupOptions, setup};

use crate::advice;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernel, or start of a package's name [default: Debian's Linux 6.12]
    #[arg(long, value_name = "FILE|PACKAGE")]
    kernel: Option<String>,
    /// Additional suite to search, such as trixie-backports
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Gets missing parts and prints all parts.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = SetupOptions { kernel: arguments.kernel.clone(), suite: arguments.suite.clone() };
    let report = setup(&options).map_err(|error| Failure::Run(advice::lab::message(&error)))?;
    let tools = &report.tools;
    let mut table = Table::new("parts", &[("part", "part"), ("file", "file"), ("version", "version")]);
    let mut add = |part: &str, file: Option<String>, version: &str| {
        let file = file.map_or(Cell::Absent, Cell::text);
        table.rows.push(vec![Cell::text(part), file, Cell::text(version)]);
    };
    add("QEMU", Some(tools.qemu.display().to_string()), &tools.qemu_version);
    add("kernel", Some(tools.kernel.display().to_string()), "");
    add("agent", Some(tools.agent.display().to_string()), "");
    add("clock plugin", tools.clock.as_ref().map(|path| path.display().to_string()), "");
    add("damo", tools.damo.as_ref().map(|path| path.display().to_string()), "");
    add("busybox", tools.busybox.as_ref().map(|path| path.display().to_string()), "");
    let mut notes: Vec<String> = report.fetched.iter().map(|package| format!("fetched {package}")).collect();
    let without_damo = report.without_damo.as_ref().map(advice::lab::message);
    notes.extend(without_damo.map(|why| format!("{why}; only the subject damo needs it")));
    notes.extend(tools.busybox.is_none().then(|| advice::lab::NO_BUSYBOX.to_owned()));
    notes.extend(tools.clock().err().as_ref().map(advice::lab::message));
    Document { notes, ..Document::of(table) }.print(arguments.common.output)
}
