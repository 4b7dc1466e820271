//! A program that offers arrays for migration: it sends the messages of pms' library (pms section 4.2).
//!
//! ```text
//!  first array mapped ──▶ register      array mapped ──▶ send      region begins ──▶ lock
//!  array unmapped ──▶ release, before it          last thread ends ──▶ cleanup, before it
//! ```
//!
//! If asked to, it computes without accesses once its data are there, so that pages leave before it goes on.
//!
//! Ranges of addresses are sent at the start, and stay sent. A program without a region locks an array when
//! it is sent. Only thread 0's process sends messages: its forked children have pages of their own.

use std::collections::{BTreeMap, VecDeque};

use memtide_core::params::{ParamError, Parameter, Params};
use memtide_core::policy::{MessageKind, PRIORITY_MAX};
use memtide_core::{Batch, Mapping, Mark, PAGE_BYTES, Program, ProgramError, Then, ThreadId, VirtAddr, Vpn};

use crate::buffer::Buffer;
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
    /// Service level, from 1 to [`PRIORITY_MAX`].
    pub priority: u8,
    /// What may leave local memory.
    pub send: Vec<Buffer>,
    /// What among it must be local.
    pub lock: Vec<Buffer>,
    /// Instructions without accesses between initialisation and the first mark.
    pub settle: u64,
}

impl Messages {
    /// Takes them out of a workload's parameters; `None` if there are none.
    ///
    /// # Errors
    /// If a value is not allowed.
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
        if !send.is_empty() && send.iter().all(String::is_empty) {
            return Err(refused("send", &send, "names of arrays or pieces (NAME/1of2), joined by '+'"));
        }
        if lock.iter().any(|name| !send.contains(name)) {
            return Err(refused("lock", &lock, "arrays of 'send', joined by '+'"));
        }
        let numbers = numbers.values(&NUMBERS)?;
        let buffers = |key, names: &[String]| -> Result<Vec<Buffer>, ParamError> {
            let buffers = names.iter().map(|name| Buffer::named(name)).collect::<Result<_, String>>();
            buffers.map_err(|_| refused(key, names, "names of arrays or pieces (NAME/1of2), joined by '+'"))
        };
        Ok(Some(Messages {
            priority: numbers.u32("priority") as u8,
            send: buffers("send", &send)?,
            lock: buffers("lock", &lock)?,
            settle: numbers.u64("settle") * 1_000_000,
        }))
    }

    /// The program, sending them. A name that it has no mapping of is ignored: see [`mapped_first`].
    pub fn sent_by(self, program: BoxedProgram) -> BoxedProgram {
        self.sender(program, None)
    }

    /// As [`Messages::sent_by`], for a program that maps all its memory before its first access: a name that
    /// it does not have fails there.
    pub(crate) fn sent_by_workload(self, program: BoxedProgram) -> BoxedProgram {
        self.sender(program, Some(Vec::new()))
    }

    fn sender(self, program: BoxedProgram, unchecked: Option<Vec<String>>) -> BoxedProgram {
        let mut sender = Sender {
            unchecked,
            live: 1,
            queues: vec![VecDeque::new(); program.threads()],
            is_child: vec![false; program.threads()],
            locks_at_once: !program.has_region(),
            is_settled: self.settle == 0,
            messages: self,
            is_registered: false,
            sent: BTreeMap::new(),
            program,
        };
        let messages = sender.at_start();
        if let Some(queue) = sender.queues.first_mut() {
            queue.extend(messages.into_iter().map(Then::Message));
        }
        Box::new(sender)
    }
}

/// The memory that a program maps before its first access; all of an algorithm's or a profile's.
///
/// # Errors
/// If the program cannot be read.
pub fn mapped_first(program: &mut BoxedProgram) -> Result<Vec<Mapping>, ProgramError> {
    let (mut mapped, mut batch) = (Vec::new(), Batch::default());
    loop {
        program.next(ThreadId(0), &mut batch)?;
        if !batch.accesses.is_empty() {
            return Ok(mapped);
        }
        match std::mem::take(&mut batch.then) {
            Then::Map(mapping) => mapped.push(mapping),
            Then::Barrier | Then::End => return Ok(mapped),
            _ => {}
        }
    }
}

struct Sender {
    program: BoxedProgram,
    messages: Messages,
    /// What is to happen next in each thread.
    queues: Vec<VecDeque<Then>>,
    /// Threads of forked children.
    is_child: Vec<bool>,
    is_registered: bool,
    is_settled: bool,
    /// Names of all mappings so far; `None` once they were checked, or if they are not to be.
    unchecked: Option<Vec<String>>,
    /// Whether what is sent is locked at once: the region has begun, or there is none.
    locks_at_once: bool,
    /// Named memory that was sent and not released, by its first page.
    sent: BTreeMap<u64, Sent>,
    /// Threads of the process that have started and not ended.
    live: usize,
}

#[derive(Clone, Copy)]
struct Sent {
    pages: u64,
    /// Whether it is to be locked.
    locks: bool,
}

impl Sender {
    /// Registers, if it has not.
    fn register(&mut self) -> Option<MessageKind> {
        let priority = self.messages.priority;
        (!std::mem::replace(&mut self.is_registered, true)).then_some(MessageKind::Register { priority })
    }

    /// The messages about ranges of addresses.
    fn at_start(&mut self) -> Vec<MessageKind> {
        let Messages { send, lock, .. } = self.messages.clone();
        let mut messages = Vec::new();
        for buffer in send {
            if let Buffer::Range { start, pages } = buffer {
                messages.extend(self.register());
                messages.push(MessageKind::Send { start, pages });
                if self.locks_at_once && lock.contains(&buffer) {
                    messages.push(MessageKind::Lock { start });
                }
            }
        }
        messages
    }

    fn send(&mut self, first: u64, what: Sent) -> Vec<MessageKind> {
        let start = Vpn(first);
        self.sent.insert(first, what);
        let lock = (what.locks && self.locks_at_once).then_some(MessageKind::Lock { start });
        [MessageKind::Send { start, pages: what.pages }].into_iter().chain(lock).collect()
    }

    /// The messages that follow a mapping.
    fn after_map(&mut self, mapping: &Mapping) -> Vec<MessageKind> {
        if let Some(names) = &mut self.unchecked {
            names.push(mapping.name.clone());
        }
        let Messages { send, lock, .. } = self.messages.clone();
        let mut messages = Vec::new();
        for buffer in send.iter().filter(|buffer| buffer.name() == Some(&mapping.name)) {
            let (first, pages) = buffer.pages_in(mapping);
            if pages > 0 {
                messages.extend(self.register());
                messages.extend(self.send(first, Sent { pages, locks: lock.contains(buffer) }));
            }
        }
        messages
    }

    /// The messages that come before an unmapping: what overlaps is released, and what is left of it sent.
    fn before_unmap(&mut self, start: VirtAddr, bytes: u64) -> Vec<MessageKind> {
        let (from, to) = (start.0 / PAGE_BYTES, start.0.saturating_add(bytes).div_ceil(PAGE_BYTES));
        let overlaps = |(first, sent): &(&u64, &Sent)| *first + sent.pages > from;
        let found: Vec<(u64, Sent)> =
            self.sent.range(..to).filter(overlaps).map(|(first, sent)| (*first, *sent)).collect();
        let mut messages = Vec::new();
        for (first, sent) in found {
            self.sent.remove(&first);
            messages.push(MessageKind::Release { start: Vpn(first) });
            for (first, end) in [(first, from), (to.max(first), first + sent.pages)] {
                if first < end {
                    messages.extend(self.send(first, Sent { pages: end - first, ..sent }));
                }
            }
        }
        messages
    }

    /// The messages that follow the begin of the region of interest, the first time.
    fn locks(&mut self) -> Vec<MessageKind> {
        if std::mem::replace(&mut self.locks_at_once, true) {
            return Vec::new();
        }
        let ranges = self.messages.lock.iter().filter_map(|buffer| match buffer {
            Buffer::Range { start, .. } => Some(*start),
            _ => None,
        });
        let named = self.sent.iter().filter(|(_, sent)| sent.locks).map(|(first, _)| Vpn(*first));
        ranges.chain(named).map(|start| MessageKind::Lock { start }).collect()
    }

    /// Adds the messages that belong to what a thread does next.
    fn add(&mut self, thread: usize, then: &mut Then) {
        match *then {
            Then::Spawn(started) => self.start(started, self.is_child[thread]),
            Then::Fork(started) => self.start(started, true),
            _ => {}
        }
        if self.is_child[thread] {
            return;
        }
        let queue = |kinds: Vec<MessageKind>| kinds.into_iter().map(Then::Message);
        match then {
            Then::Map(mapping) => {
                let messages = self.after_map(mapping);
                self.queues[thread].extend(queue(messages));
            }
            Then::Mark(mark) => {
                let messages = if *mark == Mark::Begin { self.locks() } else { Vec::new() };
                self.queues[thread].extend(queue(messages));
                if !std::mem::replace(&mut self.is_settled, true) {
                    self.put_before(thread, then, [Then::Work(self.messages.settle)]);
                }
            }
            Then::Unmap { start, bytes } => {
                let messages = self.before_unmap(*start, *bytes);
                self.put_before(thread, then, queue(messages));
            }
            Then::Exec => {
                let released = std::mem::take(&mut self.sent).into_keys();
                let messages = released.map(|first| MessageKind::Release { start: Vpn(first) }).collect();
                self.put_before(thread, then, queue(messages));
            }
            Then::End => {
                self.live = self.live.saturating_sub(1);
                if self.live == 0 && self.is_registered {
                    self.put_before(thread, then, [Then::Message(MessageKind::Cleanup)]);
                }
            }
            _ => {}
        }
    }

    fn start(&mut self, started: ThreadId, as_child: bool) {
        if let Some(is_child) = self.is_child.get_mut(started.index()) {
            *is_child = as_child;
            self.live += usize::from(!as_child);
        }
    }

    /// Makes a thread do something else before what it does next.
    fn put_before(&mut self, thread: usize, then: &mut Then, before: impl IntoIterator<Item = Then>) {
        let mut all: VecDeque<Then> = before.into_iter().chain([std::mem::take(then)]).collect();
        *then = all.pop_front().unwrap_or_default();
        all.extend(self.queues[thread].drain(..));
        self.queues[thread] = all;
    }

    /// Refuses names that the program has no mapping of.
    fn check(&mut self) -> Result<(), ProgramError> {
        let Some(mapped) = self.unchecked.take() else { return Ok(()) };
        let is_missing = |name: &&str| !mapped.iter().any(|known| known == name);
        match self.messages.send.iter().filter_map(Buffer::name).find(is_missing) {
            Some(name) => {
                let known = mapped.join(", ");
                Err(ProgramError(format!("parameter 'send': it has no array '{name}'; it has {known}")))
            }
            None => Ok(()),
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
        if !batch.accesses.is_empty() {
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

    /// A program of one thread each that does this in turn, and what follows its threads' batches.
    struct Script {
        steps: Vec<VecDeque<Then>>,
        region: bool,
    }

    impl Program for Script {
        fn threads(&self) -> usize {
            self.steps.len()
        }

        fn next(&mut self, thread: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
            batch.clear();
            batch.then = self.steps[thread.index()].pop_front().unwrap_or(Then::End);
            Ok(())
        }

        fn has_region(&self) -> bool {
            self.region
        }
    }

    fn map(name: &str, start: u64, pages: u64) -> Then {
        let bytes = pages * PAGE_BYTES;
        let start = VirtAddr(start * PAGE_BYTES);
        Then::Map(Mapping { start, bytes, page: memtide_core::PageSize::Base, name: name.to_owned() })
    }

    fn unmap(start: u64, pages: u64) -> Then {
        Then::Unmap { start: VirtAddr(start * PAGE_BYTES), bytes: pages * PAGE_BYTES }
    }

    /// What thread 0 does, then thread 1, when the program sends and locks these.
    fn sent(steps: [Vec<Then>; 2], region: bool, send: &[&str], lock: &[&str]) -> [Vec<Then>; 2] {
        let [send, lock] =
            [send, lock].map(|list| list.iter().map(|text| Buffer::parse(text).expect("a buffer")).collect());
        let script = Script { steps: steps.map(VecDeque::from).into(), region };
        let mut program = Messages { priority: 2, send, lock, settle: 0 }.sent_by(Box::new(script));
        [0, 1].map(|thread| {
            let (mut all, mut batch) = (Vec::new(), Batch::default());
            while all.last() != Some(&Then::End) {
                program.next(ThreadId(thread), &mut batch).expect("it runs");
                all.push(std::mem::take(&mut batch.then));
            }
            all
        })
    }

    fn messages(all: &[Then]) -> Vec<MessageKind> {
        all.iter()
            .filter_map(|then| if let Then::Message(kind) = then { Some(*kind) } else { None })
            .collect()
    }

    const REGISTER: MessageKind = MessageKind::Register { priority: 2 };

    fn send(start: u64, pages: u64) -> MessageKind {
        MessageKind::Send { start: Vpn(start), pages }
    }

    fn lock(start: u64) -> MessageKind {
        MessageKind::Lock { start: Vpn(start) }
    }

    fn release(start: u64) -> MessageKind {
        MessageKind::Release { start: Vpn(start) }
    }

    #[test]
    fn range_is_sent_at_the_start_and_locked_without_a_region() {
        let steps = || [vec![map("", 8, 8), unmap(8, 8), map("", 8, 8)], vec![]];
        let [first, _] = sent(steps(), false, &["0x8000-0x10000"], &["0x8000-0x10000"]);
        assert_eq!(messages(&first), [REGISTER, send(8, 8), lock(8), MessageKind::Cleanup]);
        assert_eq!(first[0], Then::Message(REGISTER));
        let begin = || vec![map("", 8, 8), Then::Mark(Mark::Begin), Then::Mark(Mark::Begin)];
        let [first, _] = sent([begin(), vec![]], true, &["0x8000-0x10000"], &["0x8000-0x10000"]);
        let place = first.iter().position(|then| *then == Then::Message(lock(8)));
        assert_eq!(place, Some(4), "after the first mark: {first:?}");
        assert_eq!(messages(&first).len(), 4);
    }

    #[test]
    fn rest_of_a_mapping_stays_sent_when_a_part_is_unmapped() {
        let steps = [vec![map("heap", 10, 10), unmap(13, 2), unmap(10, 4), unmap(0, 99)], vec![]];
        let [first, _] = sent(steps, false, &["heap"], &["heap"]);
        let expected = [
            vec![REGISTER, send(10, 10), lock(10)],
            vec![release(10), send(10, 3), lock(10), send(15, 5), lock(15)],
            vec![release(10)],
            vec![release(15)],
            vec![MessageKind::Cleanup],
        ];
        assert_eq!(messages(&first), expected.concat());
        let release = first.iter().position(|then| *then == Then::Message(release(10)));
        assert!(release < first.iter().position(|then| *then == unmap(13, 2)), "before it: {first:?}");
    }

    #[test]
    fn forked_child_sends_nothing_and_another_thread_does() {
        let steps = |start: fn(ThreadId) -> Then| {
            [vec![map("a", 1, 1), start(ThreadId(1))], vec![map("a", 4, 1), unmap(1, 1)]]
        };
        let [parent, child] = sent(steps(Then::Fork), false, &["a"], &[]);
        assert_eq!(messages(&parent), [REGISTER, send(1, 1), MessageKind::Cleanup]);
        assert_eq!(messages(&child), []);
        let [first, second] = sent(steps(Then::Spawn), false, &["a"], &[]);
        assert_eq!(messages(&first), [REGISTER, send(1, 1)], "a thread is left");
        assert_eq!(messages(&second), [send(4, 1), release(1), MessageKind::Cleanup]);
    }

    #[test]
    fn mistakes_are_refused_with_what_is_allowed() {
        let refused = |params: &str| events(&format!("{SMALL},{params}")).expect_err("it runs");
        assert!(refused("send=a+d").contains("no array 'd'; it has a, b, c"));
        assert!(refused("send=").contains("names of arrays"));
        assert!(refused("lock=a").contains("arrays of 'send'"));
        assert!(refused("send=a,lock=c").contains("arrays of 'send'"));
        assert!(refused("send=a,lock=a/1of2").contains("arrays of 'send'"));
        assert!(refused("send=d/1of2").contains("no array 'd'"));
        for piece in ["a/0of2", "a/3of2", "a/1of0", "a/1of1001", "/1of2"] {
            assert!(refused(&format!("send={piece}")).contains("NAME/1of2"), "{piece}");
        }
        assert!(refused("send=a,priority=6").contains("from 1 to 5"));
        assert!(refused("send=a,settle=-1").contains("from 0 to 1000000"));
        assert!(refused("priority=0").contains("from 1 to 5"));
        assert!(events(&format!("{SMALL},priority=2")).is_ok(), "a service level alone, as in a run file");
    }
}
