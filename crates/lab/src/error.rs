//! Why the lab cannot do something.

use std::io;
use std::path::{Path, PathBuf};

/// How to get what the lab needs. The caller words it: it knows its commands and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Set the lab up: [`crate::setup`].
    Setup,
    /// Set the lab up with this kernel package, by the beginning of its name.
    SetupKernel(String),
    /// Set the lab up as root.
    SetupAsRoot,
    /// Make pip and PyPI available, then set the lab up.
    SetupWithPip,
    /// Set the lab up, whose report says why damo could not be fetched.
    SetupDamo,
    /// Use a kernel that setup has fetched: it has its modules beside it.
    FetchedKernel,
    /// Name a suite that has the package.
    OtherSuite,
    /// Name a suite that has QEMU, or install it by other means.
    OtherSuiteOrQemu,
    /// Name another kernel package or another suite, or give a kernel's file.
    OtherPackageOrSuite,
    /// Name another kernel package, or give a kernel's file.
    OtherKernel,
    /// Install QEMU by other means, and give a kernel's file: packages are not available.
    QemuAndKernel,
    /// Give a file that is a kernel for x86.
    KernelImage,
    /// Build the guest's first process.
    BuildAgent,
    /// Build or install memtide and the guest's first process together.
    BuildTogether,
    /// Build the clock plugin, or run without timing.
    BuildClock,
    /// Set `HOME` or `XDG_CACHE_HOME` to a folder.
    CacheFolder,
    /// Start a guest with a node that can be plugged in.
    StartGuest,
    /// Choose one of the runs listed.
    ChooseRun,
    /// Try again.
    TryAgain,
}

/// Why the lab cannot do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Something that the lab needs is missing.
    #[error("{what}")]
    Missing {
        /// What.
        what: String,
        /// How to get it.
        remedy: Remedy,
    },
    /// No program was named.
    #[error("nothing to run")]
    NoProgram,
    /// The machine cannot be made as a virtual one.
    #[error("machine '{machine}': {what}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// There is no such program.
    #[error("{program}: no such program; give its path")]
    NoSuchProgram {
        /// The program.
        program: String,
    },
    /// The program cannot be executed.
    #[error("{program}: {what}")]
    NotExecutable {
        /// The program.
        program: String,
        /// Why not.
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
        /// What was to be done with it.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The guest did not come up, or ended before the program did.
    #[error("{what}{}", last_lines(console))]
    Guest {
        /// What happened.
        what: String,
        /// What its console and QEMU said last.
        console: String,
    },
    /// Boot and program took longer than allowed.
    #[error("timed out after {seconds} s, {}{}", after_boot(*boot_seconds), last_lines(console))]
    Timeout {
        /// Host seconds that the run had.
        seconds: f64,
        /// Of them, those that the boot took; none if the guest had not booted.
        boot_seconds: Option<f64>,
        /// What the guest's console said last.
        console: String,
    },
    /// What the program prints cannot be passed on.
    #[error("the program's output cannot be written ({0})")]
    Output(#[source] io::Error),
    /// A subject of a comparison cannot be had.
    #[error("subject '{subject}': {what}")]
    Subject {
        /// As it was asked for.
        subject: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// What a comparison would be asked for has no equal runs.
    #[error("a comparison {0}")]
    Comparison(String),
    /// A node is not as asked for, or cannot be brought there.
    #[error("node '{node}': {what}")]
    Node {
        /// Its name.
        node: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// QEMU does not do what it is asked while it runs.
    #[error("the virtual machine of run {run}: {what}")]
    Qmp {
        /// The run.
        run: u32,
        /// What it was asked, and what it said.
        what: String,
    },
    /// A command that setup needs has failed.
    #[error("{command} failed: {why}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        why: String,
    },
    /// The caller asked for an end.
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
