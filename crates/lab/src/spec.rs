//! Specification of a guest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::{RegionOfInterest, Write};

use crate::free_memory;
use crate::layout::Layout;
use crate::options::{GuestFile, Options};
use crate::subjects::Setting;
use crate::tools::Tools;

/// Specification of a guest: determines its virtual machine, files, task and outcome.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// Its nodes and CPUs, and the modelled machine.
    pub layout: Layout,
    /// QEMU.
    pub qemu: PathBuf,
    /// QEMU's version.
    pub qemu_version: String,
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The first process.
    pub agent: PathBuf,
    /// The clock plugin; without it the guest is a plain NUMA machine with uniform memory latency.
    pub clock: Option<PathBuf>,
    /// One host thread per virtual CPU, with the host's clock.
    pub parallel: bool,
    /// Seed of the guest's random numbers.
    pub seed: u64,
    /// Seed for fragmenting free memory before the program starts; `None`: leave memory as after boot.
    pub fragment_memory: Option<u64>,
    /// Kernel files written before the program starts, whatever its subject.
    pub writes: Vec<Write>,
    /// Settings for page placement and migration.
    pub setting: Setting,
    /// Its program.
    pub program: ProgramSpec,
}

/// The program of a guest.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program, looked up in `PATH`, and its arguments.
    pub command: Vec<OsString>,
    /// Further files.
    pub files: Vec<GuestFile>,
    /// Environment in addition to `PATH`, `HOME` and `LANG`.
    pub environment: Vec<(String, String)>,
    /// Region of interest.
    pub region: RegionOfInterest,
    /// Whether it runs on the caller's terminal.
    pub interactive: bool,
}

impl GuestSpec {
    /// The guest for these options, with first-touch placement and no migration.
    pub fn new(options: &Options, layout: Layout, clock: Option<&Path>, tools: &Tools) -> GuestSpec {
        GuestSpec {
            writes: free_memory::settings(&options.machine, &layout),
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
