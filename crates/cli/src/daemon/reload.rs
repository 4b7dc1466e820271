//! Another configuration, without forgetting what happened.

use memtide_core::policy::Needs;
use memtide_linux::monitors::Kind;
use memtide_linux::topology::Numbers;

use super::{Daemon, Plans, journal};
use crate::daemon::config::Config;
use crate::failure::Failure;
use crate::journal::Head;

const OLD_STAYS: &str = "the old configuration stays";

impl Daemon {
    /// Reads the configuration again; a wrong one is refused, and the old one stays.
    pub(super) fn reload(&mut self) {
        let taken = self.given.read().and_then(|config| self.take(config));
        match taken {
            Ok(()) => {
                self.troubles.retain(|trouble| !trouble.starts_with(OLD_STAYS));
                tell!("memtide daemon: the configuration was read again");
            }
            Err(failure) => {
                let trouble = format!("{OLD_STAYS}: {failure}");
                // It is told each time that somebody asks for it.
                self.troubles.retain(|known| *known != trouble);
                self.trouble(trouble);
            }
        }
    }

    fn take(&mut self, config: Config) -> Result<(), Failure> {
        let Plans { numbers, machine, policy } = Plans::of(&config)?;
        if numbers.nodes != self.numbers.nodes {
            return Err(Failure::Run("memory nodes have come or gone; start the daemon again".to_owned()));
        }
        if config.socket() != self.config.socket() {
            return Err(Failure::Input("another `socket` needs another start of the daemon".to_owned()));
        }
        let is_other = config.policy != self.config.policy || machine.to_toml() != self.machine.to_toml();
        let state = if is_other { policy.state() } else { self.policy.state() };
        let head = Head::new(&config.policy, machine.to_toml(), state);
        let needs = if is_other { policy.needs() } else { self.needs };
        let watched = |needs: &Needs| (needs.regions, needs.hint_faults);
        let as_before = watched(&needs) == watched(&self.needs) && numbers == self.numbers;
        if !as_before || config.monitor != self.config.monitor {
            self.watch_for(numbers.clone(), &needs, config.monitor)?;
        }
        self.turn_to(&config, head, is_other)?;
        if is_other {
            (self.machine, self.policy, self.needs) = (machine, policy, needs);
        }
        self.numbers = numbers;
        self.governor.set_limits(config.limits(), needs.epoch);
        self.live.set(config.stall(), config.dry_run);
        self.config = config;
        self.told_idle = false;
        Ok(())
    }

    /// Has memory watched for other needs, or else as before.
    fn watch_for(&mut self, numbers: Numbers, needs: &Needs, monitor: Option<Kind>) -> Result<(), Failure> {
        self.live.set_needs(numbers, needs, monitor).map_err(|error| {
            let why = format!("memory cannot be watched: {error}");
            match self.live.set_needs(self.numbers.clone(), &self.needs, self.config.monitor) {
                Ok(()) => Failure::Run(why),
                Err(error) => Failure::Run(format!("{why}; nor any more as before: {error}")),
            }
        })
    }

    /// Goes on in the journal that is asked for; if the policy is another one, with a new part.
    fn turn_to(&mut self, config: &Config, head: Head, is_other: bool) -> Result<(), Failure> {
        let goes_on = self.notes.journal.as_mut().zip(config.journal.as_ref());
        match goes_on.filter(|(journal, file)| journal.is_in(file)) {
            Some((journal, _)) => {
                journal.set_bound(config.journal_mib << 20);
                if is_other {
                    journal.begin(head);
                }
            }
            None => self.notes.journal = journal(config, head)?,
        }
        Ok(())
    }
}
