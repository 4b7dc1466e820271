//! `memtide machine devices`.

use memtide_core::FileError;
use memtide_core::machine::device::{self, Device};
use memtide_core::suggest;

use super::show::unit;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print this device's fields with their sources
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Lists the devices, or prints one.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let document = match &arguments.device {
        None => list()?,
        Some(name) => {
            let known = device::names();
            let found = device::device(name)
                .ok_or_else(|| Failure::Usage(suggest::unknown("device", name, &known)))?;
            show(&found.map_err(broken)?)
        }
    };
    document.print(arguments.common.output)
}

fn list() -> Result<Document, Failure> {
    let columns = [
        ("name", "name"),
        ("channels", "channels"),
        ("channel_mbps", "MB/s a channel"),
        ("closed_row_ns", "closed row, ns"),
        ("summary", "summary"),
    ];
    let mut table = Table::new("devices", &columns);
    for device in device::names().into_iter().filter_map(device::device) {
        let device = device.map_err(broken)?;
        let dram = device.fields().map_err(broken)?;
        let closed_row = u64::from(dram.rcd) + u64::from(dram.cl) + u64::from(dram.burst);
        table.rows.push(vec![
            Cell::text(&device.name),
            Cell::Whole(dram.channels.into()),
            Cell::Real(dram.channel_peak().as_mbps(), 0),
            Cell::Real(dram.cycles(closed_row).as_ns(), 1),
            Cell::text(&device.summary),
        ]);
    }
    let note = "Name one in a machine file: `device = \"ddr5-4800\"` in [node.dram]. Fields beside it \
        override the device's.";
    Ok(Document { notes: vec![note.to_owned()], ..Document::of(table) })
}

fn show(device: &Device) -> Document {
    let columns = [("field", "field"), ("value", "value"), ("unit", "unit"), ("source", "source")];
    let mut table = Table::new("fields", &columns);
    let row = |(field, value): (&str, String)| {
        let source = device.source_of(field);
        vec![Cell::text(field), Cell::text(value), Cell::text(unit(field, true)), Cell::text(source)]
    };
    table.rows = device.values().map(row).collect();
    let about = vec![("device", Cell::text(&device.name)), ("summary", Cell::text(&device.summary))];
    Document { about, ..Document::of(table) }
}

fn broken(error: FileError) -> Failure {
    Failure::Input(error.to_string())
}
