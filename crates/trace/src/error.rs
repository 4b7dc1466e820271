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
    /// Not a trace at all, or one of another version.
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
    /// A program cannot be recorded.
    #[error("cannot record {program}: {what}")]
    Record {
        /// The program.
        program: String,
        /// Why, and what to do.
        what: String,
    },
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
