//! What a run of the lab is asked for.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use memtide_core::Machine;
use memtide_lab_protocol::agent::RegionOfInterest;

use crate::memory::Memory;

/// What to run, and on which machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine, as its file says; its scale is carried out by the lab.
    pub machine: Machine,
    /// The program and its arguments: an x86-64 Linux executable or a script, looked up in `PATH`. It runs in the guest
    /// with its libraries, in a folder of the same name as the current one.
    pub command: Vec<OsString>,
    /// Further files for the guest.
    pub files: Vec<GuestFile>,
    /// Environment of the program beside `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// Virtual CPUs; as many as the machine has initiators, but at most 4, if `None`.
    pub vcpus: Option<u16>,
    /// Nodes whose memory does not come into the guest in the plain way.
    pub memory: Vec<(String, Memory)>,
    /// Run each virtual CPU on a thread of its own. The run is not deterministic then, and the guest's clock is the host's: the
    /// model counts beside it.
    pub parallel: bool,
    /// Whether the guest's clock follows the modelled machine; whether the clock plugin is there, if `None`.
    pub timing: Option<bool>,
    /// What of the run is modelled.
    pub region: RegionOfInterest,
    /// Seed of what is random in the guest.
    pub seed: u64,
    /// Host time that boot and program may take.
    pub timeout: Option<Duration>,
    /// Keep the folder with what the virtual machine was made of.
    pub keep: bool,
    /// Run the program on the caller's terminal.
    pub interactive: bool,
}

impl Options {
    /// Runs `command` on a machine, measured from start to end.
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

/// A file or folder of the host that is put into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFile {
    /// Where it is on the host. If it is an executable or a library, the libraries it needs come with it.
    pub host: PathBuf,
    /// Where the guest has it; a relative path starts at the program's folder.
    pub guest: PathBuf,
}

/// Where the program's output goes while it runs.
pub struct Output {
    /// Its standard output.
    pub out: Box<dyn Write + Send>,
    /// Its standard error.
    pub err: Box<dyn Write + Send>,
}
