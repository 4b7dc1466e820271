//! Memory controllers' counters of their performance monitoring units, by perf_event_open(2): of a node with
//! CPUs, the DRAM beside them. Controllers of CXL memory, of HBM as a node of its own and of Optane are not
//! read.

use std::fs;
use std::io;
use std::path::Path;

use memtide_core::policy::Traffic;
use memtide_core::{LINE_BYTES, NodeId};
use perf_event::events::{Dynamic, DynamicBuilder};
use perf_event::{Builder, Counter};

use crate::sys::perf::not_opened;
use crate::topology::cpu_list;

const SYSFS: &str = "/sys";
const DEVICES: &str = "bus/event_source/devices";

/// A processor's units, one for each controller or channel.
struct Units {
    name: &'static str,
    /// The units' names begin with it.
    prefix: &'static str,
    read: EventName,
    write: EventName,
}

/// An event whose every count is a line, unless sysfs says otherwise.
enum EventName {
    /// In the unit's folder `events`.
    Listed(&'static str),
    /// Values of the unit's fields.
    Fields(&'static [(&'static str, u64)]),
}

const UNITS: [Units; 2] = [
    Units {
        name: "counters of Intel's memory controllers",
        prefix: "uncore_imc_",
        read: EventName::Listed("cas_count_read"),
        write: EventName::Listed("cas_count_write"),
    },
    // CAS commands, umc_cas_cmd.rd and .wr of perf's events for Zen 4: the kernel lists none in sysfs.
    Units {
        name: "counters of AMD's memory controllers",
        prefix: "amd_umc_",
        read: EventName::Fields(&[("event", 0x0a), ("rdwrmask", 1)]),
        write: EventName::Fields(&[("event", 0x0a), ("rdwrmask", 2)]),
    },
];

/// The open counters of all controllers.
#[derive(Debug)]
pub(super) struct Controllers {
    name: &'static str,
    counted: Vec<Counted>,
}

/// A counter of one controller, of reads or of writes.
#[derive(Debug)]
struct Counted {
    /// The system's number of the node that it serves.
    node: NodeId,
    is_write: bool,
    bytes: f64,
    counter: Counter,
}

impl Controllers {
    pub(super) fn open() -> io::Result<Controllers> {
        Controllers::open_in(Path::new(SYSFS))
    }

    /// The same, of a copy of sysfs.
    fn open_in(sysfs: &Path) -> io::Result<Controllers> {
        for units in &UNITS {
            let folders = folders(&sysfs.join(DEVICES), units.prefix);
            if folders.is_empty() {
                continue;
            }
            let mut counted = Vec::new();
            for unit in folders {
                for cpu in cpus_of(&unit)? {
                    let node = node_of(sysfs, cpu)?;
                    for (event, is_write) in [(&units.read, false), (&units.write, true)] {
                        let (counter, bytes) = open(&unit, event, cpu)?;
                        counted.push(Counted { node, is_write, bytes, counter });
                    }
                }
            }
            return Ok(Controllers { name: units.name, counted });
        }
        Err(io::Error::other(
            "no counters of memory traffic: neither Intel's uncore_imc nor AMD's amd_umc is in \
             /sys/bus/event_source/devices (virtual machines have none)",
        ))
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn read(&mut self, nodes: &[NodeId]) -> Vec<Option<Traffic>> {
        let mut traffic = vec![None; nodes.len()];
        for Counted { node, is_write, bytes, counter } in &mut self.counted {
            let Some(at) = nodes.iter().position(|of| of == node) else { continue };
            let Some(count) = count(counter) else { return vec![None; nodes.len()] };
            let counted = (count * *bytes) as u64;
            let Traffic { read_bytes, written_bytes } = traffic[at].get_or_insert_default();
            *(if *is_write { written_bytes } else { read_bytes }) += counted;
        }
        traffic
    }
}

/// The units' folders, by name.
fn folders(devices: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let is_unit = |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_unit))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The CPUs on which a unit counts: one of each socket that has it.
fn cpus_of(unit: &Path) -> io::Result<Vec<u16>> {
    let file = unit.join("cpumask");
    let text = fs::read_to_string(&file).map_err(|error| of_file(&file, &error.to_string()))?;
    cpu_list(text.trim()).ok_or_else(|| of_file(&file, "it is no list of CPUs"))
}

/// The node whose memory a unit on this CPU's socket serves.
fn node_of(sysfs: &Path, cpu: u16) -> io::Result<NodeId> {
    let nodes = sysfs.join("devices/system/node");
    let cpus = |file: &Path| fs::read_to_string(file).ok().and_then(|text| cpu_list(text.trim()));
    let package = format!("devices/system/cpu/cpu{cpu}/topology/package_cpus_list");
    let package = cpus(&sysfs.join(&package)).ok_or_else(|| of_file(&sysfs.join(package), "unreadable"))?;
    let entries = fs::read_dir(&nodes).map_err(|error| of_file(&nodes, &error.to_string()))?;
    let number = |entry: &fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    let numbers = entries.flatten().filter_map(|entry| number(&entry));
    let on_package = |node: &u8| {
        let of_node = cpus(&nodes.join(format!("node{node}/cpulist"))).unwrap_or_default();
        of_node.iter().any(|cpu| package.contains(cpu))
    };
    let found: Vec<u8> = numbers.filter(on_package).collect();
    match found[..] {
        [node] => Ok(NodeId(node)),
        _ => Err(io::Error::other(format!(
            "the socket of CPU {cpu} has {} nodes (sub-NUMA clustering, or nodes per socket): which of them \
             a memory controller serves is not known",
            found.len()
        ))),
    }
}

fn of_file(file: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{}: {why}", file.display()))
}

/// Opens a unit's counter on a CPU, and says how many bytes a count is.
fn open(unit: &Path, event: &EventName, cpu: u16) -> io::Result<(Counter, f64)> {
    let mut fields = Dynamic::builder(unit)?;
    let mut bytes = LINE_BYTES as f64;
    match event {
        EventName::Listed(name) => {
            fields.event(name)?;
            bytes = bytes_of(&fields)?;
        }
        EventName::Fields(values) => {
            for &(field, value) in *values {
                fields.field(field, value).map_err(io::Error::other)?;
            }
        }
    }
    let unset: Vec<String> = fields.params().map(str::to_owned).collect();
    for field in &unset {
        fields.field(field, 0).map_err(io::Error::other)?;
    }
    let event = fields.build().map_err(io::Error::other)?;
    let mut builder = Builder::new(event);
    builder.any_pid().one_cpu(cpu.into()).include_kernel().include_hv();
    let opened = builder.build().and_then(|mut counter| counter.enable().map(|()| counter));
    let place = format!("{} on CPU {cpu}", unit.display());
    Ok((opened.map_err(|error| not_opened(&place, &error))?, bytes))
}

/// Bytes of a count, by sysfs: 2^-14 MiB for a line. Without a unit a count is a line.
fn bytes_of(event: &DynamicBuilder) -> io::Result<f64> {
    let unit = match event.unit()?.as_deref() {
        None => return Ok(LINE_BYTES as f64),
        Some("MiB") => f64::from(1 << 20),
        Some("Bytes") => 1.0,
        Some(other) => return Err(io::Error::other(format!("its unit {other} is not known"))),
    };
    Ok(unit * event.scale()?.unwrap_or(1.0))
}

/// A counter's count, extended to the time that it shared its register with others; `None` if it cannot be
/// read.
fn count(counter: &mut Counter) -> Option<f64> {
    let read = counter.read_full().ok()?;
    let [enabled, running] = [read.time_enabled()?, read.time_running()?].map(|time| time.as_nanos() as f64);
    Some(if running > 0.0 { read.count() as f64 * (enabled / running) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A copy of sysfs in which the kernel's software events stand for a controller's: its clock of a CPU, in
    /// ns, for reads, and its page faults for writes.
    fn sysfs(nodes: &[(u16, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let unit = format!("{DEVICES}/uncore_imc_0");
        let mut files = vec![
            (format!("{unit}/type"), "1\n"),
            (format!("{unit}/cpumask"), "0\n"),
            (format!("{unit}/format/event"), "config:0-7\n"),
            (format!("{unit}/format/umask"), "config:8-15\n"),
            (format!("{unit}/format/inv"), "config:23\n"),
            (format!("{unit}/events/cas_count_read"), "event=0x00,umask=0x00\n"),
            (format!("{unit}/events/cas_count_read.scale"), "6.103515625e-5\n"),
            (format!("{unit}/events/cas_count_read.unit"), "MiB\n"),
            (format!("{unit}/events/cas_count_write"), "event=0x02\n"),
            (format!("{DEVICES}/uncore_imc_free_running/type"), "77\n"),
            ("devices/system/cpu/cpu0/topology/package_cpus_list".to_owned(), "0-3\n"),
        ];
        files.extend(
            nodes.iter().map(|&(node, cpus)| (format!("devices/system/node/node{node}/cpulist"), cpus)),
        );
        for (file, text) in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        folder
    }

    #[test]
    fn counts_of_a_controller_are_bytes_of_its_node() {
        let sysfs = sysfs(&[(0, ""), (1, "0-3")]);
        let mut controllers = match Controllers::open_in(sysfs.path()) {
            Ok(controllers) => controllers,
            Err(error) => {
                assert!(error.to_string().contains("perf_event_paranoid"), "{error}");
                return;
            }
        };
        let nodes = [NodeId(0), NodeId(1)];
        let before = controllers.read(&nodes);
        thread::sleep(Duration::from_millis(20));
        let after = controllers.read(&nodes);
        assert_eq!((before[0], after[0]), (None, None), "it has no controller");
        let passed = after[1].expect("counts").read_bytes - before[1].expect("counts").read_bytes;
        assert!(passed >= 64 * 10_000_000, "64 bytes each ns of {passed}");
        assert!(passed < 64 * 60_000_000_000, "{passed}");
    }

    #[test]
    fn units_without_listed_events_count_lines_by_their_fields() {
        let sysfs = sysfs(&[(0, "0-3")]);
        let devices = sysfs.path().join(DEVICES);
        fs::rename(devices.join("uncore_imc_0"), devices.join("amd_umc_0")).expect("another unit");
        // Software events ignore the second word: each is the clock of a CPU.
        for (field, bits) in [("event", "config1:0-7\n"), ("rdwrmask", "config1:8-9\n")] {
            fs::write(devices.join("amd_umc_0/format").join(field), bits).expect("a file");
        }
        let mut controllers = match Controllers::open_in(sysfs.path()) {
            Ok(controllers) => controllers,
            Err(error) => {
                assert!(error.to_string().contains("perf_event_paranoid"), "{error}");
                return;
            }
        };
        assert!(controllers.name().contains("AMD"));
        let before = controllers.read(&[NodeId(0)])[0].expect("counts");
        thread::sleep(Duration::from_millis(20));
        let after = controllers.read(&[NodeId(0)])[0].expect("counts");
        let passed = [after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes];
        assert!(passed.iter().all(|&bytes| bytes >= 64 * 10_000_000), "64 bytes each ns of {passed:?}");
    }

    #[test]
    fn sockets_of_several_nodes_and_systems_without_controllers_are_refused() {
        let refused = |sysfs: &Path| Controllers::open_in(sysfs).expect_err("no counters").to_string();
        let divided = sysfs(&[(0, "0-1"), (1, "2-3")]);
        assert!(refused(divided.path()).contains("2 nodes (sub-NUMA clustering"));
        let without = tempfile::tempdir().expect("a folder");
        assert!(refused(without.path()).contains("uncore_imc"));
        let unit = sysfs(&[(0, "0-3")]);
        fs::write(unit.path().join(DEVICES).join("uncore_imc_0/cpumask"), "x").expect("a file");
        assert!(refused(unit.path()).ends_with("it is no list of CPUs"));
        fs::write(unit.path().join(DEVICES).join("uncore_imc_0/cpumask"), "0").expect("a file");
        let scale = unit.path().join(DEVICES).join("uncore_imc_0/events/cas_count_read.unit");
        fs::write(scale, "furlongs").expect("a file");
        assert!(refused(unit.path()).contains("furlongs"));
    }
}
