//! `memtide daemon`, and what asks it.

use std::path::PathBuf;

use clap::ValueHint;
use serde_json::Value;

use crate::answer;
use crate::daemon::Daemon;
use crate::daemon::config::Config;
use crate::daemon::control::{self, Reply, Request, Socket};
use crate::failure::Failure;
use crate::interrupt;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Configuration file; defaults for all processes if not given, see docs/live.md
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Move nothing, only tell what would be moved
    #[arg(long)]
    dry_run: bool,
}

/// Where the daemon listens.
#[derive(Debug, clap::Args)]
pub struct At {
    /// The daemon's control socket
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
}

/// `memtide why`'s arguments.
#[derive(Debug, clap::Args)]
pub struct Why {
    /// The process
    #[arg(value_name = "PID")]
    pid: i32,
    /// An address in it, such as 0x7f0012345000
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: u64,
    #[command(flatten)]
    at: At,
}

/// Runs the daemon until it is asked to end.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut config = arguments.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
    config.dry_run |= arguments.dry_run;
    let mut daemon = Daemon::new(config)?;
    interrupt::install()?;
    let file = daemon.socket();
    let socket = Socket::listen(&file).map_err(|error| {
        Failure::Run(format!("{}: {error}; see `socket` in docs/live.md", file.display()))
    })?;
    for (name, id) in daemon.nodes() {
        eprintln!("memtide daemon: {name} is node {}", id.0);
    }
    if let Some(monitor) = daemon.monitor() {
        eprintln!("memtide daemon: {monitor}");
    }
    eprintln!("memtide daemon: listens at {}", file.display());
    daemon.run(&socket)
}

/// `memtide status`.
pub fn status(at: &At) -> Result<(), Failure> {
    ask(at, &Request::Status)
}

/// `memtide pause`.
pub fn pause(at: &At) -> Result<(), Failure> {
    ask(at, &Request::Pause)
}

/// `memtide resume`.
pub fn resume(at: &At) -> Result<(), Failure> {
    ask(at, &Request::Resume)
}

/// `memtide why`.
pub fn why(arguments: &Why) -> Result<(), Failure> {
    ask(&arguments.at, &Request::Why { pid: arguments.pid, address: arguments.address })
}

fn ask(at: &At, request: &Request) -> Result<(), Failure> {
    let file = at.socket.clone().unwrap_or_else(control::default_file);
    match control::ask(&file, request) {
        Ok(Reply::Done(value)) => answer::print(&format!("{}\n", shown(&value))),
        Ok(Reply::Refused(why)) => Err(Failure::Run(why)),
        Err(error) => Err(Failure::Run(format!(
            "{}: {error}; is a daemon running? Start it by `memtide daemon`, or name its socket by --socket",
            file.display()
        ))),
    }
}

fn shown(value: &Value) -> String {
    answer::pretty(value)
}

fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "allowed are whole numbers, and hexadecimal ones after 0x".to_owned())
}
