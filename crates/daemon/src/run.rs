//! The daemon's loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use memtide_core::policy::Wake;
use memtide_core::{NodeId, TierId, Time};
use memtide_linux::processes::Process;
use signal_hook::consts::SIGHUP;

use crate::control::{CLIENTS_MAX, Socket};
use crate::daemon::{Daemon, may};
use crate::error::DaemonError;
use crate::host::DaemonHost;
use crate::journal::{Head, Journal};

/// Maximum time between two checks of signals and the stop flag.
const POLL: Duration = Duration::from_millis(200);

/// Epoch length for a policy that requests no wake-ups and only acts on events.
const NEVER_POLL: Duration = Duration::from_secs(1);

/// When an idle daemon logs that nothing is watched: Linux processes are watched once they have run for 3 s.
const IDLE_AFTER: Time = Time::from_ms(6000);

/// The policy does not evaluate pages while a user's request moves them: an epoch comes this long after a
/// transfer's step, delayed by no more than the second value.
const EPOCH_AFTER_STEP: Duration = Duration::from_millis(500);
const EPOCH_DELAY_MAX: Duration = Duration::from_secs(3);

/// Epochs from one look at the daemon's own memory to the next.
const OWN_MEMORY_EPOCHS: u64 = 16;

/// How long one daemon runs: 200 days, as a [`Time`] counts 213.
const RUN_MAX: Time = Time::from_ms(200 * 24 * 3600 * 1000);

/// Why a daemon's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `stop` was set.
    Stopped,
    /// It has run for 200 days, as long as its times count; a new one must take its place.
    ClockFull,
}

impl<H: DaemonHost> Daemon<H> {
    /// Runs until `stop` is set, which is checked every 200 ms, or for 200 days; longer while it is paused or
    /// serves a user's request. Serves the clients of `socket`, and reloads the configuration at each SIGHUP.
    ///
    /// # Errors
    /// If signals cannot be handled, or the socket fails.
    pub fn run(&mut self, socket: &Socket, stop: &AtomicBool) -> Result<End, DaemonError> {
        let sighup = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&sighup)).map_err(DaemonError::Signals)?;
        let mut next = Instant::now();
        let mut latest = next + EPOCH_DELAY_MAX;
        while !stop.load(Ordering::Relaxed) {
            if sighup.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            if self.host.now() >= RUN_MAX && !self.paused && self.transfers.is_empty() {
                return Ok(End::ClockFull);
            }
            let now = Instant::now();
            let step_is_due = self.step_is_due(now) && now < latest;
            if next > now || step_is_due {
                let due = self.transfer_due().map_or(next, |due| due.min(next));
                match socket.requests.recv_timeout(due.saturating_duration_since(now).min(POLL)) {
                    Ok(client) => self.reply(&client),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(DaemonError::SocketFailed),
                }
                self.step_transfers();
                if step_is_due {
                    next = next.max((Instant::now() + EPOCH_AFTER_STEP).min(latest));
                }
                continue;
            }
            self.epoch();
            self.log_if_idle();
            // Clients and transfers get their turn even if epochs use all the time.
            socket.requests.try_iter().take(CLIENTS_MAX).for_each(|client| self.reply(&client));
            self.step_transfers();
            next = match self.wake {
                Wake::After(time) => (next + Duration::from_nanos(time.as_ns() as u64)).max(Instant::now()),
                Wake::Never => Instant::now() + NEVER_POLL,
            };
            latest = next + EPOCH_DELAY_MAX;
        }
        Ok(End::Stopped)
    }

    /// Runs one epoch: lists the processes, observes those that are watched, and moves pages as the policy
    /// decides. Errors are logged, and reported by `memtide status`.
    pub fn epoch(&mut self) {
        let (me, uid) = (rustix::process::getpid(), rustix::process::geteuid().as_raw());
        match self.host.processes(self.config.least_mib << 8, self.config.scan_interval()) {
            Ok(all) => {
                let may = |process: &Process| process.pid != me && may(uid, process.uid);
                let watched = all.into_iter().filter(|process| may(process) && self.config.watches(process));
                self.host.watch(watched.collect());
            }
            Err(error) => self.trouble(&format!("/proc: {error}")),
        }
        if !self.paused && !self.host.watched().is_empty() {
            self.rotate_journal();
            self.wake = self.runner.epoch(&mut self.host, &mut self.watcher);
            self.epochs += 1;
            self.keep_own_memory_fast();
        }
        let journal = self.watcher.journal.as_mut().and_then(Journal::take_trouble);
        for trouble in self.host.take_troubles().into_iter().chain(journal) {
            self.trouble(&trouble);
        }
    }

    /// Moves the daemon's own memory to the fastest tier: what it allocates while that is full goes to slower
    /// memory, where decisions take longer, the more programs load it.
    fn keep_own_memory_fast(&mut self) {
        if self.machine.tiers() < 2 || !self.epochs.is_multiple_of(OWN_MEMORY_EPOCHS) {
            return;
        }
        let fast = self.machine.nodes_in(TierId(0)).map(|node| self.numbers.nodes[node.index()]);
        let fast: Vec<NodeId> = fast.collect();
        if let Err(error) = self.host.move_own_memory(&fast) {
            self.trouble(&format!("the daemon's own memory: {error}"));
        }
    }

    /// Logs once that nothing is watched: a wrong filter looks like an idle system.
    fn log_if_idle(&mut self) {
        if self.idle_logged || self.paused || self.host.now() < IDLE_AFTER {
            return;
        }
        self.idle_logged = true;
        if self.host.watched().is_empty() && self.troubles.is_empty() {
            let least = self.config.least_mib;
            self.watcher.log(&format!(
                "no process is watched yet: none that matches `watch` has a resident size of {least} MiB \
                 (least_mib)"
            ));
        }
    }

    /// Begins a new part of the journal if its file is full or was removed.
    fn rotate_journal(&mut self) {
        if let Some(journal) = self.watcher.journal.as_mut().filter(|journal| journal.must_rotate()) {
            journal.begin(Head::new(
                &self.config.policy,
                self.machine.to_toml(),
                self.runner.policy().state(),
            ));
        }
    }
}
