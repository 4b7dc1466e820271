//! Errors of the lab.

use std::io;
use std::path::{Path, PathBuf};

/// Remedy for a missing part. The caller words it: it knows its commands and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Run setup: [`crate::setup`].
    Setup,
    /// Run setup with this kernel package, by name prefix.
    SetupKernel(String),
    /// Run setup as root.
    SetupAsRoot,
    /// Make pip and PyPI available, then run setup.
    SetupWithPip,
    /// Run setup, whose report says why damo could not be fetched.
    SetupDamo,
    /// Use a kernel fetched by setup, with its modules.
    FetchedKernel,
    /// Name a suite with the package.
    OtherSuite,
    /// Name a suite with QEMU, or install it by other means.
    OtherSuiteOrQemu,
    /// Name another kernel package or another suite, or give a kernel's file.
    OtherPackageOrSuite,
    /// Name another kernel package, or give a kernel's file.
    OtherKernel,
    /// Install QEMU by other means, and give a kernel's file: packages are not available.
    QemuAndKernel,
    /// Give an x86 kernel's file.
    KernelImage,
    /// Build the guest's first process.
    BuildAgent,
    /// Build or install memtide and the guest's first process together.
    BuildTogether,
    /// Build the clock plugin, or run without timing.
    BuildClock,
    /// Set `HOME` or `XDG_CACHE_HOME` to a folder.
    CacheFolder,
    /// Start a guest with a hotpluggable node.
    StartGuest,
    /// Choose one of the runs listed.
    ChooseRun,
    /// Try again.
    TryAgain,
}

/// Errors of the lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A required part is missing.
    #[error("{what}")]
    Missing {
        /// The part.
        what: String,
        /// The remedy.
        remedy: Remedy,
    },
    /// No program was named.
    #[error("nothing to run")]
    NoProgram,
    /// The machine cannot be virtualised.
    #[error("machine '{machine}': {what}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// There is no such program.
    #[error("{program}: program not found; give its path")]
    NoSuchProgram {
        /// The program.
        program: String,
    },
    /// The program cannot be executed.
    #[error("{program}: {what}")]
    NotExecutable {
        /// The program.
        program: String,
        /// The cause.
        what: &'static str,
    },
    /// The program, or a file for it, cannot be put into the guest.
    #[error("{program}: {what}")]
    Program {
        /// The program or file.
        program: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: cannot {doing} ({source}){}", what_to_do(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The failed operation.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The guest did not boot, or ended before the program did.
    #[error("{what}{}", last_lines(console))]
    Guest {
        /// What happened.
        what: String,
        /// Tail of its console and of QEMU's output.
        console: String,
    },
    /// Timed out.
    #[error("timed out after {seconds} s, {}{}", after_boot(*boot_seconds), last_lines(console))]
    Timeout {
        /// The limit in host seconds.
        seconds: f64,
        /// Host seconds of the boot; `None` if the guest had not booted.
        boot_seconds: Option<f64>,
        /// Tail of the guest's console.
        console: String,
    },
    /// The program's output cannot be forwarded.
    #[error("the program's output cannot be written ({0})")]
    Output(#[source] io::Error),
    /// A subject of a comparison is not available.
    #[error("subject '{subject}': {what}")]
    Subject {
        /// The subject as entered.
        subject: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// The options do not allow equal runs, which a comparison needs.
    #[error("a comparison {0}")]
    Comparison(String),
    /// A node's memory is not as required, or cannot be plugged in or out.
    #[error("node '{node}': {what}")]
    Node {
        /// Its name.
        node: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A command to a running QEMU failed.
    #[error("the virtual machine of run {run}: {what}")]
    Qmp {
        /// The run.
        run: u32,
        /// The command and QEMU's answer.
        what: String,
    },
    /// A command of setup failed.
    #[error("{command} failed: {why}")]
    Command {
        /// The command line.
        command: String,
        /// Its output.
        why: String,
    },
    /// Interrupted by the caller.
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    pub(crate) fn file<'a>(
        path: &'a Path,
        doing: &'static str,
    ) -> impl FnOnce(io::Error) -> LabError + use<'a> {
        move |source| LabError::File { path: path.to_owned(), doing, source }
    }
}

fn what_to_do(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or set TMPDIR to a folder that has more"
        }
        _ => "",
    }
}

fn after_boot(boot_seconds: Option<f64>) -> String {
    match boot_seconds {
        Some(seconds) => format!("of which the boot took {seconds:.1} s; the program was ended"),
        None => "before the guest had booted".to_owned(),
    }
}

fn last_lines(console: &str) -> String {
    if console.trim().is_empty() {
        return String::new();
    }
    let lines: Vec<String> = console.lines().map(|line| format!("\n  {}", line.trim_end())).collect();
    format!("; its last output:{}", lines.concat())
}
