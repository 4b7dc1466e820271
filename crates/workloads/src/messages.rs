//! A program that offers arrays for migration: it sends the messages of pms' library (pms section 4.2).
//!
//! ```text
//!  first array mapped ──▶ register      array mapped ──▶ send      region begins ──▶ lock
//!  array unmapped ──▶ release, before it          last thread ends ──▶ cleanup, before it
//! ```
//!
//! If asked to, it computes without accesses once its data are there, so that pages leave before it goes on.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::params::{ParamError, Parameter, Params};
use memtide_core::policy::{MessageKind, PRIORITY_MAX};
use memtide_core::{Batch, Mapping, Mark, PAGE_BYTES, Program, ProgramError, Then, ThreadId, VirtAddr, Vpn};

use crate::entry::BoxedProgram;

/// Parameters that every simulated workload has: which arrays it offers, which it locks, its service level,
/// and how long it waits for them to leave.
pub const MESSAGE_PARAMETERS: [&str; 4] = ["send", "lock", "priority", "settle"];

const NUMBERS: [Parameter; 2] = [
    Parameter::integer("priority", "", "service level", [1, 1, PRIORITY_MAX as u64]),
    Parameter::integer(
        "settle",
        "million instructions",
        "work without accesses between initialisation and the first mark",
        [0, 0, 1_000_000],
    ),
];

/// What a program offers for migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    priority: u8,
    /// Names of arrays.
    send: Vec<String>,
    /// Names of arrays among them.
    lock: Vec<String>,
    /// Instructions without accesses before the first mark.
    settle: u64,
}

impl Messages {
    /// Takes them out of a workload's parameters; `None` if there are none.
    ///
    /// # Errors
    /// If a value is not allowed, or nothing is sent.
    pub fn take(params: &mut Params) -> Result<Option<Messages>, ParamError> {
        let mut numbers = Params::new();
        let (mut send, mut lock) = (Vec::new(), Vec::new());
        let taken = params.split_off(&MESSAGE_PARAMETERS);
        if taken.is_empty() {
            return Ok(None);
        }
        for (key, value) in taken {
            let names = || value.split('+').map(|name| name.trim().to_owned()).collect();
            match key.as_str() {
                "send" => send = names(),
                "lock" => lock = names(),
                _ => numbers.set(&key, value)?,
            }
        }
        let refused = |key: &'static str, names: &[String], expected: &str| ParamError::Value {
            key,
            value: names.join("+"),
            expected: expected.to_owned(),
        };
        if send.iter().all(String::is_empty) {
            return Err(refused("send", &send, "names of arrays, joined by '+'"));
        }
        if lock.iter().any(|name| !send.contains(name)) {
            return Err(refused("lock", &lock, "arrays of 'send', joined by '+'"));
        }
        let numbers = numbers.values(&NUMBERS)?;
        let priority = numbers.u32("priority") as u8;
        Ok(Some(Messages { priority, send, lock, settle: numbers.u64("settle") * 1_000_000 }))
    }

    /// The program, sending them.
    pub fn sent_by(self, program: BoxedProgram) -> BoxedProgram {
        let threads = program.threads();
        Box::new(Sender {
            live: threads,
            queues: vec![VecDeque::new(); threads],
            messages: self,
            is_registered: false,
            is_locked: false,
            is_checked: false,
            is_settled: false,
            mapped: Vec::new(),
            sent: BTreeMap::new(),
            program,
        })
    }
}

struct Sender {
    program: BoxedProgram,
    messages: Messages,
    /// What is to happen next in each thread.
    queues: Vec<VecDeque<Then>>,
    is_registered: bool,
    is_locked: bool,
    is_checked: bool,
    is_settled: bool,
    /// Names of all arrays so far.
    mapped: Vec<String>,
    /// First page and name of each array that was sent and not released.
    sent: BTreeMap<u64, String>,
    /// Threads that have not ended.
    live: usize,
}

impl Sender {
    /// The messages that follow a mapping.
    fn after_map(&mut self, mapping: &Mapping) -> Vec<MessageKind> {
        self.mapped.push(mapping.name.clone());
        if !self.messages.send.contains(&mapping.name) {
            return Vec::new();
        }
        let first = mapping.start.0 / PAGE_BYTES;
        self.sent.insert(first, mapping.name.clone());
        let pages = mapping.bytes.div_ceil(PAGE_BYTES);
        let priority = self.messages.priority;
        let register =
            (!std::mem::replace(&mut self.is_registered, true)).then_some(MessageKind::Register { priority });
        register.into_iter().chain([MessageKind::Send { start: Vpn(first), pages }]).collect()
    }

    /// The messages that come before an unmapping.
    fn before_unmap(&mut self, start: VirtAddr, bytes: u64) -> Vec<MessageKind> {
        let pages = start.0 / PAGE_BYTES..start.0.saturating_add(bytes).div_ceil(PAGE_BYTES);
        let released: Vec<u64> = self.sent.range(pages).map(|(first, _)| *first).collect();
        released
            .into_iter()
            .map(|first| {
                self.sent.remove(&first);
                MessageKind::Release { start: Vpn(first) }
            })
            .collect()
    }

    /// The messages that follow the begin of the region of interest, the first time.
    fn locks(&mut self) -> Vec<MessageKind> {
        if std::mem::replace(&mut self.is_locked, true) {
            return Vec::new();
        }
        let locked = self.sent.iter().filter(|(_, name)| self.messages.lock.contains(name));
        locked.map(|(first, _)| MessageKind::Lock { start: Vpn(*first) }).collect()
    }

    /// Adds the messages that belong to what a thread does next.
    fn add(&mut self, thread: usize, then: &mut Then) {
        let queue = |kinds: Vec<MessageKind>| kinds.into_iter().map(Then::Message);
        match then {
            Then::Map(mapping) => {
                let messages = self.after_map(mapping);
                self.queues[thread].extend(queue(messages));
            }
            Then::Mark(mark) => {
                let messages = if *mark == Mark::Begin { self.locks() } else { Vec::new() };
                self.queues[thread].extend(queue(messages));
                if !std::mem::replace(&mut self.is_settled, true) && self.messages.settle > 0 {
                    self.put_before(thread, then, [Then::Work(self.messages.settle)]);
                }
            }
            Then::Unmap { start, bytes } => {
                let messages = self.before_unmap(*start, *bytes);
                self.put_before(thread, then, messages.into_iter().map(Then::Message));
            }
            Then::End => {
                self.live -= 1;
                if self.live == 0 && self.is_registered {
                    self.put_before(thread, then, [Then::Message(MessageKind::Cleanup)]);
                }
            }
            _ => {}
        }
    }

    /// Makes a thread do something else before what it does next.
    fn put_before(&mut self, thread: usize, then: &mut Then, before: impl IntoIterator<Item = Then>) {
        let mut all: VecDeque<Then> = before.into_iter().chain([std::mem::take(then)]).collect();
        *then = all.pop_front().unwrap_or_default();
        all.extend(self.queues[thread].drain(..));
        self.queues[thread] = all;
    }

    /// Refuses names that the program has no array of: all are mapped before its first accesses.
    fn check(&mut self) -> Result<(), ProgramError> {
        self.is_checked = true;
        match self.messages.send.iter().find(|name| !self.mapped.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let known = self.mapped.join(", ");
                Err(ProgramError(format!("parameter 'send': it has no array '{name}'; it has {known}")))
            }
        }
    }
}

impl Program for Sender {
    fn threads(&self) -> usize {
        self.program.threads()
    }

    fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
        let index = thread.index();
        if let Some(then) = self.queues.get_mut(index).and_then(VecDeque::pop_front) {
            batch.clear();
            batch.then = then;
            return Ok(());
        }
        self.program.next(thread, batch)?;
        if !self.is_checked && !batch.accesses.is_empty() {
            self.check()?;
        }
        self.add(index, &mut batch.then);
        Ok(())
    }

    fn has_region(&self) -> bool {
        self.program.has_region()
    }

    fn progress(&self) -> Option<f64> {
        self.program.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::program;

    /// What the threads of a workload do beside accesses, in turn.
    fn events(params: &str) -> Result<Vec<Then>, String> {
        let params: Params = params.parse().expect("parameters");
        let mut program = program("stream", &params, 1).map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let mut live: Vec<usize> = (0..program.threads()).collect();
        let mut batch = Batch::default();
        while !live.is_empty() {
            let mut failed = None;
            live.retain(|&thread| {
                loop {
                    if let Err(error) = program.next(ThreadId::from(thread), &mut batch) {
                        failed = Some(error.0);
                        return false;
                    }
                    match std::mem::take(&mut batch.then) {
                        Then::Continue | Then::Spawn(_) | Then::Work(_) => {}
                        Then::Barrier => return true,
                        Then::End => {
                            events.push(Then::End);
                            return false;
                        }
                        then => events.push(then),
                    }
                }
            });
            if let Some(failed) = failed {
                return Err(failed);
            }
        }
        Ok(events)
    }

    const SMALL: &str = "footprint_mib=3,threads=2,iterations=1,kernel=copy";

    #[test]
    fn arrays_are_sent_when_mapped_locked_at_the_region_and_cleaned_up_at_the_end() {
        let events = events(&format!("{SMALL},send=a+c,lock=c,priority=3")).expect("a program");
        let start = |name: &str| {
            let found = events.iter().find_map(|then| match then {
                Then::Map(mapping) if mapping.name == name => Some(mapping.start.page()),
                _ => None,
            });
            found.expect("it is mapped")
        };
        let messages: Vec<&MessageKind> = events
            .iter()
            .filter_map(|then| if let Then::Message(kind) = then { Some(kind) } else { None })
            .collect();
        let sent = |name: &str| MessageKind::Send { start: start(name), pages: 256 };
        let expected = [
            MessageKind::Register { priority: 3 },
            sent("a"),
            sent("c"),
            MessageKind::Lock { start: start("c") },
            MessageKind::Cleanup,
        ];
        assert_eq!(messages, expected.iter().collect::<Vec<_>>());
        let place = |then: &Then| events.iter().position(|event| event == then).expect("it happens");
        assert!(place(&Then::Mark(Mark::Begin)) < place(&Then::Message(expected[3])));
        assert_eq!(events[events.len() - 2..], [Then::Message(MessageKind::Cleanup), Then::End]);
    }

    #[test]
    fn pages_have_time_to_leave_before_the_first_mark_alone() {
        let params = format!("{SMALL},send=a,lock=a,settle=7").replace("iterations=1", "iterations=2");
        let mut program = program("stream", &params.parse().expect("parameters"), 1).expect("a program");
        let mut batch = Batch::default();
        let mut events = Vec::new();
        let mut thread = 0;
        while batch.then != Then::End {
            program.next(ThreadId::from(thread), &mut batch).expect("it runs");
            match &batch.then {
                Then::Barrier => thread = 1 - thread,
                Then::Work(_) | Then::Mark(_) | Then::Message(_) => events.push(batch.then.clone()),
                _ => {}
            }
        }
        let first = events.iter().position(|then| matches!(then, Then::Mark(_))).expect("a mark");
        assert_eq!(events[first - 1..=first], [Then::Work(7_000_000), Then::Mark(Mark::WarmUp)]);
        let work = events.iter().filter(|then| **then == Then::Work(7_000_000));
        assert_eq!(work.count(), 1);
        let begin = events.iter().position(|then| *then == Then::Mark(Mark::Begin)).expect("the region");
        assert!(matches!(events[begin + 1], Then::Message(MessageKind::Lock { .. })), "{events:?}");
    }

    #[test]
    fn program_without_messages_is_unchanged() {
        let plain = events(SMALL).expect("a program");
        let mut sending = events(&format!("{SMALL},send=a")).expect("a program");
        sending.retain(|then| !matches!(then, Then::Message(_)));
        assert_eq!(plain, sending);
    }

    #[test]
    fn mistakes_are_refused_with_what_is_allowed() {
        let refused = |params: &str| events(&format!("{SMALL},{params}")).expect_err("it runs");
        assert!(refused("send=a+d").contains("no array 'd'; it has a, b, c"));
        assert!(refused("send=").contains("names of arrays"));
        assert!(refused("priority=2").contains("names of arrays"));
        assert!(refused("send=a,lock=c").contains("arrays of 'send'"));
        assert!(refused("send=a,priority=6").contains("from 1 to 5"));
        assert!(refused("send=a,settle=-1").contains("from 0 to 1000000"));
        assert!(refused("settle=1").contains("names of arrays"));
    }
}
