//! Failures and their exit codes.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use rustix::io::Errno;

use crate::output::escaped;

/// Why the command fails, each with its exit code: see docs/cli.md and `--help`.
#[derive(Debug)]
pub enum Failure {
    /// A run, or writing its result, failed: code 1.
    Run(String),
    /// The command line asks for something that does not exist or is not allowed: code 2.
    Usage(String),
    /// A file given as input is refused: code 3.
    Input(String),
    /// `doctor` found something that does not work here: code 4.
    NotWorking,
    /// A program cannot be recorded, or run in the lab: code 125, since lower ones are the program's.
    NotRun(String),
    /// The program exists but cannot be executed: code 126, as of `env` and `timeout`.
    NotExecutable(String),
    /// There is no such program: code 127.
    NotFound(String),
    /// The exit status of a program that was recorded or run, passed on without a message.
    Program(u8),
    /// Ctrl-C or a termination signal: code 130.
    Interrupted,
    /// Interrupted with partial results kept; says how to resume: code 130.
    Paused(String),
    /// The reader closed the pipe: code 0.
    OutputClosed,
    /// A message of the command line's parser, help included: its own code, 0 or 2.
    Parser(Box<clap::Error>),
}

/// Exit codes, for the help of commands that run no program.
pub const EXIT_CODES: &str = "\
Exit codes:
    0 done
    1 a run failed
    2 usage error
    3 a file was refused
  130 interrupted";

/// Exit codes, for `memtide --help`.
pub const ALL_EXIT_CODES: &str = "\
Exit codes:
    0 done
    1 a run failed
    2 usage error
    3 a file was refused
    4 doctor found a command that does not work
  125 a program could not be run
  126 a program is not executable
  127 a program was not found
  130 interrupted
Commands that run a program pass on its exit status.";

/// Exit codes, for the help of `daemon`.
pub const DAEMON_EXIT_CODES: &str = "\
Exit codes:
    0 stopped by Ctrl-C or SIGTERM
    1 failed
    2 usage error
    3 the configuration was refused";

/// Exit codes, for the help of `doctor`.
pub const DOCTOR_EXIT_CODES: &str = "\
Exit codes:
    0 all commands work, perhaps with warnings
    1 failed
    2 usage error
    4 a command does not work";

/// Exit codes, for the help of commands that run a program.
pub const PROGRAM_EXIT_CODES: &str = "\
Exit codes:
    N the program's own; 128 + N if signal N ended it
    2 usage error
    3 a file was refused
  125 memtide failed
  126 the program is not executable
  127 the program was not found
  130 interrupted";

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Run(why)
            | Failure::Usage(why)
            | Failure::Input(why)
            | Failure::NotRun(why)
            | Failure::NotExecutable(why)
            | Failure::NotFound(why)
            | Failure::Paused(why) => f.write_str(why),
            Failure::Program(code) => write!(f, "the program ended with {code}"),
            Failure::Interrupted => f.write_str("interrupted; nothing was written"),
            Failure::NotWorking => f.write_str("a command does not work here"),
            Failure::OutputClosed => f.write_str("the reader closed the output"),
            Failure::Parser(error) => error.fmt(f),
        }
    }
}

impl Failure {
    /// A failure of a command that passes a program's exit status on: code 1 is the program's.
    pub fn of_program_runner(self) -> Failure {
        match self {
            Failure::Run(why) => Failure::NotRun(why),
            other => other,
        }
    }

    /// A program that could not be started: missing, not executable, or for another reason, which is
    /// memtide's own failure.
    pub fn not_started(message: String, error: &io::Error) -> Failure {
        match Errno::from_io_error(error) {
            Some(Errno::NOENT) => Failure::NotFound(message),
            // Errors of execve only; EPERM, for instance, may come from placement.
            Some(
                Errno::ACCESS
                | Errno::NOEXEC
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::TXTBSY
                | Errno::ISDIR
                | Errno::LIBBAD,
            ) => Failure::NotExecutable(message),
            _ => Failure::NotRun(message),
        }
    }

    /// An input file that cannot be read.
    pub fn unreadable(path: &str, error: &io::Error) -> Failure {
        Failure::Input(format!("{path}: cannot be read ({error}); check the path and its permissions"))
    }

    /// An output that cannot be written.
    pub fn unwritable(path: impl Display, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; make the folder first, or name another",
            io::ErrorKind::PermissionDenied => "; check the permissions of the file and its folder",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space there",
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => "; name another folder",
            _ if error.raw_os_error().is_none() => "; name another file",
            _ => "",
        };
        // Without the temporary file's name.
        let error = error.to_string();
        let error = error.split(" at path ").next().unwrap_or_default();
        Failure::Run(format!("{path}: cannot be written ({error}){advice}"))
    }

    /// Prints the message on standard error and returns the exit code.
    pub fn report(self) -> ExitCode {
        let (code, message) = match self {
            Failure::Run(message) => (1, message),
            Failure::Usage(message) => (2, message),
            Failure::Input(message) => (3, message),
            Failure::NotWorking => return ExitCode::from(4),
            Failure::NotRun(message) => (125, message),
            Failure::NotExecutable(message) => (126, message),
            Failure::NotFound(message) => (127, message),
            Failure::Program(code) => return ExitCode::from(code),
            Failure::Interrupted => (130, "interrupted; nothing was written".to_owned()),
            Failure::Paused(message) => (130, message),
            Failure::OutputClosed => return ExitCode::SUCCESS,
            Failure::Parser(error) => {
                let says_error = error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
                if error.use_stderr() && says_error {
                    let _ = io::stderr().write_all(b"memtide: ");
                }
                let plain = error.render().to_string();
                let printed = match escaped(&plain) {
                    Cow::Borrowed(_) => error.print(),
                    // It repeats user input.
                    Cow::Owned(safe) => io::stderr().write_all(safe.as_bytes()),
                };
                let printed = printed.and_then(|()| io::stdout().flush());
                return match printed.map_err(|error| Failure::unwritable("standard output", &error)) {
                    Err(unwritable @ Failure::Run(_)) => unwritable.report(),
                    _ => ExitCode::from(error.exit_code() as u8),
                };
            }
        };
        message!("memtide: error: {message}");
        ExitCode::from(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_error_advice_fits_reason() {
        let message_of = |error: io::Error| Failure::unwritable("x", &error).to_string();
        for (kind, advice) in [
            (io::ErrorKind::NotFound, "; make the folder first"),
            (io::ErrorKind::PermissionDenied, "; check the permissions"),
            (io::ErrorKind::StorageFull, "; free space there"),
            (io::ErrorKind::ReadOnlyFilesystem, "; name another folder"),
        ] {
            assert!(message_of(kind.into()).contains(advice), "{}", message_of(kind.into()));
        }
        assert!(message_of(io::Error::other("not a report")).ends_with("(not a report); name another file"));
        assert!(message_of(rustix::io::Errno::IO.into()).ends_with(')'));
    }
}
