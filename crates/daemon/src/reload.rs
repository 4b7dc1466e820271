//! Reloads the configuration without losing state.

use std::path::Path;

use memtide_core::policy::{Sensors, Wake};
use memtide_linux::sensors::regions::Kind;
use memtide_linux::topology::Numbers;

use crate::config::Config;
use crate::daemon::{Daemon, sensors};
use crate::error::DaemonError;
use crate::host::DaemonHost;
use crate::journal::{Head, Journal};
use crate::setup::{Setup, journal};

const OLD_STAYS: &str = "the old configuration stays in effect";

impl<H: DaemonHost> Daemon<H> {
    /// Reloads the configuration; an invalid one is refused, and the old one stays.
    pub(crate) fn reload(&mut self) {
        let taken = self.source.read().and_then(|config| self.take(config));
        match taken {
            Ok(()) => {
                self.troubles.forget(OLD_STAYS);
                self.watcher.log("configuration reloaded");
            }
            Err(error) => {
                let trouble = format!("{OLD_STAYS}: {error}");
                // Reported at every request for a reload.
                self.troubles.forget(&trouble);
                self.trouble(&trouble);
            }
        }
    }

    fn take(&mut self, config: Config) -> Result<(), DaemonError> {
        let Setup { numbers, machine, policy } = Setup::of(&config, &self.host.system()?)?;
        if numbers.nodes != self.numbers.nodes {
            return Err(DaemonError::NodesChanged);
        }
        if config.socket() != self.config.socket() {
            return Err(config.fault("socket", "a change requires a restart of the daemon"));
        }
        let is_other = config.policy != self.config.policy || machine.to_toml() != self.machine.to_toml();
        let before = sensors(self.runner.policy());
        let (state, sensors) = match is_other {
            true => (policy.state(), sensors(policy.as_ref())),
            false => (self.runner.policy().state(), before.clone()),
        };
        let head = Head::new(&config.policy, machine.to_toml(), state);
        let goes_on = self.journal_in(config.journal.as_deref()).is_some();
        let other = if goes_on { None } else { journal(&config, head.clone())? };
        let as_before = sensors.iter().eq(before.iter()) && numbers == self.numbers;
        if !as_before || config.monitor != self.config.monitor {
            self.observe_for(numbers.clone(), &sensors, &before, config.monitor)?;
        }
        match self.journal_in(config.journal.as_deref()) {
            Some(journal) => {
                journal.set_limit(config.journal_mib << 20);
                if is_other {
                    journal.begin(head);
                }
            }
            None => self.watcher.journal = other,
        }
        if is_other {
            self.machine = machine;
            self.wake = Wake::After(sensors.first_epoch);
            self.runner.set_policy(policy);
        }
        self.numbers = numbers;
        self.runner.set_limits(config.limits());
        self.host.set(config.stall(), config.dry_run);
        self.config = config;
        self.idle_logged = false;
        Ok(())
    }

    /// Opens another policy's sensors, or else restores the previous ones.
    fn observe_for(
        &mut self,
        numbers: Numbers,
        sensors: &Sensors,
        before: &Sensors,
        monitor: Option<Kind>,
    ) -> Result<(), DaemonError> {
        self.host.set_sensors(numbers, sensors, monitor).map_err(|error| {
            match self.host.set_sensors(self.numbers.clone(), before, self.config.monitor) {
                Ok(()) => DaemonError::Unwatched(error),
                Err(before) => DaemonError::NoLongerWatched { error, before },
            }
        })
    }

    /// The journal, if it continues in this file.
    fn journal_in(&mut self, file: Option<&Path>) -> Option<&mut Journal> {
        self.watcher
            .journal
            .as_mut()
            .zip(file)
            .filter(|(journal, file)| journal.is_in(file))
            .map(|(journal, _)| journal)
    }
}
