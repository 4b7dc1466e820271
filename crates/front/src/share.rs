//! Programs run once for several readers.
//!
//! Whoever needs a chunk that does not exist yet makes it, so that no reader waits for one that waits for it.
//! Chunks are kept until every reader has taken them. Once they take too much memory, only the readers that
//! are furthest behind go on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use memtide_core::machine::Machine;
use memtide_core::{Batch, PageSize, Program, ProgramError, Then, ThreadId, VirtAddr};

use crate::record::Chunk;
use crate::thread::ThreadFront;

/// Chunks kept, in bytes, beyond which only the slowest readers go on.
const KEPT_BYTES: usize = 256 << 20;

/// Records of a chunk, about.
const CHUNK_RECORDS: usize = 8192;

/// Accesses of a chunk, about.
const CHUNK_ACCESSES: u64 = 1 << 20;

/// Chunks of a thread made ahead of the first reader.
const CHUNKS_AHEAD: usize = 4;

/// Programs, each with its threads, and what their readers have not all taken.
pub struct Shared {
    sources: Vec<Mutex<Source>>,
    kept: Mutex<Kept>,
    changed: Condvar,
    facts: Vec<Facts>,
    kept_bytes: usize,
}

/// What is known of a program in advance.
struct Facts {
    threads: usize,
    first_thread: usize,
    has_region: bool,
}

struct Source {
    program: Box<dyn Program + Send>,
    fronts: Vec<ThreadFront>,
    /// Mappings with huge pages: start and end.
    huge: Vec<(u64, u64)>,
    batch: Batch,
}

type Made = Result<Arc<Chunk>, String>;

/// The chunks of all threads.
struct Kept {
    threads: Vec<Queue>,
    bytes: usize,
    readers: Vec<ReaderState>,
    progress: Vec<Option<f64>>,
}

#[derive(Default)]
struct Queue {
    /// Number of the first chunk.
    first: usize,
    chunks: VecDeque<Made>,
    /// Whether its next chunk can be made now: the last one did not end with something that waits for other
    /// threads.
    goes_on: bool,
}

impl Queue {
    /// Number of the chunk that does not exist yet.
    fn end(&self) -> usize {
        self.first + self.chunks.len()
    }
}

struct ReaderState {
    is_live: bool,
    /// Number of the next chunk of each thread.
    next: Vec<usize>,
    /// Chunks taken of all threads.
    taken: usize,
}

impl Shared {
    /// Programs for this many readers, on a machine that has been reduced.
    pub fn new(machine: &Machine, programs: Vec<Box<dyn Program + Send>>, readers: usize) -> Shared {
        let mut first_thread = 0;
        let facts = programs.iter().map(|program| {
            let threads = program.threads();
            let facts = Facts { threads, first_thread, has_region: program.has_region() };
            first_thread += threads;
            facts
        });
        let facts: Vec<Facts> = facts.collect();
        let source = |program: Box<dyn Program + Send>| Source {
            fronts: (0..program.threads()).map(|_| ThreadFront::new(machine)).collect(),
            program,
            huge: Vec::new(),
            batch: Batch::default(),
        };
        let sources = programs.into_iter().map(|program| Mutex::new(source(program))).collect();
        let reader = || ReaderState { is_live: true, next: vec![0; first_thread], taken: 0 };
        Shared {
            kept: Mutex::new(Kept {
                threads: (0..first_thread).map(|_| Queue::default()).collect(),
                bytes: 0,
                readers: (0..readers).map(|_| reader()).collect(),
                progress: vec![None; facts.len()],
            }),
            sources,
            changed: Condvar::new(),
            facts,
            kept_bytes: KEPT_BYTES,
        }
    }

    /// Makes chunks ahead of the readers, until all of them have been dropped: worker `number` of `workers`,
    /// which share the programs.
    pub fn run_ahead(&self, number: usize, workers: usize) {
        let is_own = |thread: usize| self.program_of(thread) % workers == number;
        let mut kept = lock(&self.kept);
        while kept.readers.iter().any(|reader| reader.is_live) {
            let next = (kept.bytes <= self.kept_bytes).then(|| kept.next_ahead(is_own)).flatten();
            let Some((index, end)) = next else {
                kept = self.changed.wait(kept).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(kept);
            let program = self.program_of(index);
            let mut source = lock(&self.sources[program]);
            if lock(&self.kept).threads[index].end() == end {
                let thread = ThreadId::from(index - self.facts[program].first_thread);
                self.make(&mut source, program, thread);
                self.changed.notify_all();
            }
            drop(source);
            kept = lock(&self.kept);
        }
    }

    /// The program of a thread of all.
    fn program_of(&self, thread: usize) -> usize {
        self.facts.partition_point(|facts| facts.first_thread <= thread) - 1
    }

    /// Makes a thread's next chunk.
    fn make(&self, source: &mut Source, program: usize, thread: ThreadId) {
        let (made, progress) = source.next(thread);
        let mut kept = lock(&self.kept);
        kept.progress[program] = progress.or(kept.progress[program]);
        kept.bytes += made.as_ref().map_or(0, |chunk| chunk.bytes());
        let queue = &mut kept.threads[self.facts[program].first_thread + thread.index()];
        queue.goes_on = made.as_ref().is_ok_and(|chunk| !matches!(chunk.then, Then::Barrier | Then::End));
        queue.chunks.push_back(made);
    }

    /// A reader of a program. Each number below that of readers is to be used for every program once, and
    /// dropped.
    pub fn reader(&self, number: usize, program: usize) -> Reader<'_> {
        Reader { shared: self, number, program }
    }
}

impl Source {
    /// The next chunk of a thread.
    fn next(&mut self, thread: ThreadId) -> (Made, Option<f64>) {
        let Source { program, fronts, huge, batch } = self;
        let front = &mut fronts[thread.index()];
        let mut chunk = Chunk::default();
        let mut accesses = 0;
        while chunk.then == Then::Continue && chunk.records.len() < CHUNK_RECORDS && accesses < CHUNK_ACCESSES
        {
            if let Err(ProgramError(why)) = program.next(thread, batch) {
                return (Err(why), None);
            }
            // An empty batch counts, too: some programs never end.
            accesses += 1 + batch.accesses.len() as u64;
            let is_huge = |address: VirtAddr| is_huge(huge, address);
            front.run(batch, is_huge, &mut chunk);
        }
        front.end_chunk(&mut chunk);
        if let Then::Map(mapping) = &chunk.then
            && mapping.page == PageSize::Huge
        {
            huge.push((mapping.start.0, mapping.start.0.saturating_add(mapping.bytes)));
        }
        (Ok(Arc::new(chunk)), program.progress())
    }
}

/// Whether an address has a huge page, if there is memory for one.
fn is_huge(mappings: &[(u64, u64)], address: VirtAddr) -> bool {
    let size = PageSize::Huge.bytes();
    let first = address.0 - address.0 % size;
    mappings.iter().any(|&(start, end)| start <= first && first + size <= end)
}

/// A reader of a program's chunks. When it is dropped, nothing is kept for it.
pub struct Reader<'s> {
    shared: &'s Shared,
    number: usize,
    program: usize,
}

impl Reader<'_> {
    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.facts().threads
    }

    /// Whether the program marks a region of interest.
    pub fn has_region(&self) -> bool {
        self.facts().has_region
    }

    /// Share of the program that was made, if known.
    pub fn progress(&self) -> Option<f64> {
        lock(&self.shared.kept).progress[self.program]
    }

    /// The next chunk of a thread.
    ///
    /// # Errors
    /// As of [`Program::next`].
    pub fn next(&mut self, thread: ThreadId) -> Result<Arc<Chunk>, ProgramError> {
        let index = self.facts().first_thread + thread.index();
        let mut kept = lock(&self.shared.kept);
        while kept.bytes > self.shared.kept_bytes && !kept.is_slowest(self.number) {
            kept = self.shared.changed.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        let made = match kept.take(self.number, index) {
            Some(made) => made,
            None => {
                drop(kept);
                // One at a time makes a program's chunks; another may have made this one in the meantime.
                let mut source = lock(&self.shared.sources[self.program]);
                let made = lock(&self.shared.kept).take(self.number, index);
                made.unwrap_or_else(|| {
                    self.shared.make(&mut source, self.program, thread);
                    lock(&self.shared.kept).take(self.number, index).expect("the chunk just made")
                })
            }
        };
        self.shared.changed.notify_all();
        made.map_err(ProgramError)
    }

    fn facts(&self) -> &Facts {
        &self.shared.facts[self.program]
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut kept = lock(&self.shared.kept);
        kept.readers[self.number].is_live = false;
        for index in 0..kept.threads.len() {
            kept.drop_taken(index);
        }
        self.shared.changed.notify_all();
    }
}

impl Kept {
    /// One of these threads whose next chunk can be made now, and that chunk's number: the readers have few,
    /// and have nothing to do before it that other threads wait for.
    fn next_ahead(&self, among: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        let furthest = |index: usize| self.readers.iter().map(|reader| reader.next[index]).max();
        let can = |&index: &usize| {
            let queue = &self.threads[index];
            queue.goes_on
                && among(index)
                && furthest(index).is_some_and(|furthest| queue.end() < furthest + CHUNKS_AHEAD)
        };
        let index = (0..self.threads.len()).filter(can).min_by_key(|&index| self.threads[index].end())?;
        Some((index, self.threads[index].end()))
    }

    /// Takes a reader's next chunk of a thread, if it was made.
    fn take(&mut self, reader: usize, thread: usize) -> Option<Made> {
        let queue = &self.threads[thread];
        let next = self.readers[reader].next[thread];
        let made = queue.chunks.get(next - queue.first)?.clone();
        self.readers[reader].next[thread] += 1;
        self.readers[reader].taken += 1;
        self.drop_taken(thread);
        Some(made)
    }

    /// Drops the chunks that every reader has taken.
    fn drop_taken(&mut self, thread: usize) {
        let live = self.readers.iter().filter(|reader| reader.is_live);
        let least = live.map(|reader| reader.next[thread]).min();
        let queue = &mut self.threads[thread];
        while least.is_none_or(|least| queue.first < least)
            && let Some(made) = queue.chunks.pop_front()
        {
            self.bytes -= made.map_or(0, |chunk| chunk.bytes());
            queue.first += 1;
        }
    }

    /// Whether no reader has taken fewer chunks.
    fn is_slowest(&self, reader: usize) -> bool {
        let taken = self.readers[reader].taken;
        self.readers.iter().filter(|other| other.is_live).all(|other| taken <= other.taken)
    }
}

/// Data of a reader that panicked are whole: nothing panics while it changes them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use memtide_core::Access;
    use memtide_core::machine::bundled;

    use super::*;
    use crate::record::Record;

    /// One thread of this many batches, each of 1,000 reads of lines of their own.
    struct Reads {
        batches: u64,
        made: u64,
    }

    impl Program for Reads {
        fn threads(&self) -> usize {
            1
        }

        fn next(&mut self, _: ThreadId, batch: &mut Batch) -> Result<(), ProgramError> {
            batch.clear();
            batch.accesses.extend((0..1000).map(|index| Access {
                address: VirtAddr((1 << 32) + (self.made * 1000 + index) * 64),
                instructions: 4,
                producer: 0,
                size: 8,
                write: false,
                non_temporal: false,
            }));
            self.made += 1;
            if self.made == self.batches {
                batch.then = Then::End;
            }
            Ok(())
        }
    }

    fn shared(batches: u64, readers: usize, kept_bytes: usize) -> Shared {
        let machine = bundled::machine("memos").unwrap().unwrap().reduced();
        let program = Box::new(Reads { batches, made: 0 });
        Shared { kept_bytes, ..Shared::new(&machine, vec![program], readers) }
    }

    fn read_all(reader: &mut Reader) -> u64 {
        let mut accesses = 0;
        loop {
            let chunk = reader.next(ThreadId(0)).unwrap();
            accesses += chunk.records.iter().map(|record| u64::from(record.accesses)).sum::<u64>();
            if chunk.then == Then::End {
                return accesses;
            }
        }
    }

    #[test]
    fn fast_reader_waits_for_slow_one_once_much_is_kept() {
        let chunk_bytes = CHUNK_RECORDS * size_of::<Record>();
        let shared = shared(1000, 2, 4 * chunk_bytes);
        let (mut slow, mut fast) = (shared.reader(0, 0), shared.reader(1, 0));
        std::thread::scope(|scope| {
            let all = scope.spawn(move || read_all(&mut fast));
            for _ in 0..20 {
                slow.next(ThreadId(0)).unwrap();
                assert!(lock(&shared.kept).bytes < 8 * chunk_bytes);
            }
            read_all(&mut slow);
            drop(slow);
            assert_eq!(all.join().unwrap(), 1_000_000);
        });
        let kept = lock(&shared.kept);
        assert_eq!((kept.bytes, kept.threads[0].chunks.len()), (0, 0));
    }

    #[test]
    fn nothing_waits_for_a_dropped_reader() {
        let shared = shared(200, 2, 1);
        drop(shared.reader(0, 0));
        let mut other = shared.reader(1, 0);
        assert_eq!(read_all(&mut other), 200_000);
    }

    #[test]
    fn chunks_ahead_end_with_the_readers() {
        let shared = shared(1 << 40, 1, usize::MAX);
        std::thread::scope(|scope| {
            let ahead = scope.spawn(|| shared.run_ahead(0, 1));
            let mut reader = shared.reader(0, 0);
            for _ in 0..10 {
                reader.next(ThreadId(0)).unwrap();
            }
            drop(reader);
            ahead.join().unwrap();
        });
    }

    #[test]
    fn pages_in_huge_mappings_are_huge() {
        let huge = [(5 << 20, 9 << 20)];
        let holds = |mib: u64| is_huge(&huge, VirtAddr(mib << 20));
        assert_eq!([5, 6, 7, 8, 9].map(holds), [false, true, true, false, false]);
    }
}
