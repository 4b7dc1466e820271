//! Recorded programs: the trace format, recording, importing and replaying.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![warn(missing_docs)]

mod chunk;
mod columns;
mod encode;
mod error;
mod footer;
mod guarded;
mod import;
mod info;
mod leftovers;
mod mappings;
mod metadata;
mod names;
mod program;
mod reader;
mod record;
mod row_group;
mod thrift;
mod writer;

pub use columns::{Kind, MAX_EPOCH_ROWS, MAX_THREADS, Row, VERSION};
pub use error::{Foreign, TraceError, Unrecordable};
pub use import::{ImportKind, import};
pub use info::TraceInfo;
pub use metadata::{Header, Totals};
pub use program::{Replay, ReplayOptions};
pub use reader::Trace;
pub use record::{
    MAX_EPOCH_INSTRUCTIONS, RecordOptions, RecordProgress, RecordSummary, check_recording, convert_recording,
    record,
};
pub use writer::TraceWriter;
