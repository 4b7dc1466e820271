//! What goes wrong with traces.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read, written, recorded or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Not a trace at all: of another format.
    #[error("{path}: {found}", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: Foreign,
    },
    /// A file that cannot be used as asked: a trace of another version, an input or output of the wrong kind.
    #[error("{path}: {what}", path = .path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        what: String,
    },
    /// Once a trace, but damaged.
    #[error(
        "{path}: damaged trace: {what}; record it again or fetch it anew",
        path = .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// A line of an imported file is wrong.
    #[error("{path}:{line}: {what}", path = .path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it, and what is allowed.
        what: String,
    },
    /// Whoever watches has stopped it.
    #[error("interrupted")]
    Interrupted,
    /// No program to record was named.
    #[error("no program to record")]
    NoProgram,
    /// A program cannot be recorded.
    #[error("cannot record {program}: {why}")]
    Record {
        /// The program.
        program: String,
        /// Why.
        why: Unrecordable,
    },
}

/// The format of a file that is not a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The file is empty.
    #[error("an empty file, so not a memtide trace")]
    Empty,
    /// Not Parquet, the format that traces are stored in.
    #[error("not a Parquet file, so not a memtide trace")]
    NotParquet,
    /// A Parquet file with other contents.
    #[error("a Parquet file, but not a memtide trace")]
    Parquet,
}

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unrecordable {
    /// The program is a script, and QEMU runs executables.
    #[error("a script")]
    Script {
        /// What runs it, with its arguments: the script's first line.
        interpreter: String,
        /// The script.
        path: PathBuf,
    },
    /// The plugin cannot be read.
    #[error("plugin {}: {source}", plugin.display())]
    PluginUnreadable {
        /// Its file.
        plugin: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The plugin's file is not a plugin for QEMU.
    #[error("plugin {}: not a plugin for QEMU", plugin.display())]
    NotAPlugin {
        /// The file.
        plugin: PathBuf,
        /// The name of the recorder's file.
        recorder: &'static str,
    },
    /// The recorder is not beside memtide, and no other plugin was named.
    #[error("the recorder plugin {recorder} is not beside memtide")]
    NoPlugin {
        /// The name of the recorder's file.
        recorder: &'static str,
    },
    /// Anything else, with what to do.
    #[error("{0}")]
    Other(String),
}

impl TraceError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> TraceError {
        let path = path.to_owned();
        move |source| TraceError::Io { path, action, source: without_temporary(source) }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> TraceError {
        TraceError::Damaged { path: path.to_owned(), what: what.to_string() }
    }
}

/// The error without the name of a temporary file, which nobody asked for.
fn without_temporary(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path ") {
        Some((what, _)) => io::Error::new(error.kind(), what.to_owned()),
        None => error,
    }
}
