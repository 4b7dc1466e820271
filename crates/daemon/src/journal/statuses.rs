//! What `memtide status` would have said after each epoch of a journal.

use std::collections::BTreeMap;

use memtide_core::epoch::Watcher;
use memtide_core::policy::{Answer, Event, Outcome, Plan, Refusal, TaskView, View};
use memtide_core::{Machine, NodeId};

use super::reader::Reader;
use super::record::{Epoch, FORMAT, Head, Record};
use super::replay::check_pages;
use crate::history::History;
use crate::status::{Status, WatchedProcess};

/// A part of a journal, as far as it was read.
struct PartRead {
    head: Head,
    machine: Machine,
    history: History,
    epochs: u64,
    moved: BTreeMap<(NodeId, NodeId), u64>,
    refused: BTreeMap<String, u64>,
}

/// Maximum number of statuses: of more epochs, every second one, or fewer.
const STATUSES_MAX: usize = 4096;

/// Bytes of all statuses, by an estimate, from which on there are fewer, too.
const BYTES_MAX: usize = 256 << 20;

/// The status after each epoch, or of a long journal after some; counts restart with each part. The journal
/// does not have the daemon's process, files, pauses and errors.
///
/// # Errors
/// What is wrong with the journal, and where.
pub fn statuses(journal: &[u8]) -> Result<Vec<Status>, String> {
    let mut reader = Reader::new(journal);
    let (mut part, mut statuses): (Option<PartRead>, _) = (None, Vec::new());
    let (mut epochs, mut step, mut pages, mut bytes) = (0_u64, 1, 0, 0);
    while let Some(record) = reader.next_record()? {
        match (record, &mut part) {
            (Record::Head(head), part) => {
                *part = Some(PartRead::new(head).map_err(|why| reader.wrong(&why))?);
            }
            (Record::Epoch(epoch), Some(part)) => {
                pages += epoch.check(part.machine.nodes.len()).map_err(|why| reader.wrong(&why))?;
                check_pages(pages, reader.at()).map_err(|why| reader.wrong(&why))?;
                part.add(&epoch);
                epochs += 1;
                if epochs.is_multiple_of(step) {
                    let status = part.status(&epoch.view);
                    bytes += bytes_of(&status);
                    statuses.push(status);
                }
                if statuses.len() == STATUSES_MAX || (bytes > BYTES_MAX && statuses.len() > 1) {
                    let mut number = 0_u64;
                    statuses.retain(|_| {
                        number += 1;
                        number.is_multiple_of(2)
                    });
                    step *= 2;
                    bytes = statuses.iter().map(bytes_of).sum();
                }
            }
            (Record::Epoch(_), None) => return Err(reader.wrong("an epoch before any head")),
        }
    }
    match statuses.is_empty() {
        true => Err("it has no epochs: not a memtide journal, or an empty one".to_owned()),
        false => Ok(statuses),
    }
}

/// A status's size, by an estimate.
fn bytes_of(status: &Status) -> usize {
    let Status { policy, sensors, nodes, moved, recent, processes, .. } = status;
    let process =
        |process: &WatchedProcess| 100 + process.name.len() + 16 * process.pages.as_ref().map_or(0, Vec::len);
    let fixed = 500 + policy.len() + 200 * (sensors.len() + nodes.len() + recent.len()) + 100 * moved.len();
    fixed + processes.iter().map(process).sum::<usize>()
}

impl PartRead {
    fn new(head: Head) -> Result<PartRead, String> {
        if head.format != FORMAT {
            let Head { format, memtide, .. } = head;
            return Err(format!("format {format}, by memtide {memtide}; this version reads format {FORMAT}"));
        }
        let machine =
            Machine::parse("the journal's machine", &head.machine).map_err(|error| error.to_string())?;
        let (history, moved, refused) = (History::default(), BTreeMap::new(), BTreeMap::new());
        Ok(PartRead { head, machine, history, epochs: 0, moved, refused })
    }

    fn add(&mut self, epoch: &Epoch) {
        let mut samples = Vec::new();
        for event in epoch.each_event() {
            match event {
                Event::Completion(done) => {
                    for wanted in done.planned.action.moves() {
                        match done.outcome {
                            Outcome::Made(_) => {
                                *self.moved.entry((wanted.from, wanted.to)).or_default() +=
                                    wanted.size.base_pages();
                            }
                            Outcome::Refused(Refusal::AlreadyThere) => {}
                            Outcome::Refused(why) => *self.refused.entry(why.to_string()).or_default() += 1,
                            Outcome::Cancelled(why) => *self.refused.entry(why.to_string()).or_default() += 1,
                        }
                    }
                    self.history.completed(&[done]);
                }
                sample @ Event::AccessSample(_) => samples.push(sample),
                _ => {}
            }
        }
        self.history.planned(&samples, &epoch.view, &Plan::default());
        self.epochs += 1;
    }

    fn status(&self, view: &View) -> Status {
        let PartRead { head, machine, history, .. } = self;
        let name = |node: NodeId| machine.nodes[node.index()].name.clone();
        let sensors: Vec<(String, Answer)> =
            view.answers.iter().map(|(name, answer)| (name.to_owned(), answer.clone())).collect();
        let monitor = sensors.iter().find_map(|(name, answer)| match answer {
            Answer::Observed(how) | Answer::Inferred(how) if name == "regions" => Some(how.clone()),
            _ => None,
        });
        Status {
            pid: 0,
            config: None,
            policy: head.policy.clone(),
            monitor,
            why_not_better: None,
            tells_writes: false,
            sensors,
            paused: false,
            dry_run: false,
            epochs: self.epochs,
            uptime_s: view.time.as_seconds(),
            processor_s: None,
            journal: None,
            nodes: machine.node_ids().map(|node| history.node_status(machine, node)).collect(),
            moved: self.moved.iter().map(|(&(from, to), &pages)| (name(from), name(to), pages)).collect(),
            refused: self.refused.clone(),
            recent: history.recent(machine, view.time, |_, _| true),
            troubles: Vec::new(),
            processes: view.tasks.iter().map(|task| self.process(task)).collect(),
        }
    }

    fn process(&self, view: &TaskView) -> WatchedProcess {
        let nodes = self.machine.nodes.len();
        WatchedProcess {
            pid: view.task.0.cast_signed(),
            name: view.name.clone(),
            uid: view.owner.unwrap_or(0),
            resident_mib: view.resident_pages >> 8,
            moved_pages: self.history.moved(view.task),
            pages: self.history.pages(view.task),
            accesses_percent: self.history.accesses.of_task(view.task, nodes),
        }
    }
}
