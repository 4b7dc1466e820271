//! The daemon: watches processes, and moves their pages as a migration policy says.

pub mod config;
pub mod control;
mod history;
mod notes;

use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use memtide_core::epoch::{Governor, Host as _, Limits, step};
use memtide_core::policy::{Migration, Needs};
use memtide_core::{Machine, NodeId, Time, Vpn};
use memtide_linux::live::{Live, task};
use memtide_linux::processes;
use memtide_linux::topology::Host;
use serde_json::{Value, json};

use self::config::Config;
use self::control::{Asked, Reply, Request, Socket};
use self::history::History;
use self::notes::Notes;
use crate::failure::Failure;
use crate::journal::{Head, Journal};
use crate::{interrupt, machines};

/// How often signals are looked at.
const POLL: Duration = Duration::from_millis(200);

/// A daemon at work.
pub struct Daemon {
    config: Config,
    /// The system's numbers of the machine's nodes.
    nodes: Vec<NodeId>,
    machine: Machine,
    policy: Box<dyn Migration>,
    needs: Needs,
    governor: Governor,
    live: Live,
    notes: Notes,
    paused: bool,
    epochs: u64,
    troubles: Vec<String>,
}

impl Daemon {
    /// A daemon as configured, that has not begun yet.
    pub fn new(config: Config) -> Result<Daemon, Failure> {
        let host = Host::read().map_err(|error| Failure::Run(error.to_string()))?;
        let nodes: Vec<NodeId> = host.with_memory().map(|node| node.id).collect();
        let machine = machines::of_host(&host, config.machine.as_deref())?;
        let policy = policy(&config.policy, &machine).map_err(Failure::Input)?;
        let needs = policy.needs();
        let limits = Limits {
            bytes_per_second: Some(config.max_rate_mbps * 1_000_000),
            cooldown: Time::from_ms(config.cooldown_s * 1000),
            ..Limits::default()
        };
        let stall = Duration::from_millis(config.stall_ms);
        let live = Live::new(nodes.clone(), &needs, config.monitor, stall, config.dry_run)
            .map_err(|error| Failure::Run(format!("memory cannot be watched: {error}")))?;
        let governor = Governor::new(limits, needs.epoch);
        let head = Head::new(&config.policy, machine.to_toml(), policy.state());
        let journal =
            config.journal.as_deref().map(|file| journal(file, config.journal_mib, head)).transpose()?;
        let notes = Notes { history: History::default(), journal };
        Ok(Daemon {
            config,
            nodes,
            machine,
            policy,
            needs,
            governor,
            live,
            notes,
            paused: false,
            epochs: 0,
            troubles: Vec::new(),
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.config.socket.clone().unwrap_or_else(control::default_file)
    }

    /// Works until it is asked to end.
    pub fn run(&mut self, socket: &Socket) -> Result<(), Failure> {
        let epoch = Duration::from_nanos(self.needs.epoch.as_ns() as u64);
        let mut next = Instant::now();
        while !interrupt::asked() {
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
            next = (next + epoch).max(Instant::now());
        }
        Ok(())
    }

    fn epoch(&mut self) {
        let me = rustix::process::getpid();
        match processes::all(self.config.least_mib << 8) {
            Ok(all) => {
                let watched =
                    all.into_iter().filter(|process| process.pid != me && self.config.watches(process));
                self.live.watch(watched.collect());
            }
            Err(error) => self.trouble(format!("/proc: {error}")),
        }
        if !self.paused && !self.live.watched().is_empty() {
            self.turn_journal();
            step(&mut self.live, self.policy.as_mut(), &mut self.governor, &mut self.notes);
            self.epochs += 1;
        }
        let journal = self.notes.journal.as_mut().and_then(Journal::take_trouble);
        for trouble in self.live.take_troubles().into_iter().chain(journal) {
            self.trouble(trouble);
        }
    }

    /// Begins a new part of the journal if its file is full.
    fn turn_journal(&mut self) {
        if let Some(journal) = self.notes.journal.as_mut().filter(|journal| journal.is_full()) {
            journal.begin(Head::new(&self.config.policy, self.machine.to_toml(), self.policy.state()));
        }
    }

    /// Tells of a trouble, unless it is the same as the last one.
    fn trouble(&mut self, trouble: String) {
        if self.troubles.last() != Some(&trouble) {
            eprintln!("memtide daemon: {trouble}");
            self.troubles.clear();
            self.troubles.push(trouble);
        }
    }

    fn reply(&mut self, asked: &Asked) {
        let reply = match self.answer(asked) {
            Ok(value) => Reply::Done(value),
            Err(why) => Reply::Refused(why),
        };
        // A client that does not wait for its answer needs none.
        let _ = asked.reply.send(reply);
    }

    fn answer(&mut self, asked: &Asked) -> Result<Value, String> {
        match asked.request {
            Request::Status => Ok(self.status(asked.uid)),
            Request::Why { pid, address } => self.why(asked.uid, pid, address),
            Request::Pause => self.pause(asked.uid, true),
            Request::Resume => self.pause(asked.uid, false),
        }
    }

    /// Whether a user may see and touch a user's processes.
    fn may(uid: u32, owner: u32) -> bool {
        uid == 0 || uid == owner
    }

    fn pause(&mut self, uid: u32, paused: bool) -> Result<Value, String> {
        if !Daemon::may(uid, rustix::process::geteuid().as_raw()) {
            return Err("only root, and the user whom the daemon runs as, may do that".to_owned());
        }
        self.paused = paused;
        Ok(json!({ "paused": paused }))
    }

    fn status(&self, uid: u32) -> Value {
        let seen = self.live.watched().iter().filter(|process| Daemon::may(uid, process.uid));
        let processes: Vec<Value> = seen
            .map(|process| {
                let moved = self.notes.history.moved(task(process.pid));
                json!({
                    "pid": process.pid.as_raw_nonzero().get(), "name": process.name, "uid": process.uid,
                    "resident_mib": process.resident_pages >> 8, "moved_pages": moved,
                })
            })
            .collect();
        let record = self.governor.recorded();
        let name = |node: NodeId| self.machine.nodes[node.index()].name.clone();
        let moved = record.moved_pages.iter();
        let moved: Vec<Value> = moved
            .map(|(&(from, to), pages)| json!({ "from": name(from), "to": name(to), "pages": pages }))
            .collect();
        let refused = record.refused.iter().map(|(why, moves)| (format!("{why:?}"), json!(moves)));
        json!({
            "policy": self.config.policy, "monitor": self.live.monitor().map(|(kind, _)| kind),
            "why_not_better": self.live.monitor().and_then(|(_, why)| why), "tells_writes": self.live.tells_writes(),
            "paused": self.paused,
            "dry_run": self.config.dry_run, "epochs": self.epochs, "watched": self.live.watched().len(),
            "uptime_s": self.live.now().as_seconds(),
            "processes": processes, "moved": moved, "refused": refused.collect::<serde_json::Map<_, _>>(),
            "trouble": self.troubles.last(),
        })
    }

    fn why(&self, uid: u32, pid: i32, address: u64) -> Result<Value, String> {
        let process = self.live.watched().iter().find(|process| process.pid.as_raw_nonzero().get() == pid);
        let process = process.filter(|process| Daemon::may(uid, process.uid));
        let process = process.ok_or_else(|| format!("process {pid} is not watched, or not yours"))?;
        let page = Vpn(address / 4096);
        let lies = self.live.node_of(process, page);
        let name = |node: NodeId| self.machine.nodes[node.index()].name.clone();
        let region = self.notes.history.region(task(process.pid), page).map(|region| {
            json!({
                "start": format!("{:#x}", region.start.0 * 4096), "pages": region.pages, "reads": region.reads,
                "writes": region.writes, "age": region.age,
            })
        });
        let last = self.notes.history.last(task(process.pid), page).map(|made| {
            json!({
                "from": name(made.run.first.from), "to": name(made.run.first.to), "reason": format!("{:?}", made.run.first.reason),
                "refused": made.refused.map(|why| format!("{why:?}")), "seconds_ago": self.live.now().since(made.time).as_seconds(),
            })
        });
        Ok(json!({ "node": lies.map(name), "region": region, "last_decision": last }))
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
        self.machine.nodes.iter().map(|node| node.name.as_str()).zip(self.nodes.iter().copied())
    }
}

/// A journal that goes on from now.
fn journal(file: &Path, mib: u64, head: Head) -> Result<Journal, Failure> {
    Journal::open(file, mib << 20, head)
        .map_err(|error| Failure::Run(format!("journal {}: {error}", file.display())))
}

/// A migration policy, for a machine; refused if there is none, or if it cannot be had on a stock kernel.
pub fn policy(text: &str, machine: &Machine) -> Result<Box<dyn Migration>, String> {
    let parsed = memtide_policies::parse(&format!("local+{text}")).map_err(|error| error.to_string())?;
    let policy = parsed.migration(machine);
    if policy.needs().hint_faults {
        return Err(format!(
            "policy '{text}' goes by NUMA hint faults, which a stock kernel shows to nobody outside it; take 'hot-cold', \
             or try it with `memtide simulate`"
        ));
    }
    Ok(policy)
}
