//! Errors of traces.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why a trace cannot be read, written, recorded or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// An error of the operating system.
    #[error("{path}: cannot {action}: {source}{advice}", path = .path.display(), advice = advice(.source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Not a trace: another format.
    #[error("{path}: {found}", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: Foreign,
    },
    /// A file that cannot be used here: a trace of another version, an input or output of the wrong kind.
    #[error("{path}: {what}", path = .path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// Its kind, and what to do.
        what: String,
    },
    /// A damaged trace.
    #[error(
        "{path}: damaged trace: {what}; record the program again, or copy the file again",
        path = .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        what: String,
    },
    /// The recorder plugin's output is damaged.
    #[error("{path}: damaged recording: {what}; record the program again", path = .path.display())]
    Recording {
        /// The stream, or the folder of all streams.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A line of an imported file is wrong.
    #[error("{path}:{line}: {what}", path = .path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// Stopped by the caller.
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
        /// The reason.
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
    /// The program is a script, but QEMU runs executables.
    #[error("a script")]
    Script {
        /// Its interpreter with arguments, from the script's first line.
        interpreter: String,
        /// The script.
        path: PathBuf,
    },
    /// The plugin cannot be read.
    #[error("plugin {}: {source}", plugin.display())]
    PluginUnreadable {
        /// Its file.
        plugin: PathBuf,
        /// The system's error.
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
    /// The recorder is not next to memtide, and no other plugin was named.
    #[error("the recorder plugin {recorder} is not beside memtide")]
    NoPlugin {
        /// The name of the recorder's file.
        recorder: &'static str,
    },
    /// There is no such program.
    #[error("program not found; give its path")]
    NotFound,
    /// The program is not an executable that runs on x86-64 Linux.
    #[error("{0}")]
    NotExecutable(String),
    /// Any other reason, with what to do.
    #[error("{0}")]
    Other(String),
}

impl TraceError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> TraceError {
        let path = path.to_owned();
        move |source| TraceError::Io { path, action, source: plain(source) }
    }

    pub(crate) fn recording(path: &Path, what: impl ToString) -> TraceError {
        TraceError::Recording { path: path.to_owned(), what: what.to_string() }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> TraceError {
        TraceError::Damaged { path: path.to_owned(), what: what.to_string() }
    }
}

/// The system's message without additions of libraries: their names, and those of temporary files.
fn plain(error: io::Error) -> io::Error {
    let mut cause: &(dyn Error + 'static) = &error;
    loop {
        if let Some(errno) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        match cause.source() {
            Some(next) => cause = next,
            None => break,
        }
    }
    // `tempfile` hides the cause, but not its message.
    let text = error.to_string();
    let number = text.split_once(" (os error ").and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
    number.map_or(error, io::Error::from_raw_os_error)
}

/// What to do about a system error, after a semicolon; empty if the error says all.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "; free space there, or choose another folder",
        Some(Errno::ROFS) => "; the file system is mounted read-only: choose another folder",
        Some(Errno::MFILE) => "; raise the limit of open files: ulimit -n",
        Some(Errno::NFILE) => "; close programs that have many files open, or raise fs.file-max",
        Some(Errno::IO) => "; the disk is failing, or was taken away: see dmesg",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use parquet::errors::ParquetError;

    use super::*;

    #[test]
    fn error_of_the_system_is_named_with_what_to_do() {
        let message = |source| TraceError::io(Path::new("dir/trace"), "write it")(source).to_string();
        for (errno, expected) in [
            (
                Errno::NOSPC,
                "No space left on device (os error 28); free space there, or choose another folder",
            ),
            (Errno::ROFS, "Read-only file system (os error 30); the file system is mounted read-only"),
            (Errno::MFILE, "Too many open files (os error 24); raise the limit of open files: ulimit -n"),
            (Errno::IO, "Input/output error (os error 5); the disk is failing"),
            (Errno::ACCESS, "Permission denied (os error 13)"),
        ] {
            let parquet = ParquetError::External(Box::new(io::Error::from(errno)));
            for source in [io::Error::from(errno), io::Error::other(parquet)] {
                let message = message(source);
                assert!(message.starts_with(&format!("dir/trace: cannot write it: {expected}")), "{message}");
            }
        }
        let missing = tempfile::Builder::new().tempfile_in("/no such folder").unwrap_err();
        assert_eq!(message(missing), "dir/trace: cannot write it: No such file or directory (os error 2)");
        assert_eq!(message(io::Error::other("it is a pipe")), "dir/trace: cannot write it: it is a pipe");
    }
}
