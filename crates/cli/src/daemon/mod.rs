//! The daemon: watches processes, and moves their pages as a migration policy says.

pub mod config;
pub mod control;
mod history;
mod notes;
mod reload;
mod replies;
pub mod status;
pub mod transfers;
mod troubles;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use memtide_core::epoch::{Governor, Host as _, step};
use memtide_core::policy::{Delivery, Migration, Needs};
use memtide_core::{Machine, NodeId, Time};
use memtide_linux::live::Live;
use memtide_linux::processes::{self, Process};
use memtide_linux::topology::{Numbers, System};
use memtide_policies::Policy;
use signal_hook::consts::SIGHUP;

use self::config::Config;
use self::control::{CLIENTS_MAX, Socket};
use self::notes::Notes;
use self::transfers::Transfers;
use self::troubles::Troubles;
use crate::failure::Failure;
use crate::journal::{Head, Journal};
use crate::{interrupt, machines};

/// How often signals are looked at.
const POLL: Duration = Duration::from_millis(200);

/// When it is told that nothing is watched: processes are watched once they have lived 3 s.
const IDLE_TOLD: Time = Time::from_ms(6000);

/// A daemon at work.
pub struct Daemon {
    given: Given,
    config: Config,
    numbers: Numbers,
    machine: Machine,
    policy: Box<dyn Migration>,
    needs: Needs,
    governor: Governor,
    live: Live,
    notes: Notes,
    paused: bool,
    epochs: u64,
    troubles: Troubles,
    told_idle: bool,
    transfers: Transfers,
}

/// What the command line says of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Its file; defaults if there is none.
    pub file: Option<PathBuf>,
    /// Nothing is moved, whatever the file says.
    pub dry_run: bool,
}

impl Given {
    /// The configuration as it is now.
    pub fn read(&self) -> Result<Config, Failure> {
        let mut config = self.file.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        config.dry_run |= self.dry_run;
        Ok(config)
    }
}

impl Daemon {
    /// Whether a daemon could begin with this configuration on this system; tells what it could not do then.
    pub fn check(given: &Given) -> Result<Option<&'static str>, Failure> {
        let config = given.read()?;
        let Plans { numbers, machine, policy } = Plans::of(&config)?;
        Live::new(numbers, &policy.needs(), config.monitor, config.stall(), true).map_err(unwatched)?;
        Ok(nowhere(&machine))
    }

    /// A daemon as configured, that has not begun yet.
    pub fn new(given: Given, config: Config) -> Result<Daemon, Failure> {
        let Plans { numbers, machine, policy } = Plans::of(&config)?;
        let needs = policy.needs();
        let live = Live::new(numbers.clone(), &needs, config.monitor, config.stall(), config.dry_run)
            .map_err(unwatched)?;
        let governor = Governor::new(config.limits(), needs.epoch);
        let head = Head::new(&config.policy, machine.to_toml(), policy.state());
        let notes = Notes { journal: journal(&config, head)?, ..Notes::default() };
        Ok(Daemon {
            given,
            config,
            numbers,
            machine,
            policy,
            needs,
            governor,
            live,
            notes,
            paused: false,
            epochs: 0,
            troubles: Troubles::default(),
            told_idle: false,
            transfers: Transfers::default(),
        })
    }

    /// Works until it is asked to end.
    pub fn run(&mut self, socket: &Socket) -> Result<(), Failure> {
        let hung_up = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&hung_up))
            .map_err(|error| Failure::Run(format!("signals cannot be handled: {error}")))?;
        let mut next = Instant::now();
        while !interrupt::asked() {
            if hung_up.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                match socket.asked.recv_timeout(left.min(POLL)) {
                    Ok(asked) => self.reply(&asked),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Failure::Run("the control socket has failed".to_owned()));
                    }
                }
                continue;
            }
            self.epoch();
            self.tell_if_idle();
            // Those who ask are served even if no time is left between epochs.
            socket.asked.try_iter().take(CLIENTS_MAX).for_each(|asked| self.reply(&asked));
            let epoch = Duration::from_nanos(self.needs.epoch.as_ns() as u64);
            next = (next + epoch).max(Instant::now());
        }
        Ok(())
    }

    fn epoch(&mut self) {
        let (me, uid) = (rustix::process::getpid(), rustix::process::geteuid().as_raw());
        match processes::all(self.config.least_mib << 8) {
            Ok(all) => {
                let may = |process: &Process| process.pid != me && Daemon::may(uid, process.uid);
                let watched = all.into_iter().filter(|process| may(process) && self.config.watches(process));
                self.live.watch(watched.collect());
            }
            Err(error) => self.trouble(&format!("/proc: {error}")),
        }
        if !self.paused && !self.live.watched().is_empty() {
            self.turn_journal();
            step(&mut self.live, self.policy.as_mut(), &mut self.governor, &mut self.notes);
            self.epochs += 1;
        }
        let journal = self.notes.journal.as_mut().and_then(Journal::take_trouble);
        for trouble in self.live.take_troubles().into_iter().chain(journal) {
            self.trouble(&trouble);
        }
    }

    /// Says that nothing is watched, once: a filter that is wrong looks like an idle system.
    fn tell_if_idle(&mut self) {
        if self.told_idle || self.paused || self.live.now() < IDLE_TOLD {
            return;
        }
        self.told_idle = true;
        if self.live.watched().is_empty() && self.troubles.is_empty() {
            let least = self.config.least_mib;
            tell!(
                "memtide daemon: no process is watched yet: none that `watch` takes has {least} MiB (least_mib) in memory"
            );
        }
    }

    /// Begins a new part of the journal if its file is full or gone.
    fn turn_journal(&mut self) {
        if let Some(journal) = self.notes.journal.as_mut().filter(|journal| journal.is_over()) {
            journal.begin(Head::new(&self.config.policy, self.machine.to_toml(), self.policy.state()));
        }
    }

    /// Tells of a trouble, unless it is among the last ones.
    fn trouble(&mut self, trouble: &str) {
        if self.troubles.add(self.live.now(), trouble) {
            tell!("memtide daemon: {trouble}");
        }
    }

    /// Why there is nowhere for pages to move to, if so.
    pub fn nowhere(&self) -> Option<&'static str> {
        nowhere(&self.machine)
    }

    /// How it watches memory, for people; nothing if its policy needs no such thing.
    pub fn monitor(&self) -> Option<String> {
        let (kind, why) = self.live.monitor()?;
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let writes = if self.live.tells_writes() { ", writes by soft-dirty" } else { "" };
        Some(format!("memory is watched by {}{writes}{why}", kind.name()))
    }

    /// The nodes that it works on, by their names in the machine.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.machine.nodes.iter().map(|node| node.name.as_str()).zip(self.numbers.nodes.iter().copied())
    }
}

/// Policies move pages between tiers.
fn nowhere(machine: &Machine) -> Option<&'static str> {
    let [first, others @ ..] = machine.nodes.as_slice() else { return None };
    if others.iter().any(|node| node.tier != first.tier) {
        return None;
    }
    Some(match others {
        [] => "this system has one memory node: there is nowhere to move pages to",
        _ => {
            "all memory nodes are of one tier, and policies move pages between tiers: give a machine file in which they are not, by `machine`"
        }
    })
}

fn unwatched(error: io::Error) -> Failure {
    Failure::Run(format!("memory cannot be watched: {error}"))
}

/// What decides, and on which nodes.
struct Plans {
    numbers: Numbers,
    machine: Machine,
    policy: Box<dyn Migration>,
}

impl Plans {
    fn of(config: &Config) -> Result<Plans, Failure> {
        let host = System::read().map_err(|error| Failure::Run(error.to_string()))?;
        let wrong = |key: &'static str| move |why: String| config.fault(key, why);
        let info = parsed(&config.policy).map_err(wrong("policy"))?.migration_info();
        let machine =
            machines::of_host(&host, config.machine.as_deref(), info).map_err(|failure| match failure {
                Failure::Usage(why) => config.fault("machine", why),
                failure => failure,
            })?;
        let numbers = Numbers::of(&machine, &host).map_err(|error| config.fault("machine", error))?;
        let policy = policy(&config.policy, &machine).map_err(wrong("policy"))?;
        Ok(Plans { numbers, machine, policy })
    }
}

/// The journal that is asked for, with a part that begins now.
fn journal(config: &Config, head: Head) -> Result<Option<Journal>, Failure> {
    let Some(file) = &config.journal else { return Ok(None) };
    let journal = Journal::open(file, config.journal_mib << 20, head);
    journal.map(Some).map_err(|error| config.fault("journal", format!("{}: {error}", file.display())))
}

/// A migration policy by its name and parameters.
pub fn parsed(text: &str) -> Result<Policy, String> {
    if let Some((placement, migration)) = text.split_once('+') {
        return Err(format!(
            "'{text}' is a pair; this is for the migration policy alone, '{migration}'. `memtide run --placement {placement}` is for the other"
        ));
    }
    memtide_policies::parse(&format!("local+{text}")).map_err(|error| error.to_string())
}

/// A migration policy, for a machine; refused if there is none, or if it cannot be had on a stock kernel.
pub fn policy(text: &str, machine: &Machine) -> Result<Box<dyn Migration>, String> {
    let policy = parsed(text)?.migration(machine);
    let Needs { hint_faults, delivery, .. } = policy.needs();
    if hint_faults && delivery == Delivery::InKernel {
        return Err(format!(
            "policy '{text}' decides in the page fault itself, in the kernel; take 'bw-migration', 'hot-cold', or what the kernel has \
             of itself (kernel.numa_balancing)"
        ));
    }
    Ok(policy)
}
