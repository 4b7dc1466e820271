//! Runs programs for tests, and checks their invariants.

use std::collections::BTreeSet;

use memtide_core::{Access, Batch, Mapping, Mark, Program, Then, ThreadId};

use crate::array::Space;
use crate::native_run::{Pace, run_native};
use crate::params::Settings;
use crate::run::TracedProgram;
use crate::workload::Algorithm;

/// The recorded events of a program.
#[derive(Default, PartialEq)]
pub struct Recorded {
    pub streams: Vec<Vec<Access>>,
    /// Instructions of each thread that precede no access.
    pub work: Vec<u64>,
    pub barriers: Vec<usize>,
    pub mappings: Vec<Mapping>,
    pub marks: Vec<Mark>,
}

impl Recorded {
    /// Total instructions of all threads.
    pub fn instructions(&self) -> u64 {
        let accesses = self.streams.iter().flatten().map(|access| u64::from(access.instructions));
        accesses.sum::<u64>() + self.work.iter().sum::<u64>()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    NotStarted,
    Running,
    Waiting,
    Ended,
}

/// Runs a program to its end: its threads in turn, or the last one as far as possible, then the one before.
pub fn record(program: &mut (impl Program + ?Sized), in_turn: bool) -> Recorded {
    let threads = program.threads();
    let mut states = vec![State::NotStarted; threads];
    states[0] = State::Running;
    let mut recorded = Recorded {
        streams: vec![Vec::new(); threads],
        work: vec![0; threads],
        barriers: vec![0; threads],
        mappings: Vec::new(),
        marks: Vec::new(),
    };
    let mut batch = Batch::default();
    let mut last = 0;
    while states.iter().any(|state| *state != State::Ended) {
        let mut turns = (1..=threads).map(|step| (last + step) % threads);
        let runs = |thread: &usize| states[*thread] == State::Running;
        let next = if in_turn { turns.find(runs) } else { (0..threads).rev().find(runs) };
        let Some(thread) = next else {
            for state in states.iter_mut().filter(|state| **state == State::Waiting) {
                *state = State::Running;
            }
            continue;
        };
        last = thread;
        program.next(ThreadId::from(thread), &mut batch).unwrap();
        assert!(batch.accesses.len() < 20_000, "a batch of {}", batch.accesses.len());
        recorded.streams[thread].extend_from_slice(&batch.accesses);
        match std::mem::take(&mut batch.then) {
            Then::Continue => {}
            Then::Work(instructions) => recorded.work[thread] += instructions,
            Then::Map(mapping) => recorded.mappings.push(mapping),
            Then::Mark(mark) => recorded.marks.push(mark),
            Then::Spawn(born) => states[born.index()] = State::Running,
            Then::Barrier => {
                recorded.barriers[thread] += 1;
                states[thread] = State::Waiting;
            }
            Then::End => states[thread] = State::Ended,
            other => panic!("{other:?}"),
        }
    }
    recorded
}

/// A workload as created by the registry.
pub fn traced<A: Algorithm>(params: &str) -> TracedProgram<A> {
    let settings = Settings::new(&A::INFO, &params.parse().unwrap()).unwrap();
    let mut space = Space::new(settings.page());
    TracedProgram::new(A::new(&settings, 1, &mut space).unwrap(), space)
}

/// A workload after a native run.
pub fn native<A: Algorithm>(params: &str) -> A {
    let settings = Settings::new(&A::INFO, &params.parse().unwrap()).unwrap();
    let workload = A::new(&settings, 1, &mut Space::new(settings.page())).unwrap();
    run_native(&workload, Pace::FULL, &|_| {});
    workload
}

/// Runs a workload, checks its invariants, and returns it with its recording.
pub fn check<A: Algorithm>(params: &str) -> (TracedProgram<A>, Recorded) {
    let (mut program, mut other) = (traced::<A>(params), traced::<A>(params));
    let recorded = record(&mut program, true);
    assert!(record(&mut other, false) == recorded, "a thread's accesses depend on how threads interleave");
    assert_eq!(program.progress(), Some(1.0));

    assert!(program.has_region() && recorded.marks.contains(&Mark::Begin), "its region is not marked");
    assert_eq!(native::<A>(params).result(), program.workload().result(), "native and traced results differ");
    let bytes: u64 = recorded.mappings.iter().map(|mapping| mapping.bytes).sum();
    let settings = Settings::new(&A::INFO, &params.parse().unwrap()).unwrap();
    let given = settings.footprint_bytes() as u64;
    assert!(bytes <= given + given / 8 && bytes >= given * 2 / 5, "{bytes} bytes mapped of {given}");
    check_streams(&recorded);
    (program, recorded)
}

/// Checks that accesses are within mappings, that every page is used, and that producers are loads.
fn check_streams(recorded: &Recorded) {
    let mut touched = BTreeSet::new();
    for stream in &recorded.streams {
        for (at, access) in stream.iter().enumerate() {
            let (first, last) = (access.address.0, access.address.0 + u64::from(access.size) - 1);
            let inside = |m: &Mapping| m.start.0 <= first && last < m.start.0 + m.bytes;
            assert!(recorded.mappings.iter().any(inside), "{access:?} lies outside of every mapping");
            assert!(access.instructions > 0);
            touched.extend([first >> 12, last >> 12]);
            let producer = access.producer as usize;
            assert!(producer <= at && (producer == 0 || !stream[at - producer].write), "{access:?} at {at}");
        }
    }
    let pages: u64 = recorded.mappings.iter().map(|mapping| mapping.bytes.div_ceil(4096)).sum();
    assert!(touched.len() as u64 >= pages * 9 / 10, "{} of {pages} pages touched", touched.len());
}
