//! `memtide daemon`, `status`, `why`, `pause` and `resume`.

use std::io;
use std::path::PathBuf;

use clap::ValueHint;
use memtide_daemon::control::{self, Reply, Request, Socket};
use memtide_daemon::status::{self, Status};
use memtide_daemon::{ConfigSource, Daemon};
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Table};
use crate::{advice, interrupt, tables, weights};

/// Long help of `memtide daemon`.
pub const ABOUT: &str = "\
Watch processes of this system, and move their pages as a migration policy says. SIGHUP has it read its configuration again.

The configuration is TOML. Keys, each of which may be left out, with their defaults:

policy = \"hot-cold\": migration policy with its parameters, see `memtide policy list`

machine = the firmware's figures, if the policy reckons with any: machine file, or a bundled machine's name

monitor = the best that works: \"damon\" or \"smaps\"

watch = \"every\": the processes that are meant: { name = .. }, { pid = .. }, { uid = .. }, { cgroup = .. }, { all = [..] }, { any = [..] }, { not = .. }

least_mib = 16: only processes with as much in memory

max_rate_mbps = 200: most that may move, in MB/s

stall_ms = 20: how long a batch of moves may hold a process up

cooldown_s = 10: how long what has moved may not move elsewhere; longer each time that it comes back

dry_run = false: move nothing, only tell

journal = none: file in which decisions are recorded, for `memtide replay`

journal_mib = 64: most that it may take up

socket = /run/memtide/memtide.sock, for users $XDG_RUNTIME_DIR/memtide.sock: where it listens

Relative paths go by the configuration's folder.";

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Configuration file; defaults for all processes if not given
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Move nothing, only tell what would be moved
    #[arg(long)]
    dry_run: bool,
    /// Only check the configuration, on this system, and end
    #[arg(long)]
    check: bool,
}

/// Where the daemon listens.
#[derive(Debug, clap::Args)]
pub struct SocketOptions {
    /// The daemon's control socket
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
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
    at: SocketOptions,
}

/// Runs the daemon until it is asked to end.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = ConfigSource { file: arguments.config.clone(), dry_run: arguments.dry_run };
    if arguments.check {
        if let Some(why) = Daemon::check(&source).map_err(advice::on_daemon)? {
            message!("memtide daemon: {why}");
        }
        return output::print("the configuration is right\n");
    }
    interrupt::install()?;
    let config = source.read().map_err(advice::on_daemon)?;
    let file = config.socket();
    let socket = Socket::listen(&file).map_err(|error| {
        Failure::Run(format!(
            "{}: {error}; name another one by `socket` in the configuration",
            file.display()
        ))
    })?;
    let dry_run = config.dry_run;
    let log = Box::new(|message: &str| message!("memtide daemon: {message}"));
    let mut daemon = Daemon::new(source, config, log).map_err(advice::on_daemon)?;
    if !dry_run {
        weights::put_back();
    }
    for (name, id) in daemon.nodes() {
        if name != format!("node{}", id.0) {
            message!("memtide daemon: {name} is node {}", id.0);
        }
    }
    if let Some(monitor) = daemon.monitor() {
        message!("memtide daemon: {monitor}");
    }
    if let Some(why) = daemon.no_destination() {
        message!("memtide daemon: {why}");
    }
    message!("memtide daemon: listens at {}", file.display());
    daemon.run(&socket, interrupt::flag()).map_err(advice::on_daemon)
}

/// `memtide status`.
pub fn status(at: &SocketOptions) -> Result<(), Failure> {
    tables::daemon::status(&request_data::<Status>(at, &Request::Status)?).print(at.common.output)
}

/// `memtide pause`.
pub fn pause(at: &SocketOptions) -> Result<(), Failure> {
    paused(at, &Request::Pause)
}

/// `memtide resume`.
pub fn resume(at: &SocketOptions) -> Result<(), Failure> {
    paused(at, &Request::Resume)
}

fn paused(at: &SocketOptions, request: &Request) -> Result<(), Failure> {
    let state = request_data::<String>(at, request)?;
    let mut table = Table::new("daemon", &[("state", "the daemon")]);
    table.rows.push(vec![Cell::text(state)]);
    Document::of(table).print(at.common.output)
}

/// `memtide why`.
pub fn why(arguments: &Why) -> Result<(), Failure> {
    let request = Request::Why { pid: arguments.pid, address: arguments.address };
    tables::daemon::why(&request_data::<status::Why>(&arguments.at, &request)?)
        .print(arguments.at.common.output)
}

/// Sends a request to the daemon and returns its reply's data.
fn request_data<T: DeserializeOwned>(at: &SocketOptions, request: &Request) -> Result<T, Failure> {
    let file = at.socket.clone().unwrap_or_else(control::found_file);
    match control::ask(&file, request, interrupt::flag(), |_| ()) {
        Ok(Reply::Done(value)) => serde_json::from_value(value).map_err(|error| {
            Failure::Run(format!("{}: {error}; is the daemon of another version?", file.display()))
        }),
        Ok(Reply::Refused(why)) => Err(Failure::Run(why)),
        Ok(Reply::Paused) => Err(advice::on_paused()),
        Ok(Reply::Progress(_)) => unreachable!("what is told meanwhile is handed on"),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Failure::Interrupted),
        Err(error) => Err(Failure::Run(format!(
            "{}: {error}; is a daemon running? Start it by `memtide daemon`, or name its socket by --socket",
            file.display()
        ))),
    }
}

fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected an integer, decimal or hexadecimal after 0x".to_owned())
}

#[cfg(test)]
mod tests {
    use memtide_daemon::Config;

    use super::*;

    #[test]
    fn help_lists_every_configuration_key() {
        let refused = toml::from_str::<Config>("none = 1").expect_err("no such key").to_string();
        let keys: Vec<&str> = refused.split('`').skip(3).step_by(2).collect();
        assert!(keys.len() > 10, "{refused}");
        for key in keys {
            assert!(ABOUT.contains(&format!("\n{key} = ")), "{key}");
        }
        let Config { policy, least_mib, max_rate_mbps, stall_ms, cooldown_s, journal_mib, .. } =
            Config::default();
        let numbers = [
            ("least_mib", least_mib),
            ("max_rate_mbps", max_rate_mbps),
            ("stall_ms", stall_ms),
            ("cooldown_s", cooldown_s),
            ("journal_mib", journal_mib),
        ];
        for (key, default) in numbers {
            assert!(ABOUT.contains(&format!("\n{key} = {default}:")), "{key} = {default}");
        }
        assert!(ABOUT.contains(&format!("\npolicy = \"{policy}\":")));
    }
}
