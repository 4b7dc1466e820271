//! The daemon's loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use memtide_core::Time;
use memtide_core::epoch::{Host as _, step};
use memtide_linux::processes::{self, Process};
use signal_hook::consts::SIGHUP;

use crate::control::{CLIENTS_MAX, Socket};
use crate::daemon::Daemon;
use crate::error::DaemonError;
use crate::journal::{Head, Journal};

/// How often signals and the stop flag are looked at.
const POLL: Duration = Duration::from_millis(200);

/// When it is told that nothing is watched: processes are watched once they have lived 3 s.
const IDLE_AFTER: Time = Time::from_ms(6000);

impl Daemon {
    /// Works until `stop` is set: looked at every 200 ms. Serves the clients of `socket`, and reads the configuration again at
    /// each SIGHUP.
    ///
    /// # Errors
    /// If signals cannot be handled, or the socket fails.
    pub fn run(&mut self, socket: &Socket, stop: &AtomicBool) -> Result<(), DaemonError> {
        let sighup = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&sighup)).map_err(DaemonError::Signals)?;
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if sighup.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                match socket.requests.recv_timeout(left.min(POLL)) {
                    Ok(client) => self.reply(&client),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(DaemonError::SocketFailed),
                }
                continue;
            }
            self.epoch();
            self.log_if_idle();
            // Those who ask are served even if no time is left between epochs.
            socket.requests.try_iter().take(CLIENTS_MAX).for_each(|client| self.reply(&client));
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
            self.rotate_journal();
            step(&mut self.live, self.policy.as_mut(), &mut self.governor, &mut self.notes);
            self.epochs += 1;
        }
        let journal = self.notes.journal.as_mut().and_then(Journal::take_trouble);
        for trouble in self.live.take_troubles().into_iter().chain(journal) {
            self.trouble(&trouble);
        }
    }

    /// Says that nothing is watched, once: a filter that is wrong looks like an idle system.
    fn log_if_idle(&mut self) {
        if self.idle_logged || self.paused || self.live.now() < IDLE_AFTER {
            return;
        }
        self.idle_logged = true;
        if self.live.watched().is_empty() && self.troubles.is_empty() {
            let least = self.config.least_mib;
            self.notes.log(&format!(
                "no process is watched yet: none that `watch` takes has {least} MiB (least_mib) in memory"
            ));
        }
    }

    /// Begins a new part of the journal if its file is full or gone.
    fn rotate_journal(&mut self) {
        if let Some(journal) = self.notes.journal.as_mut().filter(|journal| journal.must_rotate()) {
            journal.begin(Head::new(&self.config.policy, self.machine.to_toml(), self.policy.state()));
        }
    }
}
