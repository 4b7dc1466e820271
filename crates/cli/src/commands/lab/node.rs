//! `memtide lab node`.

use std::time::Duration;

use clap::Subcommand;
use memtide_lab::{Hotplug, LabError, running};

use crate::advice;
use crate::failure::Failure;
use crate::options::seconds;
use crate::output::{Cell, Document, Format, Table};

/// Its subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plug the memory of a node into a running guest
    Add(NodeSelector),
    /// Unplug the memory of a node; the guest migrates its pages away
    Remove(Remove),
    /// List running guests with hotpluggable nodes
    List(List),
}

/// A node of a guest.
#[derive(Debug, clap::Args)]
pub struct NodeSelector {
    /// Node named by `--absent` of `memtide lab run` or `shell`
    #[arg(value_name = "NODE")]
    node: String,
    /// Guest in `memtide lab node list` [default: the only one]
    #[arg(long, value_name = "RUN")]
    run: Option<u32>,
}

/// Arguments of `remove`.
#[derive(Debug, clap::Args)]
pub struct Remove {
    #[command(flatten)]
    selector: NodeSelector,
    /// Time limit, in seconds of host time
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    timeout: Duration,
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Add(selector) => selector.find().and_then(|mut plug| plug.add()).map_err(failure),
        Command::Remove(Remove { selector, timeout }) => {
            selector.find().and_then(|mut plug| plug.remove(timeout)).map_err(failure)
        }
        Command::List(list) => nodes().map_err(failure)?.print(list.output),
    }
}

impl NodeSelector {
    fn find(&self) -> Result<Hotplug, LabError> {
        Hotplug::find(self.run, &self.node)
    }
}

fn nodes() -> Result<Document, LabError> {
    let columns = [
        ("run", "run"),
        ("node", "node"),
        ("machine", "machine"),
        ("program", "program"),
        ("capacity_mib", "capacity, MiB"),
        ("is_in", "in"),
    ];
    let mut table = Table::new("nodes", &columns).with_keys(2);
    for guest in running()? {
        for node in &guest.nodes {
            let is_in = match Hotplug::find(Some(guest.run), &node.name).and_then(|mut plug| plug.is_in()) {
                Ok(is_in) => Cell::Flag(is_in, "yes".into()),
                // It has exited.
                Err(_) if !running()?.contains(&guest) => continue,
                Err(error) => {
                    message!("memtide: {}", advice::lab::message(&error));
                    Cell::Absent
                }
            };
            table.rows.push(vec![
                Cell::Whole(guest.run.into()),
                Cell::text(&node.name),
                Cell::text(&guest.machine),
                Cell::text(&guest.program),
                Cell::Whole(node.mib),
                is_in,
            ]);
        }
    }
    let nothing = table.rows.is_empty().then(|| "no guest with hotpluggable nodes is running".to_owned());
    Ok(Document { notes: nothing.into_iter().collect(), ..Document::of(table) })
}

fn failure(error: LabError) -> Failure {
    Failure::Run(advice::lab::message(&error))
}
