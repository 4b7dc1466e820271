//! Options of a run.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use memtide_core::Machine;
use memtide_lab_protocol::agent::RegionOfInterest;

use crate::memory::Memory;

/// Options of a run: the program, the machine, and how to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine as in its file; the lab applies its scale.
    pub machine: Machine,
    /// The program and its arguments: an x86-64 Linux executable or a script, looked up in `PATH`. It runs in
    /// the guest with its libraries, in a folder of the same name as the current one.
    pub command: Vec<OsString>,
    /// Further files for the guest.
    pub files: Vec<GuestFile>,
    /// Environment of the program in addition to `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// Virtual CPUs; `None`: one per initiator, at most 4.
    pub vcpus: Option<u16>,
    /// Nodes with another kind of memory than plain.
    pub memory: Vec<(String, Memory)>,
    /// Run each virtual CPU on its own host thread. The run is then not deterministic, and the guest uses the
    /// host's clock: the model only counts.
    pub parallel: bool,
    /// Whether the guest's clock follows the modelled machine; `None`: if the clock plugin is installed.
    pub timing: Option<bool>,
    /// Region of interest.
    pub region: RegionOfInterest,
    /// Seed of the guest's random numbers.
    pub seed: u64,
    /// Host time limit for boot and program.
    pub timeout: Option<Duration>,
    /// Keep the run's folder.
    pub keep: bool,
    /// Run the program on the caller's terminal.
    pub interactive: bool,
}

impl Options {
    /// Default options: runs `command` on a machine, measured from start to end.
    pub fn new(machine: Machine, command: Vec<OsString>) -> Options {
        Options {
            machine,
            command,
            files: Vec::new(),
            environment: Vec::new(),
            vcpus: None,
            memory: Vec::new(),
            parallel: false,
            timing: None,
            region: RegionOfInterest::Program,
            seed: 1,
            timeout: None,
            keep: false,
            interactive: false,
        }
    }
}

/// A host file or folder to copy into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Path on the host. An executable's or library's own libraries are copied, too.
    pub host: PathBuf,
    /// Path in the guest, relative to the program's folder.
    pub guest: PathBuf,
}

/// Sinks of the program's output.
pub struct Output {
    /// Its standard output.
    pub out: Box<dyn Write + Send>,
    /// Its standard error.
    pub err: Box<dyn Write + Send>,
}
