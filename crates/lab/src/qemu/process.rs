//! QEMU's process, which never outlives the lab.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::channel::Tail;
use crate::error::LabError;

/// `setpriv` (util-linux): the kernel kills the program when its parent exits.
const SETPRIV: &str = "setpriv";

/// Limit of [`Process::elapsed`] for QEMU to exit cleanly, with its plugin's results written.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Bytes of QEMU's own output to keep.
const OUTPUT_BYTES: usize = 16 << 10;

/// Runs its arguments unless its parent has already changed: the lab died before the death signal was set.
const UNLESS_ORPHANED: &str = r#"test "$PPID" = "$1" || exit 1; shift; exec "$@""#;

/// A running QEMU.
pub struct Process {
    child: Child,
    started: Instant,
    /// QEMU's own output.
    pub output: Tail,
}

impl Process {
    /// Starts QEMU in a folder. With a terminal it shares the caller's; otherwise Ctrl-C does not reach it.
    pub fn start(
        qemu: &Path,
        arguments: &[OsString],
        folder: &Path,
        terminal: bool,
    ) -> Result<Process, LabError> {
        let mut command = Command::new(SETPRIV);
        command.args([
            "--pdeathsig",
            "KILL",
            "sh",
            "-c",
            UNLESS_ORPHANED,
            "sh",
            &std::process::id().to_string(),
        ]);
        command.arg(qemu).args(arguments).current_dir(folder);
        command.stderr(Stdio::piped());
        if !terminal {
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        }
        let mut child = command.spawn().map_err(LabError::file(Path::new(SETPRIV), "run it"))?;
        let output = child.stderr.take().map(OwnedFd::from).map(File::from).expect("a pipe was asked for");
        let output = Tail::of(output, OUTPUT_BYTES).map_err(LabError::file(qemu, "read what it says"))?;
        Ok(Process { child, started: Instant::now(), output })
    }

    /// Its exit status, if it has exited.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Time since its start, less what its threads have waited for a CPU (the one that waited longest): on a
    /// busy host as long as on an idle one.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_sub(cpu_wait(self.child.id()))
    }

    /// Stops it cleanly.
    pub fn end(&mut self) {
        // Fails only if it has just exited.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = self.elapsed();
        while self.ended().is_none() && self.elapsed().saturating_sub(asked) < EXIT_TIMEOUT {
            self.output.read();
            thread::sleep(POLL);
        }
    }
}

/// Longest time that a thread of a process has waited for a CPU; 0 if the kernel does not tell
/// (`/proc/PID/task/TID/schedstat`).
fn cpu_wait(pid: u32) -> Duration {
    let tasks = procfs::process::Process::new(pid as i32).and_then(|process| process.tasks());
    let waits = tasks.into_iter().flatten().filter_map(|task| task.ok()?.schedstat().ok());
    waits.map(|stat| Duration::from_nanos(stat.run_delay)).max().unwrap_or_default()
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
