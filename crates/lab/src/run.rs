//! A run: the virtual machine from its start to its end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::Ending;
use memtide_lab_protocol::clock::{Config, Results};
use memtide_lab_protocol::samples;
use rustix::fs::{FallocateFlags, fallocate};

use crate::error::LabError;
use crate::guest::{Guest, Supervision, Times};
use crate::guest_clock::BOOT_PS;
use crate::hotplug::hotplug_nodes;
use crate::layout::Layout;
use crate::options::{Options, Output};
use crate::outcome::{Events, NodeOutcome, RunOutcome};
use crate::qemu::CommandLine;
use crate::run_dir::{self, RunDir};
use crate::running::{self, Entry, Running};
use crate::spec::GuestSpec;
use crate::tools::Tools;
use crate::{guest_files, image, modules, numbers, shared};

/// Memory that a kernel uses before it unpacks its initramfs: itself, with a reserve, and its page array.
const KERNEL_MIB: u64 = 64;
const PAGE_TABLE_PART: u64 = 50;

/// Runs a program in a virtual machine, with its output forwarded to `output`. `stop` is polled for
/// cancellation.
///
/// Leaves no process and, unless kept, no file behind, however it ends.
///
/// # Errors
/// If the machine cannot be virtualised, the program cannot be copied into it, or the guest does not boot or
/// ends early.
pub fn run(
    options: &Options,
    tools: &Tools,
    output: Output,
    stop: &dyn Fn() -> bool,
) -> Result<RunOutcome, LabError> {
    let clock = tools.clock_for(options.timing)?;
    let layout = Layout::with(&options.machine, options.vcpus, &options.memory)?;
    run_guest(&GuestSpec::new(options, layout, clock, tools), Supervision::new(options), output, stop)
}

/// Runs a guest from its start to its end.
pub(crate) fn run_guest(
    spec: &GuestSpec,
    supervision: Supervision,
    output: Output,
    stop: &dyn Fn() -> bool,
) -> Result<RunOutcome, LabError> {
    let layout = &spec.layout;
    let mut archive = guest_files::archive(spec)?;
    shared::prepare(layout)?;
    modules::add(layout, &spec.kernel, &mut archive)?;
    let run_dir = RunDir::new(supervision.keep)?;
    let bytes = archive.write(&run_dir.path().join(run_dir::ARCHIVE))?;
    check_memory(layout, bytes)?;
    let config = spec.clock.as_ref().map(|_| configure_clock(spec, run_dir.path())).transpose()?;
    let kernel = unpacked(&spec.kernel, run_dir.path())?;
    let clock = spec.clock.as_deref().zip(config.as_deref());
    let command_line = CommandLine { guest: spec, kernel: &kernel, clock };
    let mut guest = Guest::start(&command_line, supervision, &run_dir, output)?;
    let _entry = supervision.hotplug.then(|| enter(spec, run_dir.path())).transpose()?;
    let ending = guest.watch(stop)?;
    let (times, console) = guest.finish()?;
    let mut outcome = outcome(spec, &ending, times);
    outcome.notes.extend(out_of_memory(&outcome.events, &console));
    if spec.clock.is_some() {
        outcome.timing = Some(results(&run_dir.path().join(run_dir::RESULTS))?);
    }
    outcome.kept = run_dir.kept().map(Path::to_owned);
    Ok(outcome)
}

/// The kernel for QEMU: decompressed into the run's folder if possible.
fn unpacked(image: &Path, folder: &Path) -> Result<PathBuf, LabError> {
    let bytes = fs::read(image).map_err(LabError::file(image, "read the kernel"))?;
    let Some(kernel) = image::kernel(&bytes) else { return Ok(image.to_owned()) };
    let path = folder.join(run_dir::KERNEL);
    fs::write(&path, kernel).map_err(LabError::file(&path, "write it"))?;
    Ok(path)
}

/// Registers the virtual machine for `memtide lab node` if it has hotpluggable nodes.
fn enter(spec: &GuestSpec, run_dir: &Path) -> Result<Option<Entry>, LabError> {
    let nodes = hotplug_nodes(&spec.layout);
    if nodes.is_empty() {
        return Ok(None);
    }
    let program = spec.program.command.first().map(|name| name.to_string_lossy().into_owned());
    running::enter(&Running {
        run: std::process::id(),
        machine: spec.layout.machine.name.clone(),
        program: program.unwrap_or_default(),
        nodes,
        folder: run_dir.to_owned(),
    })
    .map(Some)
}

/// The kernel holds the files twice while it unpacks them; they may fill half of the free memory.
fn check_memory(layout: &Layout, archive_bytes: u64) -> Result<(), LabError> {
    let (files, mib) = (archive_bytes.div_ceil(1 << 20), layout.mib());
    if files * 3 + KERNEL_MIB + mib / PAGE_TABLE_PART <= mib {
        return Ok(());
    }
    let machine = layout.machine.name.clone();
    let what = format!(
        "the program and its files take {files} MiB, more than fits into {mib} MiB of memory; use a lower \
         scale"
    );
    Err(LabError::Machine { machine, what })
}

/// Writes the clock plugin's configuration.
fn configure_clock(spec: &GuestSpec, run_dir: &Path) -> Result<PathBuf, LabError> {
    let layout = &spec.layout;
    let config = Config {
        machine: layout.machine.to_toml(),
        vcpu_initiators: layout.vcpu_initiators.clone(),
        memory: layout.ranges(),
        parallel: spec.parallel,
        by_instruction: layout.cxl().next().is_some(),
        boot_ps: BOOT_PS,
        results: run_dir.join(run_dir::RESULTS),
        counters: reserved(
            &run_dir.join(run_dir::COUNTERS),
            samples::device_bytes(layout.machine.nodes.len()),
        )?,
        guest_nodes: layout.linux_numbers().into_iter().map(|number| number as u64).collect(),
    };
    let path = run_dir.join(run_dir::CLOCK);
    fs::write(&path, config.to_json()).map_err(LabError::file(&path, "write it"))?;
    Ok(path)
}

/// Creates a file to be mapped, with its space allocated: a write to the mapping cannot report ENOSPC.
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

fn outcome(spec: &GuestSpec, ending: &Ending, times: Times) -> RunOutcome {
    let layout = &spec.layout;
    let domains = numbers::of_guest(layout, &times.hello.domains);
    let ending = numbers::in_order(ending, &layout.domains(), &domains);
    let memory = layout.nodes.iter().take(layout.machine.nodes.len()).enumerate();
    let mut notes = layout.notes.clone();
    notes.extend(numbers::absent(layout, &domains));
    RunOutcome {
        machine: layout.machine.name.clone(),
        vcpus: layout.vcpu_initiators.len() as u16,
        parallel: spec.parallel,
        kernel: times.hello.kernel,
        qemu: spec.qemu_version.clone(),
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
    Some(format!("the guest ran out of memory and its kernel killed a process{line}; use a lower scale"))
}
