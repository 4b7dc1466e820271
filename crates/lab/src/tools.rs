//! The lab's tools: QEMU, a kernel, the agent, the clock plugin, and optional ones.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::{self, damo, kernels};
use crate::error::{LabError, Remedy};
use crate::guest_files::BUSYBOX;
use crate::host_files::find;
use crate::image;

const QEMU: &str = "qemu-system-x86_64";
const AGENT: &str = "memtide-guest";
const CLOCK: &str = "libmemtide_clock.so";

/// Minimum major version of QEMU: the oldest that the clock plugin was tested with.
pub(crate) const QEMU_LEAST: u32 = 10;

/// The lab's tools.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// QEMU for x86-64 machines.
    pub qemu: PathBuf,
    /// Its version.
    pub qemu_version: String,
    /// The guest's kernel.
    pub kernel: PathBuf,
    /// The guest's first process.
    pub agent: PathBuf,
    /// The clock plugin, which drives the guest's clock by the timing model; `None` if not installed.
    pub clock: Option<PathBuf>,
    /// memtide itself.
    pub memtide: PathBuf,
    /// damo with its Python; `None` if not fetched.
    pub damo: Option<PathBuf>,
    /// busybox, for the guest's common programs; `None` if not installed.
    pub busybox: Option<PathBuf>,
}

impl Tools {
    /// Finds all tools. `kernel` is a file, or the name prefix of a package that [`crate::setup`] has
    /// fetched; `None`: the newest Linux 6.12.
    ///
    /// # Errors
    /// If a tool is missing; says which and how to get it.
    pub fn find(kernel: Option<&str>) -> Result<Tools, LabError> {
        let (qemu, qemu_version) =
            qemu().map_err(|what| LabError::Missing { what, remedy: Remedy::Setup })?;
        let agent = beside(AGENT).ok_or_else(|| LabError::Missing {
            what: format!("{AGENT}, the guest's first process, is not beside memtide"),
            remedy: Remedy::BuildAgent,
        })?;
        check_agent(&agent)?;
        let damo = cache::folder().ok().and_then(|cache| damo::fetched(&cache));
        let memtide = env::current_exe().map_err(LabError::file(Path::new("memtide"), "find itself"))?;
        let (kernel, clock) = (find_kernel(kernel)?, beside(CLOCK));
        let busybox = find(OsStr::new(BUSYBOX));
        Ok(Tools { qemu, qemu_version, kernel, agent, clock, memtide, damo, busybox })
    }

    /// The clock plugin that a run with `timing` uses: on, off, or on if installed (`None`).
    ///
    /// # Errors
    /// If it is required and missing.
    pub fn clock_for(&self, timing: Option<bool>) -> Result<Option<&Path>, LabError> {
        match timing {
            Some(false) => Ok(None),
            Some(true) => self.clock().map(Some),
            None => Ok(self.clock.as_deref()),
        }
    }

    /// The clock plugin.
    ///
    /// # Errors
    /// If it is missing.
    pub fn clock(&self) -> Result<&Path, LabError> {
        self.clock.as_deref().ok_or_else(|| LabError::Missing {
            what: format!("the clock plugin {CLOCK} is not beside memtide"),
            remedy: Remedy::BuildClock,
        })
    }

    /// damo.
    ///
    /// # Errors
    /// If it has not been fetched.
    pub fn damo(&self) -> Result<&Path, LabError> {
        self.damo.as_deref().ok_or_else(|| LabError::Missing {
            what: format!("damo {} has not been fetched", damo::VERSION),
            remedy: Remedy::SetupDamo,
        })
    }

    /// Major and minor number of the guest's kernel.
    ///
    /// # Errors
    /// If the file is not a kernel or contains no version.
    pub fn linux(&self) -> Result<(u32, u32), LabError> {
        let image = fs::read(&self.kernel).map_err(LabError::file(&self.kernel, "read the kernel"))?;
        image::release(&image).ok_or_else(|| LabError::Missing {
            what: format!("cannot determine the version of {}", self.kernel.display()),
            remedy: Remedy::OtherKernel,
        })
    }
}

/// The agent must be of the same version as the lab.
fn check_agent(agent: &Path) -> Result<(), LabError> {
    let output = Command::new(agent).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(LabError::file(agent, "run it"))?;
    let (ours, theirs) =
        (memtide_lab_protocol::version::agent_version(), String::from_utf8_lossy(&output.stdout));
    let theirs = match theirs.trim() {
        theirs if theirs == ours => return Ok(()),
        "" => "an unknown version",
        theirs => theirs,
    };
    Err(LabError::Missing {
        what: format!("{} is {theirs}, and memtide is {ours}", agent.display()),
        remedy: Remedy::BuildTogether,
    })
}

/// QEMU and its version, or why none is usable.
pub(crate) fn qemu() -> Result<(PathBuf, String), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let qemu = env::split_paths(&path).map(|dir| dir.join(QEMU)).find(|path| path.is_file());
    let qemu = qemu.ok_or(format!("{QEMU} is missing"))?;
    let says = |argument: &str| {
        let output = Command::new(&qemu).arg(argument).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let line = says("--version");
    let version =
        line.lines().next().unwrap_or_default().trim_start_matches("QEMU emulator version ").to_owned();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < QEMU_LEAST) {
        return Err(format!(
            "{} is version '{version}'; the lab needs {QEMU_LEAST}.0 or later",
            qemu.display()
        ));
    }
    if !says("-help").contains("-plugin ") {
        return Err(format!("{} {version} is built without plugins", qemu.display()));
    }
    Ok((qemu, version))
}

fn check_kernel(path: &Path) -> Result<(), LabError> {
    let fail = || LabError::file(path, "read the kernel");
    if !fs::metadata(path).map_err(fail())?.is_file() {
        return Err(fail()(io::Error::other("it is not a regular file")));
    }
    let mut header = Vec::new();
    let file = File::open(path).map_err(fail())?;
    file.take(image::HEADER_BYTES).read_to_end(&mut header).map_err(fail())?;
    if image::is_image(&header) {
        return Ok(());
    }
    Err(LabError::Missing {
        what: format!("{} is not an x86 Linux kernel", path.display()),
        remedy: Remedy::KernelImage,
    })
}

fn find_kernel(wanted: Option<&str>) -> Result<PathBuf, LabError> {
    if let Some(file) = wanted.filter(|wanted| wanted.contains('/')) {
        let path = PathBuf::from(file);
        check_kernel(&path)?;
        return path.canonicalize().map_err(LabError::file(&path, "read the kernel"));
    }
    let known = cache::folder()?;
    kernels::fetched(&known, wanted).ok_or_else(|| match wanted {
        None => LabError::Missing { what: "the guest's kernel is missing".to_owned(), remedy: Remedy::Setup },
        Some(package) => LabError::Missing {
            what: format!("no kernel package '{package}' has been fetched"),
            remedy: Remedy::SetupKernel(package.to_owned()),
        },
    })
}

/// A file of memtide's installation: next to the `memtide` command, or in `lib` of the same prefix.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let command = env::current_exe().ok()?;
    let folders = command.ancestors().skip(1).take(2).flat_map(|dir| [dir.to_owned(), dir.join("lib")]);
    folders.map(|dir| dir.join(name)).find(|path| path.is_file())
}
