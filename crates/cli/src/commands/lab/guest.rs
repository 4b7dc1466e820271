//! The virtual machine of a lab command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ValueEnum, ValueHint};
use memtide_lab::{GuestFile, LabError, Options, Remedy, Tools};

use crate::failure::Failure;
use crate::options::Overrides;
use crate::{advice, machines};

/// Options of all commands that make a virtual machine.
#[derive(Debug, clap::Args)]
pub struct GuestOptions {
    /// Name of a bundled machine, or machine file
    #[arg(short, long, value_name = "MACHINE", value_hint = ValueHint::FilePath)]
    machine: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Virtual CPUs [default: one per initiator, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    vcpus: Option<u16>,
    /// Whether the guest's clock follows the modelled machine
    ///
    /// [default: on if the clock plugin is installed]
    #[arg(long, value_enum, value_name = "WHETHER")]
    timing: Option<Timing>,
    /// Guest kernel: a file, or a package fetched by `memtide lab setup`
    ///
    /// The beginning of the package's name is enough.
    #[arg(long, value_name = "FILE|PACKAGE", value_hint = ValueHint::FilePath)]
    kernel: Option<String>,
    /// Copy a file or folder into the guest; repeatable
    #[arg(long = "file", value_name = "HOST[:GUEST]", value_parser = file, value_hint = ValueHint::AnyPath)]
    files: Vec<GuestFile>,
    /// Set an environment variable of the program; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Keep the VM's folder and print its path
    #[arg(long)]
    keep: bool,
}

/// Whether the guest's clock follows the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Timing {
    /// Memory has the latencies of the machine file
    On,
    /// A plain NUMA machine for functional tests
    Off,
}

impl GuestOptions {
    /// Files of this system that it reads; a machine or kernel may be a name instead.
    pub fn host_files(&self) -> impl Iterator<Item = &Path> {
        let named = [Some(&self.machine), self.kernel.as_ref()].into_iter().flatten().map(Path::new);
        named.chain(self.files.iter().map(|file| file.host.as_path()))
    }

    /// Options and tools of a run of a command.
    pub fn options(self, command: Vec<OsString>, seed: u64) -> Result<(Options, Tools), Failure> {
        let tools = Tools::find(self.kernel.as_deref()).map_err(failure)?;
        let options = Options {
            files: self.files,
            environment: self.environment,
            vcpus: self.vcpus,
            timing: self.timing.map(|timing| timing == Timing::On),
            seed,
            keep: self.keep,
            ..Options::new(machines::load_at(&self.machine, &self.overrides)?, command)
        };
        Ok((options, tools))
    }
}

/// A command for display.
pub fn line(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

fn file(text: &str) -> Result<GuestFile, String> {
    let (host, guest) = text.split_once(':').unwrap_or((text, text));
    if host.is_empty() || guest.is_empty() {
        return Err("give HOST or HOST:GUEST".to_owned());
    }
    Ok(GuestFile { host: PathBuf::from(host), guest: PathBuf::from(guest) })
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give NAME=VALUE".to_owned()),
    }
}

/// Failure of a command whose virtual machine could not run.
pub fn failure(error: LabError) -> Failure {
    match error {
        LabError::Interrupted => Failure::Interrupted,
        LabError::NoSuchProgram { .. } => Failure::NotFound(error.to_string()),
        LabError::NotExecutable { .. } => Failure::NotExecutable(error.to_string()),
        LabError::Output(error) => Failure::unwritable("the program's output", &error),
        LabError::Missing { remedy: Remedy::SetupKernel(_), .. } => {
            Failure::Usage(advice::lab::message(&error))
        }
        LabError::Subject { .. } | LabError::Comparison(_) | LabError::Node { .. } => {
            Failure::Usage(advice::lab::message(&error))
        }
        other => Failure::NotRun(advice::lab::message(&other)),
    }
}
