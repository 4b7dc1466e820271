//! The daemon's state.

use memtide_core::epoch::PolicyRunner;
use memtide_core::policy::{Migration, Sensor, Sensors, Wake};
use memtide_core::{Machine, NodeId};
use memtide_linux::live::{Live, Monitoring};
use memtide_linux::topology::{Numbers, System};

use crate::config::{Config, ConfigSource};
use crate::error::DaemonError;
use crate::host::DaemonHost;
use crate::journal::Head;
use crate::setup::{self, Setup};
use crate::transfers::Transfers;
use crate::troubles::Troubles;
use crate::watcher::{EpochWatcher, Log};

/// A daemon: watches processes and moves their pages by a migration policy.
pub struct Daemon<H: DaemonHost = Live> {
    pub(crate) source: ConfigSource,
    pub(crate) config: Config,
    pub(crate) numbers: Numbers,
    pub(crate) machine: Machine,
    pub(crate) runner: PolicyRunner,
    /// When the next epoch is due, from the policy's last one.
    pub(crate) wake: Wake,
    pub(crate) host: H,
    pub(crate) watcher: EpochWatcher,
    pub(crate) paused: bool,
    pub(crate) epochs: u64,
    pub(crate) troubles: Troubles,
    pub(crate) idle_logged: bool,
    pub(crate) transfers: Transfers,
}

/// The policy's sensors, and those of `memtide status`.
pub(crate) fn sensors(policy: &dyn Migration) -> Sensors {
    policy.sensors().want(Sensor::NodeTraffic)
}

impl Daemon {
    /// Checks that a daemon can start with this configuration on this system. Returns the reason if pages
    /// have no node to move to.
    ///
    /// # Errors
    /// As [`Daemon::new`].
    pub fn check(source: &ConfigSource) -> Result<Vec<String>, DaemonError> {
        let config = source.read()?;
        let Setup { numbers, machine, policy } = Setup::of(&config, &System::read()?)?;
        let asked = sensors(policy.as_ref());
        let live = Live::new(numbers, &asked, config.monitor, config.stall(), true)
            .map_err(|why| config.refused_sensor(&why))?;
        let monitor = live.monitoring().map(|monitoring| monitor_line(&monitoring));
        Ok(monitor.into_iter().chain(setup::no_destination(&machine).map(str::to_owned)).collect())
    }

    /// A daemon on this system, before its first epoch. `config` was read from `source`, which SIGHUP reads
    /// again; `log` receives messages, a line each, without a prefix.
    ///
    /// # Errors
    /// If the configuration does not fit this system, a required sensor is refused, or the journal cannot be
    /// written.
    pub fn new(source: ConfigSource, config: Config, log: Log) -> Result<Daemon, DaemonError> {
        let setup = Setup::of(&config, &System::read()?)?;
        let sensors = sensors(setup.policy.as_ref());
        let live = Live::new(setup.numbers.clone(), &sensors, config.monitor, config.stall(), config.dry_run)
            .map_err(|why| config.refused_sensor(&why))?;
        Daemon::on(live, setup, source, config, log)
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// A daemon on a host, before its first epoch.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn on(
        host: H,
        setup: Setup,
        source: ConfigSource,
        config: Config,
        log: Log,
    ) -> Result<Daemon<H>, DaemonError> {
        let Setup { numbers, machine, policy } = setup;
        let head = Head::new(&config.policy, machine.to_toml(), policy.state());
        let watcher = EpochWatcher::new(setup::journal(&config, head)?, log);
        let wake = Wake::After(policy.sensors().first_epoch);
        Ok(Daemon {
            runner: PolicyRunner::new(policy, config.limits()),
            source,
            config,
            numbers,
            machine,
            wake,
            host,
            watcher,
            paused: false,
            epochs: 0,
            troubles: Troubles::default(),
            idle_logged: false,
            transfers: Transfers::default(),
        })
    }

    /// Records an error, and logs it unless it is among the recent ones.
    pub(crate) fn trouble(&mut self, trouble: &str) {
        if self.troubles.add(self.host.now(), trouble) {
            self.watcher.log(trouble);
        }
    }

    /// Its current configuration, once it has run.
    pub fn into_config(self) -> Config {
        self.config
    }

    /// The host.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The reason if pages have no node to move to.
    pub fn no_destination(&self) -> Option<&'static str> {
        setup::no_destination(&self.machine)
    }

    /// How memory is monitored, as a log message; `None` if the policy needs no regions.
    pub fn monitor(&self) -> Option<String> {
        self.host.monitoring().map(|monitoring| monitor_line(&monitoring))
    }

    /// The machine's nodes by name, with the system's numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.machine.nodes.iter().map(|node| node.name.as_str()).zip(self.numbers.nodes.iter().copied())
    }
}

fn monitor_line(monitoring: &Monitoring<'_>) -> String {
    let why = monitoring.why_not_better.map_or_else(String::new, |why| format!(" ({why})"));
    let writes = if monitoring.writes { ", writes by soft-dirty" } else { "" };
    format!("memory is monitored by {}{writes}{why}", monitoring.name)
}

/// Whether a user may see and control a user's processes.
pub(crate) fn may(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}
