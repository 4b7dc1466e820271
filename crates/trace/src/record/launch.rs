//! Finds and runs QEMU, the plugin and the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::signals::Signals;
use super::{MAX_EPOCH_INSTRUCTIONS, RecordOptions};
use crate::{TraceError, Unrecordable};

const QEMU: &str = "qemu-x86_64";
const PLUGIN: &str = "libmemtide_recorder.so";

/// First bytes of 64-bit executables and shared objects.
const ELF64: &[u8] = b"\x7fELF\x02";
const POLL: Duration = Duration::from_millis(20);

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

pub struct Launch {
    qemu: PathBuf,
    plugin: PathBuf,
    program: PathBuf,
    command: Vec<OsString>,
}

impl Launch {
    /// Finds everything needed.
    pub fn prepare(options: &RecordOptions) -> Result<Launch, TraceError> {
        let Some(name) = options.command.first() else {
            return Err(TraceError::NoProgram);
        };
        if !(10_000..=MAX_EPOCH_INSTRUCTIONS).contains(&options.epoch_instructions) {
            let what = format!(
                "epochs of {} instructions; allowed are 10000 to {MAX_EPOCH_INSTRUCTIONS}",
                options.epoch_instructions
            );
            return Err(refused(name, Unrecordable::Other(what)));
        }
        let program = find(name).ok_or_else(|| refused(name, Unrecordable::NotFound))?;
        check_program(&program).map_err(|why| refused(name, why))?;
        let qemu = find_qemu().map_err(|why| refused(name, why))?;
        let plugin = find_plugin(options.plugin.as_deref()).map_err(|why| refused(name, why))?;
        Ok(Launch { qemu, plugin, program, command: options.command.clone() })
    }

    /// Runs the program to its end; calls `report` at intervals. A signal to memtide alone is forwarded to
    /// the program, and one that comes a second or more later kills it.
    pub fn run(
        &self,
        dir: &Path,
        signals: &mut Signals,
        report: &mut dyn FnMut(),
    ) -> Result<ExitStatus, TraceError> {
        let dir = dir.canonicalize().map_err(TraceError::io(dir, "find it"))?;
        // QEMU's option syntax escapes a comma by doubling it.
        let mut plugin = escaped(self.plugin.as_os_str());
        plugin.push(",dir=");
        plugin.push(escaped(dir.as_os_str()));
        let mut child = Command::new(&self.qemu)
            .arg("-plugin")
            .arg(plugin)
            .arg("-0")
            .arg(&self.command[0])
            .arg(&self.program)
            .args(&self.command[1..])
            .spawn()
            .map_err(TraceError::io(&self.qemu, "run it"))?;
        let (mut told, mut asked) = (Instant::now(), false);
        loop {
            if let Some(status) = child.try_wait().map_err(TraceError::io(&self.qemu, "wait for it"))? {
                // Signals until now were meant for the program, and may have ended it.
                signals.any();
                return Ok(status);
            }
            if let Some(signal) = signals.for_memtide() {
                let signal = Signal::from_named_raw(signal).filter(|_| !asked).unwrap_or(Signal::KILL);
                asked = true;
                // Fails only if the program has just ended.
                let _ = kill_process(Pid::from_child(&child), signal);
            }
            if told.elapsed() >= PROGRESS_INTERVAL {
                told = Instant::now();
                report();
            }
            std::thread::sleep(POLL);
        }
    }

    /// The error for a program that ended without a single record.
    pub fn not_recorded(&self, status: ExitStatus) -> TraceError {
        let what = format!(
            "{} did not load the recorder ({status}); it must be built with plugins, as Debian 12's package \
            qemu-user is",
            self.qemu.display()
        );
        refused(&self.command[0], Unrecordable::Other(what))
    }

    /// The error of a recording without accesses, of a program that made so many.
    pub fn nothing_recorded(&self, made: u64, skip: u64) -> TraceError {
        let what = match made {
            0 => "it made no memory access".to_owned(),
            _ => format!("--skip {skip} omits all {made} accesses of the program; skip fewer"),
        };
        refused(&self.command[0], Unrecordable::Other(what))
    }

    /// The command as entered.
    pub fn command_line(&self) -> String {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    /// Names and versions of recorder and QEMU.
    pub fn recorder(&self) -> String {
        let output = Command::new(&self.qemu).arg("--version").output().map(|output| output.stdout);
        let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
        let version = text.lines().next().unwrap_or("QEMU of unknown version");
        format!("memtide {}, {version}", env!("CARGO_PKG_VERSION"))
    }
}

fn refused(program: &OsStr, why: Unrecordable) -> TraceError {
    TraceError::Record { program: program.to_string_lossy().into_owned(), why }
}

fn escaped(text: &OsStr) -> OsString {
    let words: Vec<&[u8]> = text.as_encoded_bytes().split(|&byte| byte == b',').collect();
    std::os::unix::ffi::OsStringExt::from_vec(words.join(&b",,"[..]))
}

/// Checks that programs can be recorded here: needs QEMU's user-mode emulation, and the plugin next to this
/// command.
///
/// # Errors
/// What is missing.
pub fn check_recording() -> Result<(), Unrecordable> {
    find_qemu()?;
    find_plugin(None).map(drop)
}

fn find_qemu() -> Result<PathBuf, Unrecordable> {
    let missing = "qemu-x86_64 is missing; on Debian 12 and Ubuntu: sudo apt-get install qemu-user";
    find(OsStr::new(QEMU)).ok_or_else(|| Unrecordable::Other(missing.to_owned()))
}

/// Finds a program as a shell would.
fn find(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// QEMU runs x86-64 executables, not scripts.
fn check_program(path: &Path) -> Result<(), Unrecordable> {
    let no_executable = |why: &dyn Display| Unrecordable::NotExecutable(format!("{}: {why}", path.display()));
    let found = path.metadata().map_err(|error| no_executable(&error))?;
    if !found.is_file() {
        return Err(no_executable(&"not a regular file"));
    }
    let mut header = Vec::new();
    File::open(path)
        .and_then(|file| file.take(20).read_to_end(&mut header))
        .map_err(|error| no_executable(&error))?;
    if header.starts_with(b"#!") {
        let line = String::from_utf8_lossy(&header[2..]).lines().next().unwrap_or_default().trim().to_owned();
        return Err(Unrecordable::Script { interpreter: line, path: path.to_owned() });
    }
    const X86_64: &[u8] = &[62, 0];
    if !header.starts_with(ELF64) || header.get(18..20) != Some(X86_64) {
        let what = format!("{} is not an x86-64 Linux executable", path.display());
        return Err(Unrecordable::NotExecutable(what));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(no_executable(&"permission to execute it is missing; chmod +x gives it"));
    }
    Ok(())
}

/// A plugin is a shared object that exports QEMU's entry point.
fn is_plugin(path: &Path) -> io::Result<bool> {
    let content = std::fs::read(path)?;
    let entry = b"qemu_plugin_install";
    Ok(content.starts_with(ELF64) && content.windows(entry.len()).any(|bytes| bytes == entry))
}

/// The plugin is next to the `memtide` command, or in the `lib` directory of the same installation.
fn find_plugin(given: Option<&Path>) -> Result<PathBuf, Unrecordable> {
    if let Some(given) = given {
        let plugin = given.to_owned();
        let checked = given.canonicalize().and_then(|path| Ok((is_plugin(&path)?, path)));
        return match checked {
            Ok((true, path)) => Ok(path),
            Ok((false, _)) => Err(Unrecordable::NotAPlugin { plugin, recorder: PLUGIN }),
            Err(source) => Err(Unrecordable::PluginUnreadable { plugin, source }),
        };
    }
    let command = env::current_exe().map_err(|error| Unrecordable::Other(error.to_string()))?;
    let beside = command.ancestors().skip(1).take(2).flat_map(|dir| [dir.to_owned(), dir.join("lib")]);
    let found = beside.map(|dir| dir.join(PLUGIN)).find(|path| path.is_file());
    found.ok_or(Unrecordable::NoPlugin { recorder: PLUGIN })
}
