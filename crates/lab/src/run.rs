//! A run: the virtual machine from its start to its end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::Ending;
use memtide_lab_protocol::clock::{Config, Results};
use memtide_lab_protocol::counters;
use rustix::fs::{FallocateFlags, fallocate};

use crate::guest::{Guest, Times};
use crate::outcome::Events;
use crate::plug::pluggable;
use crate::qemu::VirtualMachine;
use crate::running::{self, Entry, Running};
use crate::work::{self, Folder};
use crate::{
    LabError, Layout, NodeOutcome, Options, Outcome, Output, Tools, image, modules, numbers, program, shared,
};

/// Memory that a kernel takes before it unpacks its files: its own, with a reserve, and its table of pages.
const KERNEL_MIB: u64 = 64;
const PAGE_TABLE_PART: u64 = 50;

/// Time of an instruction outside the region of interest, and without a model, in ps.
const BOOT_PS: u64 = 10_000;

/// Runs a program in a virtual machine. What it prints goes to `output` meanwhile; `stop` is asked now and then whether to
/// end early.
///
/// Nothing of it is left when it ends, however it ends: no process, and no file unless it is to be kept.
///
/// # Errors
/// If the machine cannot be made, the program not be put into it, or the guest does not come up or ends early.
pub fn run(
    options: &Options,
    tools: &Tools,
    output: Output,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, LabError> {
    let clock = match options.timing {
        Some(false) => None,
        Some(true) => Some(tools.clock()?),
        None => tools.clock.as_deref(),
    };
    let layout = Layout::with(&options.machine, options.vcpus, &options.memory)?;
    let mut archive = program::guest(options, &layout, &tools.agent)?;
    shared::prepare(&layout)?;
    modules::add(&layout, &tools.kernel, &mut archive)?;
    let folder = Folder::new(options.keep)?;
    let bytes = archive.write(&folder.path().join(work::ARCHIVE))?;
    check_room(&layout, bytes)?;
    let clock =
        clock.map(|plugin| configure(plugin, &layout, options.parallel, folder.path())).transpose()?;
    let timed = clock.is_some();
    let kernel = unpacked(&tools.kernel, folder.path())?;
    let machine = VirtualMachine {
        layout: &layout,
        kernel: &kernel,
        clock,
        seed: options.seed,
        parallel: options.parallel,
        interactive: options.interactive,
    };
    let mut guest = Guest::start(&machine, tools, &folder, output, options)?;
    let _entry = enter(options, &layout, folder.path())?;
    let ending = guest.watch(options, stop)?;
    let (times, console) = guest.finish()?;
    let mut outcome = outcome(&layout, options, tools, &ending, times);
    outcome.notes.extend(out_of_memory(&outcome.events, &console));
    if timed {
        outcome.timing = Some(results(&folder.path().join(work::RESULTS))?);
    }
    outcome.kept = folder.kept().map(Path::to_owned);
    Ok(outcome)
}

/// The kernel that QEMU is given: unpacked, into the run's folder, where that can be done.
fn unpacked(image: &Path, folder: &Path) -> Result<PathBuf, LabError> {
    let bytes = fs::read(image).map_err(LabError::file(image, "read the kernel"))?;
    let Some(kernel) = image::kernel(&bytes) else { return Ok(image.to_owned()) };
    let path = folder.join(work::KERNEL);
    fs::write(&path, kernel).map_err(LabError::file(&path, "write it"))?;
    Ok(path)
}

/// Lets `memtide lab node` find the virtual machine, if there is something to find.
fn enter(options: &Options, layout: &Layout, folder: &Path) -> Result<Option<Entry>, LabError> {
    let nodes = pluggable(layout);
    if nodes.is_empty() || !options.announced {
        return Ok(None);
    }
    let program = options.command.first().map(|name| name.to_string_lossy().into_owned());
    running::enter(&Running {
        run: std::process::id(),
        machine: layout.machine.name.clone(),
        program: program.unwrap_or_default(),
        nodes,
        folder: folder.to_owned(),
    })
    .map(Some)
}

/// The files are in memory twice while the kernel unpacks them, and may fill half of what it has left then.
fn check_room(layout: &Layout, archive_bytes: u64) -> Result<(), LabError> {
    let (files, mib) = (archive_bytes.div_ceil(1 << 20), layout.mib());
    if files * 3 + KERNEL_MIB + mib / PAGE_TABLE_PART <= mib {
        return Ok(());
    }
    let machine = layout.machine.name.clone();
    let what = format!(
        "the program and its files take {files} MiB, for which {mib} MiB of memory do not suffice; give a lower scale"
    );
    Err(LabError::Machine { machine, what })
}

fn configure(
    plugin: &Path,
    layout: &Layout,
    parallel: bool,
    folder: &Path,
) -> Result<(PathBuf, PathBuf), LabError> {
    let config = Config {
        machine: layout.machine.to_toml(),
        vcpu_initiators: layout.vcpu_initiators.clone(),
        memory: layout.ranges(),
        parallel,
        by_instruction: layout.cxl().next().is_some(),
        boot_ps: BOOT_PS,
        results: folder.join(work::RESULTS),
        counters: reserved(&folder.join(work::COUNTERS), counters::bytes(layout.machine.nodes.len()))?,
        guest_nodes: layout.linux_numbers().into_iter().map(|number| number as u64).collect(),
    };
    let path = folder.join(work::CLOCK);
    fs::write(&path, config.to_json()).map_err(LabError::file(&path, "write it"))?;
    Ok((plugin.to_owned(), path))
}

/// Makes a file that is mapped: whoever writes to it could not be told that there is no space for it.
fn reserved(path: &Path, bytes: u64) -> Result<PathBuf, LabError> {
    let make = || Ok(fallocate(File::create_new(path)?, FallocateFlags::empty(), 0, bytes)?);
    make().map_err(LabError::file(path, "reserve space for it"))?;
    Ok(path.to_owned())
}

fn results(path: &Path) -> Result<Results, LabError> {
    let text = fs::read(path).map_err(LabError::file(path, "read the clock plugin's results"))?;
    Results::from_json(&text)
        .map_err(|error| LabError::file(path, "read the clock plugin's results")(io::Error::other(error)))
}

fn outcome(layout: &Layout, options: &Options, tools: &Tools, ending: &Ending, times: Times) -> Outcome {
    let domains = numbers::of_guest(layout, &times.hello.domains);
    let ending = numbers::in_order(ending, &layout.domains(), &domains);
    let memory = layout.nodes.iter().take(layout.machine.nodes.len()).enumerate();
    let mut notes = layout.notes.clone();
    notes.extend(numbers::absent(layout, &domains));
    Outcome {
        machine: layout.machine.name.clone(),
        vcpus: layout.vcpu_initiators.len() as u16,
        parallel: options.parallel,
        kernel: times.hello.kernel,
        qemu: tools.qemu_version.clone(),
        status: ending.status,
        signal: ending.signal,
        guest_ns: ending.guest_ns,
        boot_seconds: times.boot,
        program_seconds: times.program,
        events: Events::of(&ending),
        nodes: memory.map(|(number, node)| NodeOutcome::of(number, &node.name, node.mib, &ending)).collect(),
        samples: ending.samples,
        timing: None,
        notes,
        kept: None,
    }
}

fn out_of_memory(events: &Events, console: &str) -> Option<String> {
    if events.out_of_memory_kills == 0 {
        return None;
    }
    let victim = console.lines().rev().find(|line| line.contains("Out of memory"));
    let line = victim.map_or(String::new(), |line| format!(" ({})", line.trim()));
    Some(format!("the guest ran out of memory and its kernel ended a process{line}; give a lower scale"))
}
