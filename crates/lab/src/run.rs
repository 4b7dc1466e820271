//! A run: the virtual machine from its start to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtide_guest::{ERR_PORT, Ending, Hello, Message, OUT_PORT, RESULT_PORT};
use memtide_memory::curve::{Config, Results, live};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate};

use crate::outcome::Events;
use crate::plug::pluggable;
use crate::qemu::{Process, Pump, Tail, VirtualMachine};
use crate::running::{self, Entry, Running};
use crate::work::{self, Folder};
use crate::{LabError, Layout, NodeOutcome, Options, Outcome, Output, Tools, numbers, program, shared};

/// Host time within which a guest boots, and what each virtual CPU adds: many times what it takes, for busy hosts.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
const BOOT_LIMIT_OF_VCPU: Duration = Duration::from_secs(5);

/// How often the caller's wishes are asked for.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Of the console, the last bytes are kept; of the agent's messages, all.
const CONSOLE_BYTES: usize = 64 << 10;
const MESSAGE_BYTES: usize = 64 << 20;

/// Lines of the console that an error shows.
const SHOWN_LINES: usize = 12;

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
    shared::prepare(&layout, &tools.kernel, &mut archive)?;
    let folder = Folder::new(options.keep)?;
    let bytes = archive.write(&folder.path().join(work::ARCHIVE))?;
    check_room(&layout, bytes)?;
    let clock =
        clock.map(|plugin| configure(plugin, &layout, options.parallel, folder.path())).transpose()?;
    let timed = clock.is_some();
    let machine = VirtualMachine {
        layout: &layout,
        kernel: &tools.kernel,
        clock,
        seed: options.seed,
        parallel: options.parallel,
        interactive: options.interactive,
    };
    let mut guest = Guest::start(&machine, tools, &folder, output, options)?;
    let _entry = enter(options, &layout, folder.path())?;
    let ending = guest.watch(options, stop)?;
    let (times, console) = guest.finish()?;
    let mut outcome = outcome(&layout, tools, &ending, times);
    outcome.parallel = options.parallel;
    outcome.notes.extend(out_of_memory(&outcome.events, &console));
    if timed {
        outcome.timing = Some(results(&folder.path().join(work::RESULTS))?);
    }
    outcome.kept = folder.kept().map(Path::to_owned);
    Ok(outcome)
}

/// Lets `memtide lab node` find the virtual machine, if there is something to find.
fn enter(options: &Options, layout: &Layout, folder: &Path) -> Result<Option<Entry>, LabError> {
    let nodes = pluggable(layout);
    if nodes.is_empty() {
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
        boot_ps: BOOT_PS,
        results: folder.join(work::RESULTS),
        counters: shared(&folder.join(work::COUNTERS), live::bytes(layout.machine.nodes.len()))?,
        guest_nodes: layout.linux_numbers().into_iter().map(|number| number as u64).collect(),
    };
    let path = folder.join(work::CLOCK);
    let text = serde_json::to_vec(&config).expect("configurations are plain data");
    fs::write(&path, text).map_err(LabError::file(&path, "write it"))?;
    Ok((plugin.to_owned(), path))
}

/// Makes a file that is mapped: whoever writes to it could not be told that there is no space for it.
fn shared(path: &Path, bytes: u64) -> Result<PathBuf, LabError> {
    let make = || Ok(fallocate(File::create_new(path)?, FallocateFlags::empty(), 0, bytes)?);
    make().map_err(LabError::file(path, "reserve space for it"))?;
    Ok(path.to_owned())
}

fn results(path: &Path) -> Result<Results, LabError> {
    let text = fs::read(path).map_err(LabError::file(path, "read the clock plugin's results"))?;
    serde_json::from_slice(&text)
        .map_err(|error| LabError::file(path, "read the clock plugin's results")(error.into()))
}

/// A running virtual machine.
struct Guest {
    process: Process,
    out: Pump,
    err: Pump,
    console: Option<Tail>,
    messages: Tail,
    started: Instant,
    hello: Option<(Instant, Hello)>,
    ended: Option<Instant>,
    kernel: PathBuf,
    boot_limit: Duration,
}

/// What the guest told first, and host seconds of boot and program.
struct Times {
    hello: Hello,
    boot: f64,
    program: f64,
}

impl Guest {
    fn start(
        machine: &VirtualMachine,
        tools: &Tools,
        folder: &Folder,
        output: Output,
        options: &Options,
    ) -> Result<Guest, LabError> {
        let path = folder.path();
        let out = Pump::start(&path.join(OUT_PORT), output.out)?;
        let err = Pump::start(&path.join(ERR_PORT), output.err)?;
        let messages = Tail::named(&path.join(RESULT_PORT), MESSAGE_BYTES)?;
        let console = (!options.interactive).then(|| Tail::named(&path.join(work::CONSOLE), CONSOLE_BYTES));
        let console = console.transpose()?;
        let arguments = machine.arguments();
        if options.keep {
            let words: Vec<_> =
                arguments.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
            let line = format!("{} {}\n", tools.qemu.display(), words.join(" "));
            let file = path.join(work::COMMAND);
            fs::write(&file, line).map_err(LabError::file(&file, "write it"))?;
        }
        let process = Process::start(&tools.qemu, &arguments, path, options.interactive)?;
        let started = Instant::now();
        let boot_limit = BOOT_LIMIT + BOOT_LIMIT_OF_VCPU * machine.layout.vcpu_initiators.len() as u32;
        let kernel = tools.kernel.clone();
        Ok(Guest {
            process,
            out,
            err,
            console,
            messages,
            started,
            hello: None,
            ended: None,
            kernel,
            boot_limit,
        })
    }

    /// Waits for the program's end and for all that it has printed.
    fn watch(&mut self, options: &Options, stop: &dyn Fn() -> bool) -> Result<Ending, LabError> {
        let mut ending: Option<Box<Ending>> = None;
        loop {
            let gone = self.process.ended();
            self.read();
            while let Some(line) = self.messages.line() {
                match serde_json::from_str(&line) {
                    Ok(Message::Hello(hello)) => self.hello = Some((Instant::now(), hello)),
                    Ok(Message::Refused(what)) => {
                        return Err(LabError::Guest { what, console: String::new() });
                    }
                    Ok(Message::Ended(ended)) => {
                        self.ended = Some(Instant::now());
                        ending = Some(ended);
                    }
                    Err(error) => return Err(self.failure(format!("the guest says '{line}' ({error})"))),
                }
            }
            self.out.check()?;
            self.err.check()?;
            if let Some(ended) = &ending
                && self.out.bytes() >= ended.out_bytes
                && self.err.bytes() >= ended.err_bytes
            {
                return Ok(*ending.take().expect("it has ended"));
            }
            if let Some(status) = gone {
                return Err(self.failure(match self.hello {
                    Some(_) => format!("the virtual machine ended while the program ran (QEMU: {status})"),
                    None => format!("the kernel {} did not boot (QEMU: {status})", self.kernel.display()),
                }));
            }
            self.check_time(options)?;
            if stop() {
                return Err(LabError::Interrupted);
            }
            self.wait();
        }
    }

    fn check_time(&self, options: &Options) -> Result<(), LabError> {
        match (&self.hello, options.timeout) {
            (None, _) if self.started.elapsed() > self.boot_limit => {
                let (kernel, seconds) = (self.kernel.display(), self.boot_limit.as_secs());
                Err(self.failure(format!("the kernel {kernel} had not booted after {seconds} s")))
            }
            (Some((since, _)), Some(limit)) if self.ended.is_none() && since.elapsed() > limit => {
                Err(LabError::Timeout { seconds: limit.as_secs_f64(), console: self.last_lines() })
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self) {
        self.messages.read();
        self.process.said.read();
        self.console.iter_mut().for_each(Tail::read);
    }

    /// Waits until something comes, but not for long.
    fn wait(&self) {
        let readers = [self.messages.reader(), self.process.said.reader()];
        let mut waited: Vec<PollFd> =
            readers.iter().map(|reader| PollFd::new(reader, PollFlags::IN)).collect();
        // Whatever ends the wait, the next turn looks.
        let _ = poll(&mut waited, Some(&TURN));
    }

    fn failure(&self, what: String) -> LabError {
        LabError::Guest { what, console: self.last_lines() }
    }

    fn last_lines(&self) -> String {
        let console = self.console.as_ref().map_or(String::new(), |console| console.last(SHOWN_LINES));
        [console, self.process.said.last(SHOWN_LINES)].join("\n").trim().to_owned()
    }

    /// Ends the machine in order; gives its times and the last of its console.
    fn finish(mut self) -> Result<(Times, String), LabError> {
        self.process.end();
        self.read();
        let console = self.last_lines();
        let (up, hello) = self.hello.take().unwrap_or((self.started, Hello::default()));
        let ended = self.ended.unwrap_or(up);
        let times =
            Times { hello, boot: (up - self.started).as_secs_f64(), program: (ended - up).as_secs_f64() };
        drop(self.process);
        self.out.finish()?;
        self.err.finish()?;
        Ok((times, console))
    }
}

fn outcome(layout: &Layout, tools: &Tools, ending: &Ending, times: Times) -> Outcome {
    let ending = numbers::in_order(ending, &times.hello.domains);
    let memory = layout.nodes.iter().take(layout.machine.nodes.len()).enumerate();
    let mut notes = layout.notes.clone();
    notes.extend(numbers::absent(layout, &times.hello.domains));
    Outcome {
        machine: layout.machine.name.clone(),
        vcpus: layout.vcpu_initiators.len() as u16,
        parallel: false,
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
