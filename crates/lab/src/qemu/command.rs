//! QEMU's command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use memtide_lab_protocol::agent::{ERR_PORT, OUT_PORT, RESULT_PORT};
use memtide_lab_protocol::samples;

use crate::guest_clock::START;
use crate::layout::GuestNode;
use crate::memory::Memory;
use crate::run_dir;
use crate::spec::GuestSpec;

/// Kernel command line: quiet, exit on panic, trust the clocks, skip what only a physical machine needs
/// (cipher self-tests, jitter entropy, which measures itself for a second), and a fixed memory layout.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 rdinit=/init tsc=reliable nokaslr norandmaps \
    no_timer_check cryptomgr.notests=1 initcall_blacklist=jent_mod_init mitigations=off audit=0 \
    random.trust_cpu=on";

/// Added if memory is hotplugged: online it as movable, and no bounce buffer (no device needs one).
const PLUGGABLE_LINE: &str = " memhp_default_state=online_movable swiotlb=noforce";

/// Linux's type of soft reserved memory.
const SOFT_RESERVED: &str = "0xefffffff";

const MACHINE: &str = "q35,hmat=on,i8042=off,smbus=off,sata=off,usb=off,vmport=off";

/// QEMU's most complete CPU, without fast string instructions: QEMU emulates them byte by byte, and the
/// kernel would copy and clear with them; and with page tables of four levels, which the clock plugin reads.
const CPU: &str = "max,erms=off,fsrm=off,la57=off";

/// Added with CXL memory: Linux refuses it under a hypervisor, where it cannot flush caches.
const CPU_WITH_CXL: &str = ",hypervisor=off";

/// PCI bus numbers per CXL host bridge.
const BRIDGE_BUSES: usize = 16;

/// Maximum HMAT entry. All entries of a kind share one unit; QEMU uses a power of ten for latencies and of
/// two for bandwidths.
const MOST_HMAT: f64 = 65_534.0;

/// QEMU's `-icount` shift (2^N ns per instruction): with the clock plugin, which keeps the time itself, and
/// without, where 8 ns keep the kernel's waits for devices at boot short.
const ICOUNT_TIMED: &str = "shift=0,sleep=off";
const ICOUNT_PLAIN: &str = "shift=3,sleep=off";

/// The virtio-serial device of the guest's ports.
const PORTS: &str = "ports";

/// QEMU's command line for a guest.
pub struct CommandLine<'a> {
    /// The guest.
    pub guest: &'a GuestSpec,
    /// Its kernel, in the form that QEMU boots.
    pub kernel: &'a Path,
    /// The clock plugin and its configuration.
    pub clock: Option<(&'a Path, &'a Path)>,
}

impl CommandLine<'_> {
    /// QEMU's arguments. Relative files are in QEMU's working folder.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        let icount = if self.clock.is_some() { ICOUNT_TIMED } else { ICOUNT_PLAIN };
        let mut add = |words: &[&str]| all.extend(words.iter().map(OsString::from));
        add(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        let shared = self.guest.layout.shared().next().is_some();
        add(&["-machine", &format!("{MACHINE}{}", if shared { ",nvdimm=on" } else { "" })]);
        let with_cxl = if self.guest.layout.cxl().next().is_some() { CPU_WITH_CXL } else { "" };
        add(&["-cpu", &format!("{CPU}{with_cxl}")]);
        match self.guest.parallel {
            true => add(&["-accel", "tcg,thread=multi"]),
            false => add(&["-accel", "tcg,thread=single", "-icount", icount]),
        }
        add(&["-rtc", START, "-seed", &self.guest.seed.to_string()]);
        for (option, value) in self.memory() {
            add(&[option, &value]);
        }
        for (option, value) in self.channels().into_iter().chain(self.pluggable()).chain(self.expanders()) {
            add(&[option, &value]);
        }
        for (node, file) in self.guest.layout.shared() {
            let (mib, start) = (self.guest.layout.nodes[node].mib, self.guest.layout.start(node));
            let mut object =
                OsString::from(format!("memory-backend-file,id=m{node},share=on,size={mib}M,mem-path="));
            object.push(escaped(file.as_os_str()));
            let device = format!("nvdimm,id=dimm{node},memdev=m{node},node={node},addr={start:#x}");
            all.extend(["-object".into(), object, "-device".into(), device.into()]);
        }
        let mut add = |words: &[&str]| all.extend(words.iter().map(OsString::from));
        add(&["-initrd", run_dir::ARCHIVE, "-append", &self.kernel_line(), "-kernel"]);
        all.push(self.kernel.into());
        if let Some((plugin, config)) = self.clock {
            let mut text = escaped(plugin.as_os_str());
            text.push(",config=");
            text.push(escaped(config.as_os_str()));
            all.extend(["-plugin".into(), text]);
            all.extend(self.counters().map(OsString::from));
        }
        all
    }

    fn kernel_line(&self) -> String {
        let mut line = KERNEL_LINE.to_owned();
        if self.guest.program.interactive {
            line = line.replace("quiet", "loglevel=1").replace("console=ttyS0", "console=hvc0");
        }
        if self.guest.layout.nodes.iter().any(|node| node.memory != Memory::Plain) {
            line += PLUGGABLE_LINE;
        }
        for (node, _) in self.guest.layout.shared() {
            let (mib, start) = (self.guest.layout.nodes[node].mib, self.guest.layout.start(node));
            line += &format!(" memmap={mib}M%{start:#x}+{SOFT_RESERVED}");
        }
        line
    }

    fn memory(&self) -> Vec<(&'static str, String)> {
        let layout = &self.guest.layout;
        let vcpus = layout.vcpu_initiators.len();
        let (mib, other) = (layout.mib(), layout.device_mib());
        let mut size = format!("{mib}M");
        if other > 0 {
            size += &format!(",slots={},maxmem={}M", layout.slots(), mib + other);
        }
        let mut options = vec![("-smp", format!("{vcpus},sockets={vcpus}")), ("-m", size)];
        let domains = layout.domains();
        for node in self.in_tables() {
            let (number, GuestNode { mib, memory, vcpus, initiator, .. }) =
                (domains[node], &layout.nodes[node]);
            let mut text = format!("node,nodeid={number},initiator={}", domains[*initiator]);
            if *mib > 0 && *memory == Memory::Plain {
                options.push(("-object", backend(node, *mib)));
                text += &format!(",memdev=m{node}");
            }
            text.extend(vcpus.iter().map(|vcpu| format!(",cpus={vcpu}")));
            options.push(("-numa", text));
        }
        for (from, to) in self.in_tables().flat_map(|from| self.in_tables().map(move |to| (from, to))) {
            let (src, dst, value) = (domains[from], domains[to], layout.distances[from][to]);
            options.push(("-numa", format!("dist,src={src},dst={dst},val={value}")));
        }
        options.extend(self.attributes().map(|text| ("-numa", text)));
        options
    }

    /// Nodes in the ACPI tables.
    fn in_tables(&self) -> impl Iterator<Item = usize> {
        (0..self.guest.layout.nodes.len()).filter(|&node| self.guest.layout.nodes[node].memory != Memory::Cxl)
    }

    /// HMAT: latency and bandwidth of each memory node from each CPU node.
    fn attributes(&self) -> impl Iterator<Item = String> {
        let layout = &self.guest.layout;
        let with_cpus = (0..layout.nodes.len()).filter(|&from| !layout.nodes[from].vcpus.is_empty());
        let memory = || self.in_tables().filter(|&to| to < layout.machine.nodes.len());
        let pairs = with_cpus.flat_map(|from| memory().map(move |to| (from, to)));
        let domains = layout.domains();
        let reaches = pairs.map(|(from, to)| {
            let (ns, mbps) = layout.reach(from, to);
            (domains[from], domains[to], ns, mbps * 1e6 / f64::from(1 << 20))
        });
        let reaches: Vec<(usize, usize, f64, f64)> = reaches.collect();
        let ns_unit = hmat_unit(reaches.iter().map(|reach| reach.2), 10.0);
        let mib_unit = hmat_unit(reaches.iter().map(|reach| reach.3), 2.0);
        reaches.into_iter().flat_map(move |(from, to, ns, mib)| {
            let ends = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
            let ns = (ns / ns_unit).round().max(1.0) * ns_unit;
            let mib = (mib / mib_unit).round().max(1.0) * mib_unit;
            [
                format!("{ends},data-type=access-latency,latency={ns}"),
                format!("{ends},data-type=access-bandwidth,bandwidth={mib}M"),
            ]
        })
    }

    /// The PCI device whose memory is the clock plugin's counters page.
    fn counters(&self) -> [String; 4] {
        let bytes = samples::device_bytes(self.guest.layout.machine.nodes.len());
        let memory =
            format!("memory-backend-file,id=counters,mem-path={},share=on,size={bytes}", run_dir::COUNTERS);
        ["-object".into(), memory, "-device".into(), "ivshmem-plain,bus=pcie.0,memdev=counters".into()]
    }

    fn channels(&self) -> Vec<(&'static str, String)> {
        let console = match self.guest.program.interactive {
            true => "stdio,id=console,signal=off".to_owned(),
            false => format!("file,id=console,path={}", run_dir::CONSOLE),
        };
        let ports = ("-device", format!("virtio-serial-pci,bus=pcie.0,id={PORTS},ioeventfd=off"));
        let mut options = match self.guest.program.interactive {
            // A serial line drops input typed before a program opens it; this device leaves it unread.
            true => vec![("-chardev", console), ports, ("-device", "virtconsole,chardev=console".to_owned())],
            false => vec![("-chardev", console), ("-serial", "chardev:console".to_owned()), ports],
        };
        for (number, port) in [OUT_PORT, ERR_PORT, RESULT_PORT].into_iter().enumerate() {
            options.push(("-chardev", format!("file,id={port},path={port}")));
            options.push(("-device", format!("virtserialport,chardev={port},nr={},name={port}", number + 1)));
        }
        options
    }

    /// Hotplug: a generic initiator per absent node, so that the node exists, and the monitor socket.
    fn pluggable(&self) -> Vec<(&'static str, String)> {
        let near = |node: &usize| format!("acpi-generic-initiator,id=near{node},pci-dev={PORTS},node={node}");
        let mut options: Vec<_> =
            self.guest.layout.absent().iter().map(|node| ("-object", near(node))).collect();
        if !options.is_empty() {
            let socket = format!("socket,id=monitor,path={},server=on,wait=off", run_dir::QMP_SOCKET);
            options.extend([("-chardev", socket), ("-mon", "chardev=monitor,mode=control".to_owned())]);
        }
        options
    }

    /// CXL memory expanders, each with its own host bridge and window.
    fn expanders(&self) -> Vec<(&'static str, String)> {
        let (mut options, mut windows) = (Vec::new(), String::new());
        for (number, node) in self.guest.layout.cxl().enumerate() {
            let (mib, bus, serial) =
                (self.guest.layout.nodes[node].mib, (number + 1) * BRIDGE_BUSES, number + 1);
            let (bridge, port) = (format!("bridge{number}"), format!("port{number}"));
            options.extend([
                ("-object", backend(node, mib)),
                ("-device", format!("pxb-cxl,id={bridge},bus=pcie.0,bus_nr={bus}")),
                ("-device", format!("cxl-rp,id={port},bus={bridge},port=0,chassis={serial},slot=0")),
                ("-device", format!("cxl-type3,bus={port},volatile-memdev=m{node},sn={serial}")),
            ]);
            windows += &format!(",cxl-fmw.{number}.targets.0={bridge},cxl-fmw.{number}.size={mib}M");
        }
        if !options.is_empty() {
            options.push(("-machine", format!("cxl=on{windows}")));
        }
        options
    }
}

/// A node's memory.
fn backend(node: usize, mib: u64) -> String {
    format!("memory-backend-ram,id=m{node},size={mib}M")
}

/// The finest unit, a power of `base`, in which all entries fit.
fn hmat_unit(figures: impl Iterator<Item = f64>, base: f64) -> f64 {
    let most = figures.fold(1.0, f64::max);
    let units = std::iter::successors(Some(1.0), |unit| Some(unit * base));
    units.into_iter().find(|unit| most / unit <= MOST_HMAT).expect("some power is large enough")
}

/// QEMU's option syntax escapes a comma by doubling it.
fn escaped(text: &OsStr) -> OsString {
    let words: Vec<&[u8]> = text.as_encoded_bytes().split(|&byte| byte == b',').collect();
    std::os::unix::ffi::OsStringExt::from_vec(words.join(&b",,"[..]))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use memtide_core::Machine;

    use super::*;
    use crate::layout::Layout;
    use crate::options::Options;
    use crate::tools::Tools;

    /// Set to 1, golden files are written instead of compared.
    const UPDATE: &str = "MEMTIDE_UPDATE_GOLDEN";

    /// A bundled machine's guest; seed, kernel and files do not depend on the host.
    fn guest(machine: &str, vcpus: u16, memory: &[(&str, Memory)]) -> GuestSpec {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join(format!("../../machines/{machine}.toml"))).expect("a file");
        let named: Vec<_> =
            memory.iter().map(|(name, memory)| ((*name).to_owned(), memory.clone())).collect();
        let machine = Machine::parse(machine, &text).expect("a machine");
        let layout = Layout::with(&machine, Some(vcpus), &named).expect("a layout");
        let spec = GuestSpec::new(&Options::new(machine, Vec::new()), layout, None, &Tools::default());
        GuestSpec { seed: 7, ..spec }
    }

    /// Compares a guest's command line, an option and its value per line, with the golden file of that name.
    #[track_caller]
    fn assert_golden(name: &str, guest: &GuestSpec, timed: bool) {
        let files = (Path::new("/lib/clock,1.so"), Path::new("/run/clock.json"));
        let command_line =
            CommandLine { guest, kernel: Path::new(run_dir::KERNEL), clock: timed.then_some(files) };
        let mut found = String::new();
        for word in command_line.arguments() {
            let word = word.into_string().expect("text");
            found += if word.starts_with('-') && !found.is_empty() { "\n" } else { " " };
            found += &word;
        }
        let found = format!("{}\n", found.trim_start());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/command_lines/{name}.txt"));
        if std::env::var_os(UPDATE).is_some_and(|update| update == "1") {
            fs::write(&file, &found).expect("the golden file is written");
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        let changes = changes(&golden, &found);
        assert!(found == golden, "{} differs; {UPDATE}=1 writes it:\n{changes}", file.display());
    }

    /// Differing lines, in order: `-` golden, `+` found.
    fn changes(golden: &str, found: &str) -> String {
        let only = |sign: char, of: &str, other: &str| -> String {
            let lines = of.lines().filter(|line| !other.lines().any(|same| same == *line));
            lines.map(|line| format!("{sign} {line}\n")).collect()
        };
        only('-', golden, found) + &only('+', found, golden)
    }

    #[test]
    fn golden_plain_guest() {
        assert_golden("hinuma", &guest("hinuma", 2, &[]), false);
    }

    #[test]
    fn golden_timed_guest_with_hotplug_and_cxl() {
        let memory = [("cxl", Memory::Cxl), ("dram1", Memory::Absent)];
        assert_golden("ddr5-cxl", &guest("ddr5-cxl", 1, &memory), true);
    }

    #[test]
    fn golden_guest_with_one_vcpu_and_the_clock() {
        assert_golden("laptop-timed", &guest("laptop", 1, &[]), true);
    }

    #[test]
    fn golden_guest_with_many_vcpus_in_parallel() {
        let guest = GuestSpec { parallel: true, ..guest("bmpm-2", 8, &[]) };
        assert_golden("bmpm-2-parallel", &guest, false);
    }

    #[test]
    fn golden_guest_with_shared_memory() {
        let memory = [("optane1", Memory::Shared("/pool,1".into()))];
        assert_golden("optane-shared", &guest("optane", 2, &memory), true);
    }

    #[test]
    fn golden_guest_on_a_terminal() {
        let mut guest = guest("hinuma", 1, &[]);
        guest.program.interactive = true;
        assert_golden("hinuma-terminal", &guest, true);
    }

    #[test]
    fn golden_guest_with_absent_nodes() {
        let memory = [("dram1", Memory::Absent), ("cxl", Memory::Absent)];
        assert_golden("ddr5-cxl-absent", &guest("ddr5-cxl", 1, &memory), false);
    }

    #[test]
    fn golden_guest_with_two_cxl_expanders() {
        let memory = [("cxl", Memory::Cxl), ("dram1", Memory::Cxl)];
        assert_golden("ddr5-cxl-two", &guest("ddr5-cxl", 1, &memory), true);
    }

    #[test]
    fn every_golden_file_has_its_test() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command_lines");
        for entry in fs::read_dir(folder).expect("golden files") {
            let name = entry.expect("an entry").file_name().into_string().expect("text");
            let quoted = format!("assert_golden(\"{}\",", name.trim_end_matches(".txt"));
            assert!(include_str!("command.rs").contains(&quoted), "no test compares {name}");
        }
    }

    #[test]
    fn changes_name_the_lines_that_differ() {
        assert_eq!(changes("-a 1\n-b 2\n-c 3\n", "-a 1\n-b 4\n-c 3\n"), "- -b 2\n+ -b 4\n");
    }

    #[test]
    fn figures_of_the_hmat_fit_16_bits_in_the_finest_unit() {
        assert_eq!(hmat_unit([1.0, 65_534.0].into_iter(), 2.0), 1.0);
        assert_eq!(hmat_unit([65_535.0, 1.0].into_iter(), 2.0), 2.0);
        assert_eq!(hmat_unit([184_919.0].into_iter(), 2.0), 4.0);
        assert_eq!(hmat_unit([70_000.0].into_iter(), 10.0), 10.0);
    }
}
