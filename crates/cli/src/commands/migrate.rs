//! `memtide migrate`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use memtide_core::NodeId;
use memtide_daemon::DaemonError;
use memtide_daemon::control::{self, Migrate, Reply, Request};
use memtide_daemon::transfers::{self, Progress};
use memtide_linux::topology::System;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{Cell, Document, Table};
use crate::progress::Progress as Bar;
use crate::{advice, interrupt};

/// Longest stall of the process per batch of moves, without a daemon.
const STALL: Duration = Duration::from_millis(20);

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Process id
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,
    /// Source nodes, in numactl's syntax: 0-2,5 or all, !0, +0-1
    #[arg(long, value_name = "NODES")]
    from: String,
    /// Target nodes; the first with free memory takes a page
    #[arg(long, value_name = "NODES")]
    to: String,
    /// Maximum migration rate, in MB/s
    #[arg(long, value_name = "MB/s", default_value_t = 200,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_rate: u64,
    /// Control socket; without a daemon the command moves the pages
    ///
    /// [default: /run/memtide/memtide.sock, for users $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Moves the pages and prints the outcomes.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (from, to) = (arguments.from.clone(), arguments.to.clone());
    let request = Migrate { pid: arguments.pid, from, to, max_rate_mbps: arguments.max_rate };
    let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
    let nodes: Vec<NodeId> = host.with_memory().map(|node| node.id).collect();
    transfers::nodes(&request, &nodes).map_err(advice::on_daemon)?;
    let bar = Bar::new("migrating", 1);
    let mut last = Progress::default();
    let file = arguments.socket.clone().unwrap_or_else(control::found_file);
    let by_daemon = control::ask(&file, &Request::Migrate(request.clone()), interrupt::flag(), |value| {
        last = serde_json::from_value(value).unwrap_or_default();
        bar.set(0, last.share);
    });
    let done = match by_daemon {
        Ok(Reply::Done(value)) => serde_json::from_value(value)
            .map_err(|error| Failure::Run(format!("{error}; is the daemon of another version?")))?,
        Ok(Reply::Refused(why)) => return Err(Failure::Run(why)),
        Ok(Reply::Paused) => return Err(advice::on_paused()),
        Err(error) if is_not_listening(&error) && arguments.socket.is_none() => {
            move_directly(&request, &nodes, &bar)?
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(interrupted(&last)),
        Ok(Reply::Progress(_)) | Err(_) => {
            let why = by_daemon.err().map(|error| error.to_string()).unwrap_or_default();
            return Err(Failure::Run(format!("{}: {why}", file.display())));
        }
    };
    drop(bar);
    document(&done).print(arguments.common.output)
}

/// Whether no daemon listens at the socket.
fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Moves the pages without a daemon.
fn move_directly(request: &Migrate, nodes: &[NodeId], bar: &Bar) -> Result<Progress, Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let report = |progress: &Progress| {
        bar.set(0, progress.share);
        !interrupt::requested()
    };
    transfers::run(request, uid, nodes, STALL, report).map_err(|(progress, error)| match *error {
        DaemonError::Stopped => interrupted(&progress),
        error => advice::on_daemon(error),
    })
}

fn interrupted(progress: &Progress) -> Failure {
    let moved = progress.tally.moved_pages;
    Failure::Paused(format!(
        "interrupted; {moved} pages of 4 KiB had moved and stay there; run the same command to move the rest"
    ))
}

fn document(done: &Progress) -> Document {
    let mut table = Table::new("outcomes", &[("outcome", "outcome"), ("pages", "pages of 4 KiB")]);
    let refused = done.tally.refused_pages.iter();
    let refused = refused.map(|(why, pages)| vec![Cell::text(why.to_string()), Cell::Whole(*pages)]);
    table.rows =
        [vec![Cell::text("moved"), Cell::Whole(done.tally.moved_pages)]].into_iter().chain(refused).collect();
    let about =
        vec![("found_pages", Cell::Whole(done.tally.found_pages)), ("seconds", Cell::Real(done.seconds, 1))];
    Document { about, ..Document::of(table) }
}
