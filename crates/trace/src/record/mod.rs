//! Records a program: it runs, unmodified, under QEMU's user mode with memtide's recorder plugin.

mod convert;
mod launch;
mod signals;
mod streams;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use memtide_recording::CONTROL_FILE;
use memtide_recording::control::{self, Word};

use crate::error::advice;
use crate::leftovers::{self, WorkFolder};
use crate::writer::{check_target, folder};
use crate::{Header, Totals, TraceError};
use signals::Signals;

pub use launch::check_recording;

/// Maximum epoch length of a recording, in instructions: this much fits into a trace's row group.
pub const MAX_EPOCH_INSTRUCTIONS: u64 = 1_000_000;

/// What to record, and the output.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The trace to write. Until the program ends, its recording is stored in the same folder, at about 6
    /// bytes per access.
    pub output: PathBuf,
    /// The program and its arguments: an x86-64 Linux executable, looked up in `PATH`.
    pub command: Vec<OsString>,
    /// Number of accesses to skip at the start.
    pub skip: u64,
    /// Maximum number of accesses to record; the program then continues unrecorded.
    pub limit: u64,
    /// Instructions of all threads per epoch: 10,000 to [`MAX_EPOCH_INSTRUCTIONS`].
    pub epoch_instructions: u64,
    /// The recorder plugin; `None`: the one installed next to memtide.
    pub plugin: Option<PathBuf>,
}

impl RecordOptions {
    /// Records all of `command`, in the longest epochs.
    pub fn new(output: impl Into<PathBuf>, command: Vec<OsString>) -> RecordOptions {
        RecordOptions {
            output: output.into(),
            command,
            skip: 0,
            limit: u64::MAX,
            epoch_instructions: MAX_EPOCH_INSTRUCTIONS,
            plugin: None,
        }
    }
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordProgress {
    /// The program is running.
    Running {
        /// Accesses so far, including skipped ones.
        accesses: u64,
        /// Instructions recorded so far.
        instructions: u64,
        /// Disk space used so far, in bytes.
        bytes: u64,
    },
    /// The program has ended; the trace is being written.
    Writing {
        /// Share written, from 0 to 1.
        share: f64,
    },
}

/// Summary of a recording.
#[derive(Clone, Debug)]
pub struct RecordSummary {
    /// The program's exit status.
    pub status: ExitStatus,
    /// Totals of the trace.
    pub totals: Totals,
    /// Accesses of the program in total, recorded or not; up to 1,024 too many for every killed thread.
    pub accesses_made: u64,
    /// Size of the trace in bytes.
    pub bytes: u64,
    /// Why recording stopped before the program did, for instance for lack of disk space.
    pub stopped: Option<String>,
}

/// Runs a program and writes its trace. The program keeps its own standard input and output.
///
/// Recording ends with the program's first process. An interrupt (Ctrl-C) reaches the program; whatever it
/// did until its end is in the trace. A signal (SIGINT, SIGTERM or SIGHUP) to this process alone is forwarded
/// to the program; one a second or more later kills the program. One that comes while the trace is being
/// written, a second or more after the last, aborts without leaving files.
///
/// If this process is killed (SIGKILL), the program continues unrecorded, and the next recording or import
/// into the same folder removes the leftovers.
///
/// # Errors
/// If QEMU or the plugin is missing, the program cannot be run under them, no access was recorded (an earlier
/// trace of that name stays), or the trace cannot be written or is aborted.
pub fn record(
    options: &RecordOptions,
    progress: &mut dyn FnMut(RecordProgress),
) -> Result<RecordSummary, TraceError> {
    check_target(&options.output)?;
    let launch = launch::Launch::prepare(options)?;
    let mut signals = Signals::hold().map_err(TraceError::io(&options.output, "hold signals back for it"))?;
    let beside = folder(&options.output);
    leftovers::remove(beside);
    let dir = WorkFolder::new(beside).map_err(TraceError::io(beside, "keep the recording in it"))?;
    let control_path = dir.path().join(CONTROL_FILE);
    let page = control::new_page(options.skip, options.limit, options.epoch_instructions);
    fs::write(&control_path, page).map_err(TraceError::io(&control_path, "write it"))?;

    let read = || read_control(&control_path).map_err(TraceError::io(&control_path, "read it"));
    let status = launch.run(dir.path(), &mut signals, &mut || {
        let page = read().unwrap_or_default();
        progress(RecordProgress::Running {
            accesses: control::read(&page, Word::Accesses),
            instructions: control::read(&page, Word::Instructions),
            bytes: bytes_of(&streams::find(dir.path()).unwrap_or_default()),
        });
    })?;

    let page = read()?;
    let streams = streams::find(dir.path())?;
    if streams.is_empty() {
        return Err(launch.not_recorded(status));
    }
    let header = Header {
        program: launch.command_line(),
        arch: "x86_64".to_owned(),
        recorder: launch.recorder(),
        epoch_instructions: options.epoch_instructions,
    };
    let last_epoch = control::read(&page, Word::Instructions) / options.epoch_instructions + 1;
    let totals = convert::convert(&streams, &options.output, header, last_epoch, &mut |share| {
        progress(RecordProgress::Writing { share });
        !signals.any()
    })?;
    let failure = match control::read(&page, Word::Failure) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(errno as i32)),
    };
    let made = control::read(&page, Word::Accesses);
    let accesses_made = made.saturating_sub(control::read(&page, Word::Unmade));
    let Some(totals) = totals else {
        return Err(match failure {
            Some(error) => TraceError::io(beside, "keep the recording in it")(error),
            None => launch.nothing_recorded(accesses_made, options.skip),
        });
    };
    let bytes = fs::metadata(&options.output).map_err(TraceError::io(&options.output, "read it"))?.len();
    let stopped = failure.map(|error| format!("{error}{}", advice(&error)));
    Ok(RecordSummary { status, totals, accesses_made, bytes, stopped })
}

/// Writes the trace of a recording: of the streams that the recorder plugin left in a folder (see crate
/// `memtide-recording`). Calls `watch` with the share done, if known, every few thousand records; it stops if
/// that returns false.
///
/// # Errors
/// If a stream cannot be read or is damaged, no access was recorded, the trace cannot be written, or `watch`
/// stops it.
pub fn convert_recording(
    folder: &Path,
    output: &Path,
    header: Header,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Totals, TraceError> {
    convert::convert(&streams::find(folder)?, output, header, 0, watch)?.ok_or_else(|| {
        TraceError::Recording { path: folder.to_owned(), what: "no access was recorded".to_owned() }
    })
}

/// The control page, which the recorded program may have modified.
fn read_control(path: &Path) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    File::open(path)?.take(control::BYTES as u64).read_to_end(&mut page)?;
    Ok(page)
}

fn bytes_of(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
}
