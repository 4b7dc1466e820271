//! What a guest is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::RegionOfInterest;

use crate::layout::Layout;
use crate::options::{GuestFile, Options};
use crate::subjects::Setting;
use crate::tools::Tools;

/// What a guest is: its virtual machine, its files and its task follow from this, and so does its outcome.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// Its nodes and CPUs, and the machine that is modelled.
    pub layout: Layout,
    /// QEMU.
    pub qemu: PathBuf,
    /// QEMU's version.
    pub qemu_version: String,
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The first process.
    pub agent: PathBuf,
    /// The clock plugin; without it the guest is a plain NUMA machine, whose memory is as fast everywhere.
    pub clock: Option<PathBuf>,
    /// Each virtual CPU has a thread of its own, and the clock is the host's.
    pub parallel: bool,
    /// Seed of what is random in it.
    pub seed: u64,
    /// Seed for fragmenting free memory before the program starts; it is as after booting if `None`.
    pub fragment_memory: Option<u64>,
    /// What places and migrates pages.
    pub setting: Setting,
    /// What runs in it.
    pub program: ProgramSpec,
}

/// The program of a guest.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program, as a shell finds it, and its arguments.
    pub command: Vec<OsString>,
    /// Further files.
    pub files: Vec<GuestFile>,
    /// Environment beside `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// What of its run is modelled.
    pub region: RegionOfInterest,
    /// It runs on the caller's terminal.
    pub interactive: bool,
}

impl GuestSpec {
    /// The guest that is asked for, once its layout and clock plugin are found: nothing but first touch places pages, and
    /// nothing migrates them.
    pub fn new(options: &Options, layout: Layout, clock: Option<&Path>, tools: &Tools) -> GuestSpec {
        GuestSpec {
            layout,
            qemu: tools.qemu.clone(),
            qemu_version: tools.qemu_version.clone(),
            kernel: tools.kernel.clone(),
            agent: tools.agent.clone(),
            clock: clock.map(Path::to_owned),
            parallel: options.parallel,
            seed: options.seed,
            fragment_memory: None,
            setting: Setting::default(),
            program: ProgramSpec {
                command: options.command.clone(),
                files: options.files.clone(),
                environment: options.environment.clone(),
                region: options.region,
                interactive: options.interactive,
            },
        }
    }
}
