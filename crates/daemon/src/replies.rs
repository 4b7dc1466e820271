//! Replies to clients.

use std::collections::BTreeMap;

use memtide_core::policy::{Outcome, Refusal};
use memtide_core::{NodeId, PAGE_BYTES, TaskId, Time, Vpn};
use memtide_linux::live::task;
use memtide_linux::processes::{Process, User, processor_time};
use memtide_linux::topology::System;
use serde::Serialize;
use serde_json::{Value, json};

use crate::control::{ClientRequest, Migrate, Reply, Request};
use crate::daemon::{Daemon, may};
use crate::host::DaemonHost;
use crate::status::{Last, NodeStatus, Status, Trouble, WatchedProcess, Why};
use crate::transfers;

impl<H: DaemonHost> Daemon<H> {
    /// Replies to a request, or begins a transfer that replies later.
    pub(crate) fn reply(&mut self, client: &ClientRequest) {
        let answered = match &client.request {
            Request::Status => Ok(json_of(self.status(client.user))),
            Request::Why { pid, address } => {
                self.why(client.user, *pid, *address).map(json_of).map_err(Reply::Refused)
            }
            Request::Pause => self.pause(client.user.uid, true).map_err(Reply::Refused),
            Request::Resume => self.pause(client.user.uid, false).map_err(Reply::Refused),
            Request::Migrate(wanted) => match self.migrate(client, wanted) {
                Ok(()) => return,
                Err(refused) => Err(refused),
            },
        };
        // The client may have disconnected.
        let _ = client.reply.send(answered.map_or_else(|refused| refused, Reply::Done));
    }

    /// Begins to move pages; the transfer replies later.
    fn migrate(&mut self, client: &ClientRequest, wanted: &Migrate) -> Result<(), Reply> {
        if self.config.dry_run {
            return Err(Reply::Refused(
                "the daemon is on a dry run (dry_run in its configuration) and moves nothing".to_owned(),
            ));
        }
        if self.paused {
            return Err(Reply::Paused);
        }
        if wanted.pid == rustix::process::getpid().as_raw_nonzero().get() {
            return Err(Reply::Refused("the daemon's own pages stay".to_owned()));
        }
        let may_access = |found: &Process| found.may_be_accessed_by(client.user);
        let process = transfers::process_of(&self.host, wanted.pid, may_access).map_err(Reply::Refused)?;
        self.transfers.admit(wanted.pid, client.user.uid).map_err(Reply::Refused)?;
        let transfer = transfers::transfer(&self.host, process.clone(), wanted, &self.numbers.nodes);
        let transfer = transfer.map_err(|error| Reply::Refused(error.to_string()))?;
        self.host.begin_request(process);
        self.transfers.add(transfer, wanted.max_rate_mbps, client);
        Ok(())
    }

    fn pause(&mut self, uid: u32, paused: bool) -> Result<Value, String> {
        if !may(uid, rustix::process::geteuid().as_raw()) {
            return Err("only root and the daemon's own user may do that".to_owned());
        }
        self.paused = paused;
        Ok(json!(if paused {
            "paused"
        } else if self.config.dry_run {
            "on a dry run"
        } else {
            "at work"
        }))
    }

    fn name(&self, node: NodeId) -> String {
        self.machine.nodes[node.index()].name.clone()
    }

    fn node(&self, node: NodeId, system: Option<&System>) -> NodeStatus {
        // Nothing is observed before the first epoch.
        let id = self.numbers.nodes[node.index()];
        let now = system.and_then(|system| system.nodes.iter().find(|node| node.id == id)?.memory);
        let now = now.map(|memory| (memory.total_kib >> 10, memory.free_kib >> 10));
        let status = self.watcher.history.node_status(&self.machine, node);
        NodeStatus { memory: status.memory.or(now), ..status }
    }

    /// Whether a user may see a watched process. It may have started a set-uid program since the last epoch.
    fn may_see(&self, user: User, process: &Process) -> bool {
        let is_same = |now: &Process| now.identity() == process.identity() && now.may_be_accessed_by(user);
        user.uid == 0
            || (process.may_be_accessed_by(user)
                && self.host.process(process.pid).is_some_and(|now| is_same(&now)))
    }

    fn status(&self, user: User) -> Status {
        let seen: Vec<&Process> =
            self.host.watched().iter().filter(|process| self.may_see(user, process)).collect();
        let owners: BTreeMap<TaskId, u32> =
            seen.iter().map(|process| (task(process.pid), process.uid)).collect();
        let processes = seen.into_iter().map(|process| {
            let (task, history) = (task(process.pid), &self.watcher.history);
            WatchedProcess {
                pid: process.pid.as_raw_nonzero().get(),
                name: process.name.clone(),
                uid: process.uid,
                resident_mib: process.resident_pages >> 8,
                moved_pages: history.moved(task),
                pages: history.pages(task),
                accesses_percent: history.accesses.of_task(task, self.machine.nodes.len()),
            }
        });
        let monitoring = self.host.monitoring();
        let system = if self.epochs == 0 { self.host.system().ok() } else { None };
        let record = self.runner.governor().recorded();
        let moved = record.moved_pages.iter();
        // Regions span nodes, so plans name pages that are already there: not a failure.
        let refused = record.refused.iter().filter(|&(&why, _)| why != Refusal::AlreadyThere);
        let cancelled = record.cancelled.iter().map(|(why, &moves)| (why.to_string(), moves));
        let own = may(user.uid, rustix::process::geteuid().as_raw());
        let journal = self.config.journal.as_deref();
        let open =
            journal.filter(|file| self.watcher.journal.as_ref().is_some_and(|journal| journal.is_in(file)));
        let now = self.host.now();
        // A process may have the id of one that has ended.
        let may_see_moves = |task: TaskId, owner: Option<u32>| {
            own || owners.get(&task).is_some_and(|uid| Some(*uid) == owner)
        };
        let recent = self.watcher.history.recent(&self.machine, now, may_see_moves);
        let trouble = |(time, what): (Time, &str)| Trouble {
            seconds_ago: now.since(time).as_seconds(),
            what: what.to_owned(),
        };
        Status {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            config: self.config.file().map(|file| file.display().to_string()),
            policy: self.config.policy.clone(),
            monitor: monitoring.as_ref().map(|of| of.name.to_owned()),
            why_not_better: monitoring.as_ref().and_then(|of| of.why_not_better).map(str::to_owned),
            tells_writes: monitoring.as_ref().is_some_and(|of| of.writes),
            sensors: self.host.answers().iter().map(|(name, of)| (name.to_owned(), of.clone())).collect(),
            paused: self.paused,
            dry_run: self.config.dry_run,
            epochs: self.epochs,
            uptime_s: self.host.now().as_seconds(),
            processor_s: Some(processor_time().as_secs_f64()),
            journal: open.map(|file| file.display().to_string()),
            nodes: self.machine.node_ids().map(|node| self.node(node, system.as_ref())).collect(),
            moved: moved.map(|(&(from, to), &pages)| (self.name(from), self.name(to), pages)).collect(),
            refused: refused.map(|(why, &moves)| (why.to_string(), moves)).chain(cancelled).collect(),
            recent,
            troubles: self.troubles.iter().filter(|_| own).map(trouble).collect(),
            processes: processes.collect(),
        }
    }

    fn why(&self, user: User, pid: i32, address: u64) -> Result<Why, String> {
        let process = self.host.watched().iter().find(|process| process.pid.as_raw_nonzero().get() == pid);
        let process = process.filter(|process| self.may_see(user, process));
        let process = process.ok_or_else(|| format!("process {pid} is not watched, or not yours"))?;
        let page = Vpn(address / PAGE_BYTES);
        let (owner, its_page) = self.host.owner_of(process, page);
        let region = self.watcher.history.region(task(owner), its_page);
        let last = self.watcher.history.last(task(owner), its_page).map(|made| Last {
            from: self.name(made.run.first.from),
            to: self.name(made.run.first.to),
            reason: made.run.reason.to_string(),
            refused: match made.outcome {
                Outcome::Made(_) => None,
                Outcome::Refused(why) => Some(why.to_string()),
                Outcome::Cancelled(why) => Some(why.to_string()),
            },
            seconds_ago: self.host.now().since(made.time).as_seconds(),
        });
        let node = self.host.node_of(process, page).map(|node| self.name(node));
        if node.is_none() && region.is_none() && last.is_none() {
            return Err(format!("process {pid} has no page in memory at {address:#x}, and had none"));
        }
        Ok(Why {
            node,
            owner: (owner != process.pid).then_some(owner.as_raw_nonzero().get()),
            region: region.map(|region| {
                let pages = region.pages * region.size.base_pages();
                (region.start.0 * PAGE_BYTES, pages, region.reads, region.writes, region.age)
            }),
            last,
        })
    }
}

fn json_of(reply: impl Serialize) -> Value {
    serde_json::to_value(reply).expect("numbers and strings")
}
