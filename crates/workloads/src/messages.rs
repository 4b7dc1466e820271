//! A program that offers arrays for migration: it sends the messages of pms' library (pms section 4.2).
//!
//! ```text
//!  first array mapped ──▶ register      array mapped ──▶ send      region begins ──▶ lock
//!  array unmapped ──▶ release, before it          last thread ends ──▶ cleanup, before it
//! ```

use std::collections::{BTreeMap, VecDeque};

use memtide_core::params::{ParamError, Parameter, Params};
use memtide_core::policy::{MessageKind, PRIORITY_MAX};
use memtide_core::{Batch, Mapping, Mark, PAGE_BYTES, Program, ProgramError, Then, ThreadId, VirtAddr, Vpn};

use crate::entry::BoxedProgram;

/// Parameters that every simulated workload has: which arrays it offers, which it locks, its service level.
pub const MESSAGE_PARAMETERS: [&str; 3] = ["send", "lock", "priority"];

const PRIORITY: Parameter = Parameter::integer("priority", "", "service level", [1, 1, PRIORITY_MAX as u64]);

/// What a program offers for migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    priority: u8,
    send: Vec<Buffer>,
    /// Buffers among them.
    lock: Vec<Buffer>,
}

/// An array, or one of several nearly equal pieces of its pages: `NAME` or `NAME/KofN`, K from 1 to N.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Buffer {
    array: String,
    /// K - 1 and N.
    piece: (u64, u64),
}

/// Pieces that an array can have at most.
const PIECES: u64 = 1000;

impl Buffer {
    fn parse(text: &str) -> Option<Buffer> {
        let text = text.trim();
        let Some((array, piece)) = text.rsplit_once('/') else {
            return (!text.is_empty()).then(|| Buffer { array: text.to_owned(), piece: (0, 1) });
        };
        let (number, pieces) = piece.split_once("of")?;
        let (number, pieces): (u64, u64) = (number.parse().ok()?, pieces.parse().ok()?);
        let is_valid = !array.is_empty() && pieces <= PIECES && (1..=pieces).contains(&number);
        is_valid.then(|| Buffer { array: array.to_owned(), piece: (number - 1, pieces) })
    }

    /// First page of the buffer in its array's mapping, and pages.
    fn pages(&self, mapping: &Mapping) -> (u64, u64) {
        let (number, pieces) = self.piece;
        let pages = mapping.bytes.div_ceil(PAGE_BYTES);
        let [first, end] = [number, number + 1].map(|piece| pages * piece / pieces);
        (mapping.start.0 / PAGE_BYTES + first, end - first)
    }
}

impl Messages {
    /// Takes them out of a workload's parameters; `None` if there are none.
    ///
    /// # Errors
    /// If a value is not allowed, or nothing is sent.
    pub fn take(params: &mut Params) -> Result<Option<Messages>, ParamError> {
        let mut priority = Params::new();
        let (mut send, mut lock) = (None, None);
        let taken = params.split_off(&MESSAGE_PARAMETERS);
        if taken.is_empty() {
            return Ok(None);
        }
        for (key, value) in taken {
            match key.as_str() {
                "send" => send = Some(value),
                "lock" => lock = Some(value),
                _ => priority.set(&key, value)?,
            }
        }
        let buffers = |key, text: Option<String>, expected: &str| {
            let text = text.unwrap_or_default();
            let buffers: Option<Vec<Buffer>> = text.split('+').map(Buffer::parse).collect();
            buffers.ok_or(ParamError::Value { key, value: text, expected: expected.to_owned() })
        };
        let send = buffers("send", send, "names of arrays or pieces (NAME/1of2), joined by '+'")?;
        let within = "buffers of 'send', joined by '+'";
        let lock = match lock {
            Some(text) => {
                let lock = buffers("lock", Some(text.clone()), within)?;
                if lock.iter().any(|buffer| !send.contains(buffer)) {
                    return Err(ParamError::Value { key: "lock", value: text, expected: within.to_owned() });
                }
                lock
            }
            None => Vec::new(),
        };
        let priority = priority.values(&[PRIORITY])?.u32("priority") as u8;
        Ok(Some(Messages { priority, send, lock }))
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
    /// Names of all arrays so far.
    mapped: Vec<String>,
    /// Each buffer that was sent and not released, by its first page.
    sent: BTreeMap<u64, Buffer>,
    /// Threads that have not ended.
    live: usize,
}

impl Sender {
    /// The messages that follow a mapping.
    fn after_map(&mut self, mapping: &Mapping) -> Vec<MessageKind> {
        self.mapped.push(mapping.name.clone());
        let mut messages = Vec::new();
        for buffer in self.messages.send.iter().filter(|buffer| buffer.array == mapping.name) {
            if !std::mem::replace(&mut self.is_registered, true) {
                messages.push(MessageKind::Register { priority: self.messages.priority });
            }
            let (first, pages) = buffer.pages(mapping);
            if pages > 0 {
                self.sent.insert(first, buffer.clone());
                messages.push(MessageKind::Send { start: Vpn(first), pages });
            }
        }
        messages
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
        let locked = self.sent.iter().filter(|(_, buffer)| self.messages.lock.contains(buffer));
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
            Then::Mark(Mark::Begin) => {
                let messages = self.locks();
                self.queues[thread].extend(queue(messages));
            }
            Then::Unmap { start, bytes } => {
                let messages = self.before_unmap(*start, *bytes);
                self.put_before(thread, then, messages);
            }
            Then::End => {
                self.live -= 1;
                if self.live == 0 && self.is_registered {
                    self.put_before(thread, then, vec![MessageKind::Cleanup]);
                }
            }
            _ => {}
        }
    }

    /// Makes a thread send messages before what it does next.
    fn put_before(&mut self, thread: usize, then: &mut Then, messages: Vec<MessageKind>) {
        let mut all = messages.into_iter().map(Then::Message).chain([std::mem::take(then)]);
        *then = all.next().unwrap_or_default();
        self.queues[thread].extend(all);
    }

    /// Refuses names that the program has no array of: all are mapped before its first accesses.
    fn check(&mut self) -> Result<(), ProgramError> {
        self.is_checked = true;
        match self.messages.send.iter().find(|buffer| !self.mapped.contains(&buffer.array)) {
            None => Ok(()),
            Some(Buffer { array: name, .. }) => {
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
    fn pieces_of_an_array_cover_it_once() {
        let events = events(&format!("{SMALL},send=a/1of3+a/2of3+a/3of3,lock=a/2of3")).expect("a program");
        let mut sent = Vec::new();
        let mut locked = Vec::new();
        for then in &events {
            match then {
                Then::Message(MessageKind::Send { start, pages }) => sent.push((start.0, *pages)),
                Then::Message(MessageKind::Lock { start }) => locked.push(start.0),
                _ => {}
            }
        }
        assert_eq!(sent.iter().map(|(_, pages)| *pages).collect::<Vec<_>>(), [85, 85, 86]);
        assert!(sent.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
        assert_eq!(locked, [sent[1].0]);
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
        assert!(refused("send=a,lock=c").contains("buffers of 'send'"));
        assert!(refused("send=a,lock=a/1of2").contains("buffers of 'send'"));
        assert!(refused("send=d/1of2").contains("no array 'd'"));
        for piece in ["a/2", "a/0of2", "a/3of2", "a/1of0", "a/1of1001", "/1of2"] {
            assert!(refused(&format!("send={piece}")).contains("NAME/1of2"), "{piece}");
        }
        assert!(refused("send=a,priority=6").contains("from 1 to 5"));
    }
}
