//! Bundled devices: presets of `[node.dram]`.
//!
//! `device = "ddr5-4800"` stands for the device's fields that the table does not have itself. It is expanded
//! in the file's text, before that is parsed: a field of a device is checked, refused and overridden as one
//! that the file has. Lines of errors are mapped back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use super::Dram;
use crate::{FileError, suggest};

static FILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../machines/devices");

/// Nodes of which devices are expanded: as many as a machine may have.
const NODES_MAX: usize = 64;

/// A bundled memory device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name in machine files.
    pub name: String,
    /// One-line description.
    pub summary: String,
    /// Source of each field; `default` is that of the fields that no other key names.
    pub sources: BTreeMap<String, String>,
    /// Fields of `[node.dram]`.
    dram: toml::Table,
}

impl Device {
    /// Its fields.
    ///
    /// # Errors
    /// If one is missing or unknown: a bug in memtide.
    pub fn fields(&self) -> Result<Dram, FileError> {
        let file = format!("{}.toml", self.name);
        self.dram.clone().try_into().map_err(|error| FileError::of_toml(&file, "", &error))
    }

    /// Names and values of its fields, in order of names.
    pub fn values(&self) -> impl Iterator<Item = (&str, String)> {
        let plain = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.dram.iter().map(move |(field, value)| (field.as_str(), plain(value)))
    }

    /// The source of a field.
    pub fn source_of(&self, field: &str) -> &str {
        self.sources.get(field).or_else(|| self.sources.get("default")).map_or("", String::as_str)
    }
}

/// Names of the bundled devices, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FILES.files().filter_map(|file| file.path().file_stem()?.to_str()).collect();
    names.sort_unstable();
    names
}

/// A bundled device; `None` if there is none of this name.
///
/// # Errors
/// If its file is wrong: a bug in memtide.
pub fn device(name: &str) -> Option<Result<Device, FileError>> {
    let file = format!("{name}.toml");
    let text = FILES.get_file(&file)?.contents_utf8()?;
    Some(toml::from_str(text).map_err(|error| FileError::of_toml(&file, text, &error)))
}

/// A machine file's text with the fields of its devices.
#[derive(Debug)]
pub(super) struct Expanded<'t> {
    pub text: Cow<'t, str>,
    /// Sources of the added fields, by path.
    pub sources: Vec<(String, String)>,
    /// Lines after which fields were added, and how many, in the file's order.
    added: Vec<(usize, usize)>,
}

/// A node's device: where it is named, and what it adds.
struct Use {
    line: usize,
    fields: Vec<String>,
    sources: Vec<(String, String)>,
}

impl<'t> Expanded<'t> {
    /// Expands the devices of a machine file. A text that is not TOML stays as it is.
    ///
    /// # Errors
    /// If there is no device of a name, or it is not on a line of its own.
    pub fn of(file: &str, text: &'t str) -> Result<Expanded<'t>, FileError> {
        let unchanged = Expanded { text: text.into(), sources: Vec::new(), added: Vec::new() };
        if !text.contains("device") {
            return Ok(unchanged);
        }
        let Ok(table) = text.parse::<toml::Table>() else { return Ok(unchanged) };
        let nodes = table.get("node").and_then(|nodes| nodes.as_array());
        let mut uses = Vec::new();
        for (index, node) in nodes.into_iter().flatten().enumerate().take(NODES_MAX) {
            uses.extend(device_of(file, text, index, node)?);
        }
        if uses.is_empty() {
            return Ok(unchanged);
        }
        let mut lines = Vec::new();
        let mut next = uses.iter().peekable();
        for (line, content) in (1..).zip(text.lines()) {
            match next.next_if(|device| device.line == line) {
                None => lines.push(content),
                Some(device) => {
                    // A comment in place of the name, which is no field.
                    lines.push("#");
                    lines.extend(device.fields.iter().map(String::as_str));
                }
            }
        }
        let text = lines.join("\n") + "\n";
        let added = uses.iter().map(|device| (device.line, device.fields.len())).collect();
        let sources = uses.iter().flat_map(|device| device.sources.iter().cloned()).collect();
        Ok(Expanded { text: text.into(), sources, added })
    }

    /// An error in the expanded text, at its line in the file: that of the device for a field of it.
    pub fn in_file(&self, error: FileError) -> FileError {
        let mut line = error.line;
        for &(device, fields) in &self.added {
            line = if line > device + fields { line - fields } else { line.min(device) };
            if line == device {
                break;
            }
        }
        FileError { line, ..error }
    }
}

/// The device that a node's `dram` table names, if any.
fn device_of(file: &str, text: &str, index: usize, node: &toml::Value) -> Result<Option<Use>, FileError> {
    let of = |key: &str| Some((key.to_owned(), node.get(key)?.as_table()?));
    let Some((key, dram)) = of("dram").or_else(|| of("timed")) else { return Ok(None) };
    let Some(name) = dram.get("device") else { return Ok(None) };
    let path = format!("node[{index}].{key}.device");
    let refuse = |message: String| FileError::at(file, text, path.clone(), message);
    let name = name.as_str().ok_or_else(|| refuse("expected the name of a device, as text".to_owned()))?;
    let device = device(name).ok_or_else(|| refuse(suggest::unknown("device", name, &names())))??;
    let line = refuse(String::new()).line;
    let written = text.lines().nth(line - 1).unwrap_or_default().trim_start();
    if !written.starts_with("device") {
        return Err(refuse(format!("write it on a line of its own in a table [node.{key}]")));
    }
    let added = || device.dram.iter().filter(|(field, _)| !dram.contains_key(*field));
    let node_name = node.get("name").and_then(|name| name.as_str()).unwrap_or_default();
    // A path cannot name a node with a dot.
    let is_named = !node_name.is_empty() && !node_name.contains('.');
    let source = |field: &str| {
        let path = format!("node.{node_name}.dram.{field}");
        (path, format!("device {name}: {}", device.source_of(field)))
    };
    Ok(Some(Use {
        line,
        fields: added().map(|(field, value)| format!("{field} = {value}")).collect(),
        sources: added().filter(|_| is_named).map(|(field, _)| source(field)).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// A machine with two devices, the first with fields of its own.
    const TEXT: &str = r#"
name = "m"
summary = "made for a test"
sources = { default = "assumed: made for a test" }
[core]
clock_mhz = 2000
instructions_per_cycle = 4
reorder_buffer = 224
outstanding_misses = 12
[[initiator]]
name = "s"
cpus = 2
[[node]]
name = "near"
tier = 0
capacity_mib = 64
initiator = "s"
[node.dram]
device = "ddr5-4800"
channels = 4
cl = 46
[[node]]
name = "far"
tier = 1
capacity_mib = 64
[node.dram]
device = "cxl-ddr5-4800"
[[link]]
between = ["s", "far"]
latency_ns = 100
bandwidth_mbps = 24000
"#;

    fn parsed(text: &str) -> Machine {
        Machine::parse("m.toml", text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The error of a machine with one change, and the text of its line.
    fn refused(from: &str, to: &str) -> (FileError, String) {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT);
        let error = Machine::parse("m.toml", &text).expect_err(to);
        let line = text.lines().nth(error.line - 1).unwrap_or_default().to_owned();
        (error, line)
    }

    #[test]
    fn fields_of_the_file_override_those_of_the_device() {
        let machine = parsed(TEXT);
        let [near, far] = [0, 1].map(|node| machine.nodes[node].dram.clone().unwrap());
        assert_eq!((near.channels, near.cl, near.rcd, near.t_ck_ps), (4, 46, 39, 416));
        assert_eq!((far.channels, far.cl, far.ranks), (2, 40, 4));
        assert_eq!(machine.source_of("node.near.dram.cl"), "assumed: made for a test");
        let source = machine.source_of("node.near.dram.rfc");
        assert!(source.starts_with("device ddr5-4800: JESD79-5"), "{source}");
    }

    #[test]
    fn expanded_machine_is_a_machine_file_of_its_own() {
        let machine = parsed(TEXT);
        let again = parsed(&machine.to_toml());
        assert_eq!(again.nodes, machine.nodes);
        assert_eq!(again.sources, machine.sources);
    }

    #[test]
    fn errors_have_the_lines_of_the_file() {
        for (from, to, line) in [
            ("clock_mhz = 2000", "clock_mhz = 0", "clock_mhz = 0"),
            ("cl = 46", "cl = 0", "cl = 0"),
            ("cl = 46", "cll = 46", "cll = 46"),
            ("channels = 4", "channels = 3", "channels = 3"),
            ("latency_ns = 100", "latency_ns = -1", "latency_ns = -1"),
            ("bandwidth_mbps = 24000", "bandwith = 1", "bandwith = 1"),
            // A field of a device is at the device.
            ("cl = 46", "ccd_s = 13", "device = \"ddr5-4800\""),
        ] {
            let (error, at) = refused(from, to);
            assert_eq!(at, line, "{error}");
        }
        let text = TEXT.replacen("bandwidth_mbps = 24000", "bandwidth_mbps = 30", 1);
        let [warning] = &parsed(&text).warnings("m.toml", &text)[..] else { panic!("one warning") };
        assert_eq!(text.lines().nth(warning.line - 1), Some("bandwidth_mbps = 30"));
    }

    #[test]
    fn unknown_device_is_refused_with_the_known_ones() {
        let (error, line) = refused("ddr5-4800", "ddr5-4801");
        assert_eq!((error.field.as_str(), line.as_str()), ("node[0].dram.device", "device = \"ddr5-4801\""));
        assert!(error.message.contains("did you mean 'ddr5-4800'?"), "{error}");
        let (error, _) = refused("device = \"ddr5-4800\"", "device = 4800");
        assert!(error.message.contains("expected the name of a device"), "{error}");
        let inline = "dram = { device = \"ddr5-4800\" }";
        let (error, line) = refused("[node.dram]\ndevice = \"ddr5-4800\"\nchannels = 4\ncl = 46", inline);
        assert!(error.message.contains("on a line of its own") && line == inline, "{error}");
    }

    #[test]
    fn every_device_is_sound_and_has_the_rate_of_its_name() {
        let peaks_mbps = [
            ("cxl-ddr5-4800", 19_200.0),
            ("ddr4-2400", 19_200.0),
            ("ddr4-3200", 25_600.0),
            ("ddr5-4800", 19_200.0),
            ("ddr5-6400", 25_600.0),
            ("hbm2e", 25_600.0),
            ("hbm3", 25_600.0),
            ("lpddr5x-8533", 17_066.0),
        ];
        assert_eq!(names(), peaks_mbps.map(|(name, _)| name));
        for (name, mbps) in peaks_mbps {
            let device = device(name).unwrap().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(device.name, name);
            for field in device.sources.keys().filter(|field| *field != "default") {
                assert!(device.dram.contains_key(field), "{name}: a source of no field {field}");
            }
            let machine = parsed(&TEXT.replacen("ddr5-4800", name, 1).replacen("cl = 46\n", "", 1));
            let dram: Dram = machine.nodes[0].dram.clone().unwrap();
            assert!((dram.channel_peak().as_mbps() / mbps - 1.0).abs() < 0.003, "{name}: {dram:?}");
            let ns = |cycles: u16| dram.cycles(cycles.into()).as_ns();
            // The core of DRAM is as fast in every generation; four activates in a window and their gaps.
            assert!((12.5..19.5).contains(&ns(dram.rcd)) && (12.5..19.5).contains(&ns(dram.rp)), "{name}");
            assert!((30.0..44.0).contains(&ns(dram.ras)) && (10.0..24.0).contains(&ns(dram.cl)), "{name}");
            assert!(dram.faw >= 3 * dram.rrd_s && (9.0..22.0).contains(&ns(dram.faw)), "{name}");
            assert!((3.8..7.9).contains(&(dram.cycles(dram.refi.into()).as_ns() / 1e3)), "{name}");
        }
        let hbm3 = device("hbm3").unwrap().unwrap();
        let ps = |field: &str| hbm3.dram[field].as_integer().unwrap();
        assert!((16_000..16_625).contains(&(ps("faw") * ps("t_ck_ps"))), "tFAW is 16 ns");
    }
}
