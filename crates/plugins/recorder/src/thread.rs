//! One thread of the recorded program: which load feeds each register, and what goes into its stream.

use std::io;
use std::path::Path;

use memtide_recording::control::Word;
use memtide_recording::{RawAccess, Record};

use crate::calls::Call;
use crate::files::{Control, Stream};
use memtide_dataflow::{Block, Op, REGISTERS, Set, Transfer, bits};

/// Accesses between a thread's publications of its access count.
const GRANT: u64 = 1024;

/// Instructions between a thread's publications of its retired count and checks for the next epoch.
const REPORT: u64 = 8192;

/// A load this many accesses back has completed: no address depends on it.
const MAX_PRODUCER: u64 = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Skipping,
    Recording,
    Done,
}

pub struct Thread {
    /// The current system call.
    pub call: Call,
    control: &'static Control,
    stream: Stream,
    phase: Phase,
    /// Accesses left of the last grant.
    granted: u64,
    /// Number of the load that last fed each register; 0 is none.
    feeds: [u64; REGISTERS],
    /// Accesses made; also the number of the last.
    accesses: u64,
    /// Accesses made before the first recorded one.
    skipped: u64,
    retired: u64,
    block_start: u64,
    /// Instructions retired when the last access was made.
    marked: u64,
    /// Like `retired`, but each item of a repeated string instruction counts.
    clock: u64,
    reported: u64,
    epoch: u64,
    tail: &'static [Transfer],
    ends_in_repeat: Option<u64>,
    /// The instruction of the pending access, if it may still extend it.
    op: Option<&'static Op>,
    pending: Option<RawAccess>,
}

impl Thread {
    /// Starts the stream of the calling thread.
    pub fn begin(dir: &Path, control: &'static Control) -> io::Result<Thread> {
        let number = control.add(Word::Streams, 1);
        let mut thread = Thread {
            call: Call::default(),
            control,
            stream: Stream::create(dir, number)?,
            phase: Phase::Skipping,
            granted: 0,
            feeds: [0; REGISTERS],
            accesses: 0,
            skipped: 0,
            retired: 0,
            block_start: 0,
            marked: 0,
            clock: 0,
            reported: 0,
            epoch: 0,
            tail: &[],
            ends_in_repeat: None,
            op: None,
            pending: None,
        };
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::gettid() } as u32;
        thread.stream.write(&Record::Start { pid: std::process::id(), tid })?;
        thread.report();
        thread.where_it_runs();
        Ok(thread)
    }

    /// Start of a block.
    #[inline]
    pub fn block(&mut self, block: &'static Block) {
        transfer(&mut self.feeds, self.tail);
        self.tail = &block.tail;
        self.op = None;
        let again = u64::from(block.repeats.is_some() && block.repeats == self.ends_in_repeat);
        self.ends_in_repeat = block.ends_in_repeat;
        self.block_start = self.retired - again;
        self.retired = self.block_start + u64::from(block.instructions);
        self.clock += u64::from(block.instructions);
        if self.clock >= self.reported + REPORT {
            self.report();
        }
    }

    /// An instruction accessed memory.
    #[inline]
    pub fn access(&mut self, op: &'static Op, address: u64, size: u16, write: bool) {
        if self.op.is_some_and(|last| std::ptr::eq(last, op)) {
            if self.joins_pending(op, address, size, write) {
                return;
            }
        } else {
            transfer(&mut self.feeds, &op.before);
            self.op = Some(op);
            // An atomic instruction is reported as one store.
            if op.modifies && write {
                self.load(op, address, size);
            }
        }
        if write {
            self.make(op, address, size, true);
        } else {
            self.load(op, address, size);
        }
    }

    fn load(&mut self, op: &'static Op, address: u64, size: u16) {
        self.make(op, address, size, false);
        bits(op.loaded).for_each(|register| self.feeds[register] = self.accesses);
    }

    /// Whether this continues the operand of the pending access.
    fn joins_pending(&mut self, op: &Op, address: u64, size: u16, write: bool) -> bool {
        match &mut self.pending {
            Some(last)
                if last.write == write
                    && address == last.address.wrapping_add(u64::from(last.size))
                    && last.size.saturating_add(size) <= op.width =>
            {
                last.size += size;
                true
            }
            _ => false,
        }
    }

    fn make(&mut self, op: &Op, address: u64, size: u16, write: bool) {
        self.flush();
        if self.granted == 0 {
            self.grant();
        }
        self.granted -= 1;
        self.accesses += 1;
        if self.phase != Phase::Recording {
            return;
        }
        let at = self.block_start + u64::from(op.position);
        let registers = if write { op.store_address } else { op.load_address };
        self.pending = Some(RawAccess {
            address,
            pc: op.pc,
            instructions: at.saturating_sub(self.marked),
            producer: self.producer(registers),
            size,
            write,
            non_temporal: write && op.non_temporal,
        });
        self.marked = self.marked.max(at);
    }

    fn producer(&self, registers: Set) -> u32 {
        let load = bits(registers).map(|register| self.feeds[register]).max().unwrap_or(0);
        let distance = self.accesses - load;
        if load > self.skipped && distance <= MAX_PRODUCER { distance as u32 } else { 0 }
    }

    /// Obtains the next grant of accesses, and whether to record them.
    fn grant(&mut self) {
        let skip = self.control.get(Word::Skip);
        let end = skip.saturating_add(self.control.get(Word::Limit));
        let leave = |made: u64| {
            let boundary = [skip, end].into_iter().find(|&boundary| made < boundary).unwrap_or(u64::MAX);
            GRANT.min(boundary - made)
        };
        let made = self.control.update(Word::Accesses, |made| made.saturating_add(leave(made)));
        self.granted = leave(made).max(1);
        let was = self.phase;
        self.phase = match self.phase {
            Phase::Done => Phase::Done,
            _ if made < skip => Phase::Skipping,
            _ if made < end => Phase::Recording,
            _ => Phase::Done,
        };
        if was == Phase::Skipping && self.phase == Phase::Recording {
            self.skipped = self.accesses;
            self.marked = self.block_start;
            self.reported = self.clock;
            self.report();
        }
    }

    /// Publishes the thread's progress, and enters the program's current epoch.
    pub fn report(&mut self) {
        let more = if self.phase == Phase::Recording { self.clock - self.reported } else { 0 };
        self.reported = self.clock;
        let clock = self.control.add(Word::Instructions, more) + more;
        let skipping = self.control.get(Word::Accesses) < self.control.get(Word::Skip);
        let epoch = match skipping {
            true => 0,
            false => 1 + clock / self.control.get(Word::EpochInstructions).max(1),
        };
        if epoch != self.epoch {
            self.epoch = epoch;
            self.event(&Record::Epoch(epoch));
            self.where_it_runs();
        }
    }

    fn where_it_runs(&mut self) {
        // SAFETY: sched_getcpu has no preconditions.
        if let Ok(cpu) = u32::try_from(unsafe { libc::sched_getcpu() }) {
            self.event(&Record::Cpu(cpu));
        }
    }

    /// Writes an event to the stream.
    pub fn event(&mut self, event: &Record) {
        self.flush();
        if self.phase != Phase::Done {
            self.put(event);
        }
    }

    /// Writes the pending access to the stream: it is complete.
    pub fn flush(&mut self) {
        if let Some(access) = self.pending.take() {
            self.put(&Record::Access(access));
        }
    }

    /// Ends the thread: reports the unused accesses of its grant.
    pub fn leave(&mut self) {
        self.flush();
        self.control.add(Word::Unmade, std::mem::take(&mut self.granted));
    }

    fn put(&mut self, record: &Record) {
        if self.control.get(Word::Failure) != 0 {
            return;
        }
        if let Err(error) = self.stream.write(record) {
            self.control.fail(&error);
        }
    }
}

#[inline]
fn transfer(feeds: &mut [u64; REGISTERS], transfers: &[Transfer]) {
    let newest = |from: Set, feeds: &[u64; REGISTERS]| bits(from).map(|i| feeds[i]).max().unwrap_or(0);
    match transfers {
        [] => {}
        [one] => feeds[usize::from(one.to)] = newest(one.from, feeds),
        many => {
            let before = *feeds;
            for transfer in many {
                feeds[usize::from(transfer.to)] = newest(transfer.from, &before);
            }
        }
    }
}
