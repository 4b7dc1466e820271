//! What the lab is made of: QEMU, a kernel, the agent and the clock plugin.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::LabError;
use crate::setup::{cache, kernels};

const QEMU: &str = "qemu-system-x86_64";
const AGENT: &str = "memtide-guest";
const CLOCK: &str = "libmemtide_clock.so";

/// Least major version of QEMU: the first that the clock plugin was tried with.
pub(crate) const QEMU_LEAST: u32 = 10;

/// What the lab is made of.
#[derive(Clone, Debug)]
pub struct Tools {
    /// QEMU for x86-64 machines.
    pub qemu: PathBuf,
    /// Its version.
    pub qemu_version: String,
    /// The guest's kernel.
    pub kernel: PathBuf,
    /// The guest's first process.
    pub agent: PathBuf,
    /// The plugin that makes the guest's clock feel the modelled machine, if it is there.
    pub clock: Option<PathBuf>,
}

impl Tools {
    /// Finds all of it. `kernel` is a file, or the beginning of the name of a package that [`crate::setup`] has fetched; the newest
    /// of Linux 6.12 if `None`.
    ///
    /// # Errors
    /// With what is missing and how to get it.
    pub fn find(kernel: Option<&str>) -> Result<Tools, LabError> {
        let (qemu, qemu_version) =
            qemu().map_err(|what| LabError::Missing { what, remedy: SETUP.to_owned() })?;
        let agent = beside(AGENT).ok_or_else(|| LabError::Missing {
            what: format!("{AGENT}, the guest's first process, is not beside memtide"),
            remedy: "build it: cargo build --release -p memtide-guest".to_owned(),
        })?;
        Ok(Tools { qemu, qemu_version, kernel: find_kernel(kernel)?, agent, clock: beside(CLOCK) })
    }

    /// The clock plugin.
    ///
    /// # Errors
    /// If it is not there, with how to build it.
    pub fn clock(&self) -> Result<&Path, LabError> {
        self.clock.as_deref().ok_or_else(|| LabError::Missing {
            what: format!("the clock plugin {CLOCK} is not beside memtide"),
            remedy: "build it: cargo build --release --manifest-path crates/plugins/clock/Cargo.toml --target-dir \
                target; or run with --timing off"
                .to_owned(),
        })
    }
}

const KERNEL_MAGIC: &[u8] = b"HdrS";
const KERNEL_MAGIC_END: usize = 0x206;

const SETUP: &str = "run: memtide lab setup";

/// QEMU and its version, or why there is none that will do.
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

/// A kernel for x86 has a magic word in its header (Linux's boot protocol, `Documentation/arch/x86/boot.rst`).
fn check_kernel(path: &Path) -> Result<(), LabError> {
    let fail = || LabError::file(path, "read the kernel");
    if !fs::metadata(path).map_err(fail())?.is_file() {
        return Err(fail()(io::Error::other("it is no plain file")));
    }
    let mut header = Vec::new();
    let file = File::open(path).map_err(fail())?;
    file.take(KERNEL_MAGIC_END as u64).read_to_end(&mut header).map_err(fail())?;
    if header.ends_with(KERNEL_MAGIC) && header.len() == KERNEL_MAGIC_END {
        return Ok(());
    }
    Err(LabError::Missing {
        what: format!("{} is no Linux kernel for x86", path.display()),
        remedy: "give a bzImage, such as /boot/vmlinuz-VERSION".to_owned(),
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
        None => {
            LabError::Missing { what: "the guest's kernel is missing".to_owned(), remedy: SETUP.to_owned() }
        }
        Some(package) => LabError::Missing {
            what: format!("no kernel package '{package}' has been fetched"),
            remedy: format!("run: memtide lab setup --kernel {package}; a file is given with its folder"),
        },
    })
}

/// A file of memtide's own: beside the `memtide` command, or in the `lib` directory of the same installation.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let command = env::current_exe().ok()?;
    let folders = command.ancestors().skip(1).take(2).flat_map(|dir| [dir.to_owned(), dir.join("lib")]);
    folders.map(|dir| dir.join(name)).find(|path| path.is_file())
}
