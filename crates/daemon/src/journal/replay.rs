//! Replays a journal's decisions.

use memtide_core::Machine;
use memtide_core::epoch::ask;
use memtide_core::policy::{Migration, Plan};

use super::reader::Reader;
use super::record::{Epoch, FORMAT, Head, MOVES_MAX, Record};
use super::runs::{PlanEntry, plan_entries};
use crate::policy::migration;

/// Maximum number of pages in all runs of moves and events and in the new plans: this many per byte of the
/// journal, plus a constant. With defaults an epoch takes at least 600 bytes, and has at most 100,000 of
/// these pages.
const PAGES_PER_BYTE_MAX: u64 = 256;
const PAGES_FREE: u64 = 1 << 24;

/// Checks the number of pages in all runs until a byte of a journal.
pub(super) fn check_pages(pages: u64, bytes: usize) -> Result<(), String> {
    if pages > bytes as u64 * PAGES_PER_BYTE_MAX + PAGES_FREE {
        return Err(format!("more than {PAGES_PER_BYTE_MAX} pages moved for each byte of the journal"));
    }
    Ok(())
}

/// Replay result of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its start, in seconds since 1970.
    pub begun_unix_s: u64,
    /// memtide version that wrote it.
    pub memtide: String,
    /// The replayed policy.
    pub policy: String,
    /// The machine's name.
    pub machine: String,
    /// Number of epochs.
    pub epochs: u64,
    /// Base pages whose moves are recorded.
    pub recorded_pages: u64,
    /// Base pages whose moves the replay planned.
    pub planned_pages: u64,
    /// Epochs whose plans differ.
    pub differing: u64,
}

/// Replay result of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Its parts.
    pub parts: Vec<Part>,
    /// The first epoch whose plans differ.
    pub difference: Option<String>,
    /// Bytes of an incomplete last record, as after a crash.
    pub torn_bytes: usize,
}

/// Why a journal cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The policy to replay is refused for this journal.
    #[error("{0}")]
    Policy(String),
    /// Not a journal, or damaged; with the position.
    #[error("{0}")]
    Journal(String),
}

/// A part being replayed.
struct PartReplay {
    part: Part,
    policy: Box<dyn Migration>,
    nodes: usize,
}

/// Replays the policy of each part, or another one.
///
/// # Errors
/// What is wrong with the journal, and where, or with the other policy.
pub fn replay(journal: &[u8], other: Option<&str>) -> Result<Replayed, ReplayError> {
    let mut reader = Reader::new(journal);
    let mut replayed = Replayed::default();
    let mut current: Option<PartReplay> = None;
    let mut all_pages = 0;
    while let Some(record) = reader.next_record().map_err(ReplayError::Journal)? {
        match (record, &mut current) {
            (Record::Head(head), current) => {
                let begun = PartReplay::new(head, other).map_err(|wrong| match wrong {
                    ReplayError::Journal(why) => ReplayError::Journal(reader.wrong(&why)),
                    policy @ ReplayError::Policy(_) => policy,
                })?;
                replayed.parts.extend(current.replace(begun).map(|current| current.part));
            }
            (Record::Epoch(epoch), Some(part)) => {
                let wrong = |why: String| ReplayError::Journal(reader.wrong(&why));
                let (difference, pages) = part.epoch(&epoch).map_err(wrong)?;
                all_pages += pages;
                check_pages(all_pages, reader.at()).map_err(wrong)?;
                replayed.difference = replayed.difference.take().or(difference);
            }
            (Record::Epoch(_), None) => {
                return Err(ReplayError::Journal(reader.wrong("an epoch before any head")));
            }
        }
    }
    replayed.torn_bytes = reader.torn();
    replayed.parts.extend(current.map(|current| current.part));
    if replayed.parts.is_empty() {
        let why = "it has no records: not a memtide journal, or an empty one";
        return Err(ReplayError::Journal(why.to_owned()));
    }
    Ok(replayed)
}

/// The policy to replay: the recorded one with its state, or another one.
fn policy_of(head: &Head, other: Option<&str>, machine: &Machine) -> Result<Box<dyn Migration>, ReplayError> {
    let recorded = || migration(&head.policy, machine).map_err(|why| ReplayError::Journal(why.to_string()));
    let Some(name) = other else {
        let mut recorded = recorded()?;
        recorded.resume(&head.state).map_err(|why| ReplayError::Journal(format!("state: {why}")))?;
        return Ok(recorded);
    };
    let other = migration(name, machine).map_err(|why| ReplayError::Policy(why.to_string()))?;
    if other.sensors().hint_faults() && !recorded()?.sensors().hint_faults() {
        return Err(ReplayError::Policy(format!(
            "policy '{name}' uses hint faults, which a journal of '{}' does not contain",
            head.policy
        )));
    }
    Ok(other)
}

impl PartReplay {
    fn new(head: Head, other: Option<&str>) -> Result<PartReplay, ReplayError> {
        if head.format != FORMAT {
            return Err(ReplayError::Journal(format!(
                "format {}, by memtide {}; this version reads format {FORMAT}",
                head.format, head.memtide
            )));
        }
        let machine = Machine::parse("the journal's machine", &head.machine)
            .map_err(|error| ReplayError::Journal(error.to_string()))?;
        let policy = policy_of(&head, other, &machine)?;
        let part = Part {
            begun_unix_s: head.begun_unix_s,
            memtide: head.memtide,
            policy: other.unwrap_or(&head.policy).to_owned(),
            machine: machine.name.clone(),
            epochs: 0,
            recorded_pages: 0,
            planned_pages: 0,
            differing: 0,
        };
        Ok(PartReplay { part, policy, nodes: machine.nodes.len() })
    }

    /// Replays an epoch; returns where the plan differs, and the number of pages in runs.
    fn epoch(&mut self, epoch: &Epoch) -> Result<(Option<String>, u64), String> {
        let pages_in_runs = epoch.check(self.nodes)?;
        let mut plan = Plan::with_limit(epoch.first_action, MOVES_MAX as usize);
        ask(self.policy.as_mut(), epoch.each_event(), &epoch.view, &mut plan);
        if plan.dropped() > 0 {
            return Err(format!("the policy plans more than {MOVES_MAX} actions"));
        }
        let all_pages = pages_in_runs + plan.actions().len() as u64;
        let planned = plan_entries(plan.actions());
        let pages = |entries: &[PlanEntry]| entries.iter().map(PlanEntry::base_pages).sum::<u64>();
        let part = &mut self.part;
        part.epochs += 1;
        part.recorded_pages += pages(&epoch.plan);
        part.planned_pages += pages(&planned);
        if planned == epoch.plan {
            return Ok((None, all_pages));
        }
        part.differing += 1;
        let at = (0..).find(|&at| planned.get(at) != epoch.plan.get(at)).unwrap_or(0);
        let described =
            |entry: Option<&PlanEntry>| entry.map_or_else(|| "nothing more".to_owned(), PlanEntry::to_string);
        let difference = format!(
            "epoch {} of its part, at {}: recorded {}, planned now {}",
            part.epochs,
            epoch.view.time,
            described(epoch.plan.get(at)),
            described(planned.get(at))
        );
        Ok((Some(difference), all_pages))
    }
}
