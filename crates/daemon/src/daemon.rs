//! The daemon's state.

use memtide_core::epoch::PolicyRunner;
use memtide_core::policy::{Migration, Sensor, Sensors, Wake};
use memtide_core::{Machine, NodeId};
use memtide_linux::live::Live;
use memtide_linux::topology::{Numbers, System};

use crate::config::{Config, ConfigSource};
use crate::error::DaemonError;
use crate::host::DaemonHost;
use crate::journal::Head;
use crate::notes::{Log, Notes};
use crate::setup::{self, Setup};
use crate::transfers::Transfers;
use crate::troubles::Troubles;

/// A daemon: watches processes, and moves their pages as a migration policy says.
pub struct Daemon<H: DaemonHost = Live> {
    pub(crate) source: ConfigSource,
    pub(crate) config: Config,
    pub(crate) numbers: Numbers,
    pub(crate) machine: Machine,
    pub(crate) runner: PolicyRunner,
    /// When the policy's next epoch is due after the last one.
    pub(crate) wake: Wake,
    pub(crate) host: H,
    pub(crate) notes: Notes,
    pub(crate) paused: bool,
    pub(crate) epochs: u64,
    pub(crate) troubles: Troubles,
    pub(crate) idle_logged: bool,
    pub(crate) transfers: Transfers,
}

/// What a policy observes, and what `memtide status` shows beside that.
pub(crate) fn sensors(policy: &dyn Migration) -> Sensors {
    policy.sensors().want(Sensor::NodeTraffic)
}

impl Daemon {
    /// Checks that a daemon could start with this configuration on this system. Gives why there would be nowhere for pages
    /// to move to, if so.
    ///
    /// # Errors
    /// As [`Daemon::new`].
    pub fn check(source: &ConfigSource) -> Result<Option<&'static str>, DaemonError> {
        let config = source.read()?;
        let Setup { numbers, machine, policy } = Setup::of(&config, &System::read()?)?;
        Live::new(numbers, &sensors(policy.as_ref()), config.monitor, config.stall(), true)?;
        Ok(setup::no_destination(&machine))
    }

    /// A daemon as configured, before its first epoch. `config` was read from `source`, from which SIGHUP has it read again;
    /// `log` gets messages for people, a line each, without a name before them.
    ///
    /// # Errors
    /// If the configuration does not fit this system, a sensor cannot be had, or the journal cannot be written.
    pub fn new(source: ConfigSource, config: Config, log: Log) -> Result<Daemon, DaemonError> {
        let setup = Setup::of(&config, &System::read()?)?;
        let sensors = sensors(setup.policy.as_ref());
        let live =
            Live::new(setup.numbers.clone(), &sensors, config.monitor, config.stall(), config.dry_run)?;
        Daemon::on(live, setup, source, config, log)
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// A daemon on a system, before its first epoch.
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
        let notes = Notes::new(setup::journal(&config, head)?, log);
        let wake = Wake::After(policy.sensors().first_epoch);
        Ok(Daemon {
            runner: PolicyRunner::new(policy, config.limits()),
            source,
            config,
            numbers,
            machine,
            wake,
            host,
            notes,
            paused: false,
            epochs: 0,
            troubles: Troubles::default(),
            idle_logged: false,
            transfers: Transfers::default(),
        })
    }

    /// Remembers what went wrong, and logs it unless it is among the last messages.
    pub(crate) fn trouble(&mut self, trouble: &str) {
        if self.troubles.add(self.host.now(), trouble) {
            self.notes.log(trouble);
        }
    }

    /// Why there is nowhere for pages to move to, if so.
    pub fn no_destination(&self) -> Option<&'static str> {
        setup::no_destination(&self.machine)
    }

    /// How it watches memory, for people; nothing if its policy needs no such thing.
    pub fn monitor(&self) -> Option<String> {
        let monitoring = self.host.monitoring()?;
        let why = monitoring.why_not_better.map_or_else(String::new, |why| format!(" ({why})"));
        let writes = if monitoring.writes { ", writes by soft-dirty" } else { "" };
        Some(format!("memory is watched by {}{writes}{why}", monitoring.name))
    }

    /// The nodes that it works on, by their names in the machine.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.machine.nodes.iter().map(|node| node.name.as_str()).zip(self.numbers.nodes.iter().copied())
    }
}

/// Whether a user may see and touch a user's processes.
pub(crate) fn may(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}
