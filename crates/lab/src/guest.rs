//! A running virtual machine, from start to end.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memtide_lab_protocol::agent::{ERR_PORT, Ending, Hello, Message, OUT_PORT, RESULT_PORT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::LabError;
use crate::options::{Options, Output};
use crate::qemu::{CommandLine, Process, Pump, Tail};
use crate::run_dir::{self, RunDir};

/// Limit of a boot in [`Process::elapsed`], and the increment per virtual CPU: many times the usual time.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
const BOOT_LIMIT_OF_VCPU: Duration = Duration::from_secs(5);

/// Interval of asking the caller whether to stop.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Bytes kept of the console (the last ones) and of the agent's messages (all).
const CONSOLE_BYTES: usize = 64 << 10;
const MESSAGE_BYTES: usize = 64 << 20;

/// Part of QEMU's message if it cannot map the guest's memory (strerror of ENOMEM).
const NO_MEMORY: &str = "Cannot allocate memory";

/// Console lines in an error.
const SHOWN_LINES: usize = 12;

/// Host-side options of a run; they do not affect its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Supervision {
    /// Keep the run's folder.
    pub keep: bool,
    /// Host time limit for boot and program.
    pub timeout: Option<Duration>,
    /// Register the guest for `memtide lab node`.
    pub hotplug: bool,
}

impl Supervision {
    /// From a run's options.
    pub fn new(options: &Options) -> Supervision {
        Supervision { keep: options.keep, timeout: options.timeout, hotplug: true }
    }
}

/// A running virtual machine.
pub struct Guest {
    process: Process,
    out: Pump,
    err: Pump,
    console: Option<Tail>,
    messages: Tail,
    started: Instant,
    hello: Option<(Instant, Hello)>,
    /// File for `memtide lab node`.
    booted: PathBuf,
    ended: Option<Instant>,
    kernel: PathBuf,
    boot_limit: Duration,
    mib: u64,
    timeout: Option<Duration>,
}

/// Report of a guest that has finished, with host seconds of boot and program.
pub struct Times {
    /// The agent's first message.
    pub hello: Hello,
    /// Seconds from QEMU's start to the agent's.
    pub boot: f64,
    /// Seconds from the agent's start to the program's end.
    pub program: f64,
}

impl Guest {
    /// Starts the guest in its folder.
    pub fn start(
        command_line: &CommandLine,
        supervision: Supervision,
        run_dir: &RunDir,
        output: Output,
    ) -> Result<Guest, LabError> {
        let spec = command_line.guest;
        let path = run_dir.path();
        let out = Pump::start(&path.join(OUT_PORT), output.out)?;
        let err = Pump::start(&path.join(ERR_PORT), output.err)?;
        let messages = Tail::named(&path.join(RESULT_PORT), MESSAGE_BYTES)?;
        let interactive = spec.program.interactive;
        let console = (!interactive).then(|| Tail::named(&path.join(run_dir::CONSOLE), CONSOLE_BYTES));
        let console = console.transpose()?;
        let arguments = command_line.arguments();
        if supervision.keep {
            let words: Vec<_> =
                arguments.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
            let line = format!("{} {}\n", spec.qemu.display(), words.join(" "));
            let file = path.join(run_dir::COMMAND);
            fs::write(&file, line).map_err(LabError::file(&file, "write it"))?;
        }
        let process = Process::start(&spec.qemu, &arguments, path, interactive)?;
        Ok(Guest {
            process,
            out,
            err,
            console,
            messages,
            started: Instant::now(),
            hello: None,
            booted: path.join(run_dir::BOOTED),
            ended: None,
            kernel: spec.kernel.clone(),
            boot_limit: BOOT_LIMIT + BOOT_LIMIT_OF_VCPU * spec.layout.vcpu_initiators.len() as u32,
            mib: spec.layout.nodes.iter().map(|node| node.mib).sum(),
            timeout: supervision.timeout,
        })
    }

    /// Waits for the program's end and all of its output.
    pub fn watch(&mut self, stop: &dyn Fn() -> bool) -> Result<Ending, LabError> {
        let mut ending: Option<Box<Ending>> = None;
        loop {
            let gone = self.process.ended();
            self.read();
            while let Some(line) = self.messages.line() {
                match Message::from_json(line.as_bytes()) {
                    Ok(Message::Hello(hello)) => {
                        self.hello = Some((Instant::now(), hello));
                        File::create(&self.booted).map_err(LabError::file(&self.booted, "write it"))?;
                    }
                    Ok(Message::Refused(what)) => {
                        return Err(LabError::Guest { what, console: String::new() });
                    }
                    Ok(Message::Ended(ended)) => {
                        self.ended = Some(Instant::now());
                        ending = Some(ended);
                    }
                    Err(error) => {
                        return Err(
                            self.failure(format!("unexpected message of the guest: '{line}' ({error})"))
                        );
                    }
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
                    None if self.process.output.last(SHOWN_LINES).contains(NO_MEMORY) => {
                        format!(
                            "this system has no {} MiB of memory for the guest; make the machine smaller",
                            self.mib
                        )
                    }
                    None => format!("the kernel {} did not boot (QEMU: {status})", self.kernel.display()),
                }));
            }
            self.check_time()?;
            if stop() {
                return Err(LabError::Interrupted);
            }
            self.wait();
        }
    }

    fn check_time(&self) -> Result<(), LabError> {
        if let Some(limit) =
            self.timeout.filter(|limit| self.ended.is_none() && self.started.elapsed() > *limit)
        {
            let boot = self.hello.as_ref().map(|(up, _)| (*up - self.started).as_secs_f64());
            return Err(LabError::Timeout {
                seconds: limit.as_secs_f64(),
                boot_seconds: boot,
                console: self.last_lines(),
            });
        }
        match &self.hello {
            None if self.started.elapsed() > self.boot_limit && self.process.elapsed() > self.boot_limit => {
                let (kernel, seconds) = (self.kernel.display(), self.boot_limit.as_secs());
                Err(self.failure(format!("the kernel {kernel} did not boot within {seconds} s")))
            }
            _ => Ok(()),
        }
    }

    fn read(&mut self) {
        self.messages.read();
        self.process.output.read();
        self.console.iter_mut().for_each(Tail::read);
    }

    /// Waits for input, up to the polling interval.
    fn wait(&self) {
        let readers = [self.messages.reader(), self.process.output.reader()];
        let mut waited: Vec<PollFd> =
            readers.iter().map(|reader| PollFd::new(reader, PollFlags::IN)).collect();
        // The caller's loop checks all sources after any wake-up.
        let _ = poll(&mut waited, Some(&TURN));
    }

    fn failure(&self, what: String) -> LabError {
        LabError::Guest { what, console: self.last_lines() }
    }

    fn last_lines(&self) -> String {
        let console = self.console.as_ref().map_or(String::new(), |console| console.last(SHOWN_LINES));
        [console, self.process.output.last(SHOWN_LINES)].join("\n").trim().to_owned()
    }

    /// Shuts the machine down; returns its times and the tail of its console.
    pub fn finish(mut self) -> Result<(Times, String), LabError> {
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
