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

/// Time limit for QEMU to exit cleanly, with its plugin's results written.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Bytes of QEMU's own output to keep.
const OUTPUT_BYTES: usize = 16 << 10;

/// Runs its arguments unless its parent has already changed: the lab died before the death signal was set.
const UNLESS_ORPHANED: &str = r#"test "$PPID" = "$1" || exit 1; shift; exec "$@""#;

/// A running QEMU.
pub struct Process {
    child: Child,
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
        Ok(Process { child, output })
    }

    /// Its exit status, if it has exited.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops it cleanly.
    pub fn end(&mut self) {
        // Fails only if it has just exited.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while self.ended().is_none() && asked.elapsed() < EXIT_TIMEOUT {
            self.output.read();
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
