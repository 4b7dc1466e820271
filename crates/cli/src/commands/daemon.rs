//! `memtide daemon`, `status`, `why`, `pause` and `resume`.

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use memtide_daemon::control::{self, Reply, Request, Socket};
use memtide_daemon::status::{self, Status};
use memtide_daemon::{Config, ConfigSource, Daemon, End};
use memtide_linux::doctor;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::options::Common;
use crate::output::{self, Cell, Document, Table};
use crate::{advice, interrupt, tables, weights};

/// Long help of `memtide daemon`.
pub const ABOUT: &str = "\
Watch processes and migrate their pages by a policy

SIGHUP reloads the configuration, a TOML file. Keys and defaults:

  policy = \"relative-heat\"
      migration policy with parameters, see `memtide policy list`
  machine = the firmware's figures, if the policy uses any
      machine file, or name of a bundled machine
  monitor = the best that works
      memory monitor: \"damon\" or \"smaps\"
  watch = \"every\"
      processes: { name = .. }, { pid = .. }, { uid = .. },
      { cgroup = .. }, { all = [..] }, { any = [..] }, { not = .. }
  least_mib = 16
      minimum resident size of a process, in MiB
  max_rate_mbps = 400
      maximum migration rate, in MB/s
  stall_ms = 20
      maximum stall of a process per batch of moves, in ms
  cooldown_s = 10
      time for which moved memory may not move elsewhere, in s;
      longer each time it moves back
  time_scale = 1
      factor by which all times and limits per interval are
      divided, the policy's, too, and its share of a core is
      multiplied: for rehearsals in the lab
  dry_run = false
      move nothing, print what would move
  journal = none
      file to record decisions in, for `memtide replay`
  journal_mib = 64
      maximum size of the journal, in MiB
  socket = /run/memtide/memtide.sock
      control socket; for users $XDG_RUNTIME_DIR/memtide.sock,
      if that is set

Relative paths start at the configuration's folder.";

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Configuration file [default: default values for all keys]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Move nothing, print what would move
    #[arg(long)]
    dry_run: bool,
    /// Check the configuration on this system and exit
    #[arg(long)]
    check: bool,
}

/// Where the daemon listens.
#[derive(Debug, clap::Args)]
pub struct SocketOptions {
    /// Control socket [default: see `memtide daemon --help`]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// `memtide why`'s arguments.
#[derive(Debug, clap::Args)]
pub struct Why {
    /// Process id
    #[arg(value_name = "PID")]
    pid: i32,
    /// Hexadecimal address in the process, such as 7f0012345000
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: u64,
    #[command(flatten)]
    at: SocketOptions,
}

/// Runs the daemon until a termination signal.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = ConfigSource { file: arguments.config.clone(), dry_run: arguments.dry_run };
    if arguments.check {
        let file = source.read().map_err(advice::on_daemon)?.socket();
        Socket::check(&file).map_err(|error| refused_socket(&file, &error))?;
        for line in Daemon::check(&source).map_err(advice::on_daemon)? {
            message!("memtide daemon: {line}");
        }
        return output::print("configuration OK\n");
    }
    interrupt::install()?;
    let mut config = source.read().map_err(advice::on_daemon)?;
    let file = config.socket();
    let socket = Socket::listen(&file).map_err(|error| refused_socket(&file, &error))?;
    loop {
        let mut daemon = start(source.clone(), config)?;
        message!("memtide daemon: listening on {}", file.display());
        match daemon.run(&socket, interrupt::flag()).map_err(advice::on_daemon)? {
            End::Stopped => return Ok(()),
            End::ClockFull => message!("memtide daemon: 200 days have passed: restarting without state"),
        }
        config = daemon.into_config();
    }
}

/// A daemon before its first epoch; prints what it works with.
fn start(source: ConfigSource, config: Config) -> Result<Daemon, Failure> {
    let dry_run = config.dry_run;
    let log = Box::new(|message: &str| message!("memtide daemon: {message}"));
    let daemon = Daemon::new(source, config, log).map_err(advice::on_daemon)?;
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
    if let Some(why) = daemon.no_destination().map(str::to_owned).or_else(doctor::numa_balancing_warning) {
        message!("memtide daemon: {why}");
    }
    Ok(daemon)
}

fn refused_socket(file: &Path, error: &io::Error) -> Failure {
    Failure::Run(format!("{}: {error}; set `socket` in the configuration to another one", file.display()))
}

/// `memtide status`.
pub fn status(at: &SocketOptions) -> Result<(), Failure> {
    tables::daemon::status(&at.ask::<Status>(&Request::Status)?).print(at.common.output)
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
    let state = at.ask::<String>(request)?;
    let mut table = Table::new("daemon", &[("state", "daemon")]);
    table.rows.push(vec![Cell::text(state)]);
    Document::of(table).print(at.common.output)
}

/// `memtide why`.
pub fn why(arguments: &Why) -> Result<(), Failure> {
    let request = Request::Why { pid: arguments.pid, address: arguments.address };
    tables::daemon::why(&arguments.at.ask::<status::Why>(&request)?).print(arguments.at.common.output)
}

impl SocketOptions {
    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Failure> {
        request_data(self.socket.as_deref(), request)
    }
}

/// Sends a request to the daemon at a socket, or at the default one, and returns its reply's data.
pub fn request_data<T: DeserializeOwned>(socket: Option<&Path>, request: &Request) -> Result<T, Failure> {
    let file = socket.map_or_else(control::found_file, Path::to_owned);
    match control::ask(&file, request, interrupt::flag(), |_| ()) {
        Ok(Reply::Done(value)) => serde_json::from_value(value).map_err(|error| {
            Failure::Run(format!("{}: {error}; is the daemon of another version?", file.display()))
        }),
        Ok(Reply::Refused(why)) => Err(Failure::Run(why)),
        Ok(Reply::Paused) => Err(advice::on_paused()),
        Ok(Reply::Progress(_)) => unreachable!("progress is passed to the callback"),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Failure::Interrupted),
        Err(error) => Err(Failure::Run(format!(
            "{}: {error}; is a daemon running? Start it with `memtide daemon`, or name its socket with \
             --socket",
            file.display()
        ))),
    }
}

fn address(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(hex, 16)
        .map_err(|_| "expected a hexadecimal address, as in /proc/PID/maps, with or without 0x".to_owned())
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
            assert!(ABOUT.contains(&format!("\n  {key} = ")), "{key}");
        }
        let Config {
            policy, least_mib, max_rate_mbps, stall_ms, cooldown_s, time_scale, journal_mib, ..
        } = Config::default();
        let numbers = [
            ("least_mib", least_mib),
            ("max_rate_mbps", max_rate_mbps),
            ("stall_ms", stall_ms),
            ("cooldown_s", cooldown_s),
            ("time_scale", time_scale.into()),
            ("journal_mib", journal_mib),
        ];
        for (key, default) in numbers {
            assert!(ABOUT.contains(&format!("\n  {key} = {default}\n")), "{key} = {default}");
        }
        assert!(ABOUT.contains(&format!("\n  policy = \"{policy}\"\n")));
    }
}
