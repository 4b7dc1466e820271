//! A key-value store under the six workloads of the Yahoo! Cloud Serving Benchmark.

mod index;

use memtide_core::Stage;
use memtide_core::params::Parameter;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::hash_index::HashIndex;
use crate::info::Info;
use crate::memory::{Index, Loaded, Memory};
use crate::params::{self, Settings};
use crate::random::{Random, hash};
use crate::reduction::Reduction;
use crate::workload::{Algorithm, Phase, Workload};
use crate::zipf::Zipf;

use index::RecordIndex;

/// Words of a vector register (AVX2).
const LANES: usize = 4;
/// Skew of requests, as in YCSB.
const THETA: f64 = 0.99;
/// Maximum length of a scan, in records.
const LONGEST_SCAN: u64 = 100;
/// Per record of a scan: going on to the next one.
const SCAN_INSTRUCTIONS: u64 = 3;
/// Per 32 bytes copied: half of a loop's add, compare, branch, since the copy is unrolled once.
const COPY_INSTRUCTIONS: u64 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    Modify,
}

/// A workload's operations: most requests, and every `period`th.
struct Mix {
    most: Operation,
    other: Operation,
    period: u64,
}

const fn mix(workload: char) -> Mix {
    use Operation::{Insert, Modify, Read, Scan, Update};
    let (most, other, period) = match workload {
        'a' => (Read, Update, 2),
        'b' => (Read, Update, 20),
        'c' => (Read, Read, 20),
        'd' => (Read, Insert, 20),
        'e' => (Scan, Insert, 20),
        _ => (Read, Modify, 2),
    };
    Mix { most, other, period }
}

const VALUE_BYTES: Parameter = Parameter::integer(
    "value_bytes",
    "B",
    "size of a record, rounded up to a multiple of 32",
    [32, 1024, 16384],
);
const STORE: Parameter = Parameter::word(
    "store",
    "index of the records: a hash table, or a B+ tree over records in the order of their keys",
    RecordIndex::STORES,
);
const REQUEST_INSTRUCTIONS: Parameter = Parameter::integer(
    "request_instructions",
    "",
    "instructions per request beside those that access the store: receiving it and sending the answer",
    [0, 500, 10_000_000],
);
const fn parameters(operations: u64) -> [Parameter; 7] {
    [
        params::footprint_mib(256),
        VALUE_BYTES,
        STORE,
        REQUEST_INSTRUCTIONS,
        params::operations(operations),
        params::threads(16),
        params::PAGE,
    ]
}
const PARAMETERS: &[Parameter] = &parameters(300_000);
const SCAN_PARAMETERS: &[Parameter] = &parameters(6_000);

/// The store: records that all threads share, and for each thread those that it inserts, which are private.
pub struct Ycsb<const WORKLOAD: char> {
    threads: usize,
    operations: usize,
    seed: u64,
    records: usize,
    /// Records that each thread can insert.
    room: usize,
    /// Words per record.
    words: usize,
    request_instructions: u64,
    popularity: Zipf,
    index: RecordIndex,
    values: Array<u64>,
    inserted_index: HashIndex,
    inserted_values: Array<u64>,
    /// Records found with correct content.
    served: Reduction,
}

#[derive(Clone, Copy)]
pub enum Step {
    /// Writes the records.
    Load,
    Clear,
    /// Adds them to the index.
    Index,
    ClearInserted,
    Serve,
}

/// Thread-local state.
pub struct Local {
    thread: usize,
    random: Random,
    requests: u64,
    inserted: usize,
    served: u64,
}

impl<const WORKLOAD: char> Algorithm for Ycsb<WORKLOAD> {
    const INFO: Info = Info {
        name: match WORKLOAD {
            'a' => "ycsb-a",
            'b' => "ycsb-b",
            'c' => "ycsb-c",
            'd' => "ycsb-d",
            'e' => "ycsb-e",
            _ => "ycsb-f",
        },
        summary: match WORKLOAD {
            'a' => "key-value store, YCSB A: half reads, half updates, zipfian",
            'b' => "key-value store, YCSB B: 95 % reads, 5 % updates, zipfian",
            'c' => "key-value store, YCSB C: reads only, zipfian",
            'd' => "key-value store, YCSB D: 95 % reads of the latest records, 5 % inserts",
            'e' => "key-value store, YCSB E: 95 % scans of up to 100 keys, 5 % inserts, zipfian",
            _ => "key-value store, YCSB F: half reads, half read-modify-writes, zipfian",
        },
        stresses: "latency of chains of random reads; finding hot records",
        source: "B. Cooper et al., Benchmarking cloud serving systems with YCSB, SoCC 2010; hinuma table I",
        parameters: if WORKLOAD == 'e' { SCAN_PARAMETERS } else { PARAMETERS },
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Self, WorkloadError> {
        let (threads, operations) = (settings.threads(), settings.size("operations"));
        let words = settings.size("value_bytes").div_ceil(8 * LANES) * LANES;
        let Mix { other, period, .. } = mix(WORKLOAD);
        let room = match other {
            Operation::Insert => operations.div_ceil(threads) / period as usize + 1,
            _ => 1,
        };
        let store = settings.word("store");
        let record_bytes = RecordIndex::entry_bytes(store).max(HashIndex::ENTRY_BYTES) + words * 8;
        let records = (settings.footprint_bytes() / record_bytes).saturating_sub(threads * room);
        let records = records / threads * threads;
        if records == 0 {
            return Err(settings.unfit(format!(
                "{} inserted records leave no memory for others: increase footprint_mib or reduce operations",
                threads * room
            )));
        }
        Ok(Ycsb {
            threads,
            operations,
            seed,
            records,
            room,
            words,
            request_instructions: settings.integer("request_instructions"),
            popularity: Zipf::new(records as u64, THETA),
            index: RecordIndex::new(store, threads, records, space)?,
            values: space.array("values", records * words)?,
            inserted_index: HashIndex::new(threads, room, space)?,
            inserted_values: space.array("inserted values", threads * room * words)?,
            served: Reduction::new("served", threads, space)?,
        })
    }
}

impl<const WORKLOAD: char> Ycsb<WORKLOAD> {
    /// Writes a record with the content derived from its key.
    fn write<M: Memory>(&self, m: &mut M, values: &Array<u64>, entry: impl Index, key: u64) {
        let content = [hash(key); LANES];
        for word in (0..self.words).step_by(LANES) {
            m.work(COPY_INSTRUCTIONS);
            let at: Loaded<usize> = Loaded::of(entry).map(|entry| entry * self.words + word);
            m.store_lanes(values, at, content);
        }
    }

    /// Reads a record; returns whether its content matches its key.
    fn read<M: Memory>(&self, m: &mut M, values: &Array<u64>, entry: Loaded<usize>, key: u64) -> bool {
        let content = [hash(key); LANES];
        let mut right = true;
        for word in (0..self.words).step_by(LANES) {
            m.work(COPY_INSTRUCTIONS);
            let found: [u64; LANES] = *m.load_lanes(values, entry.map(|entry| entry * self.words + word));
            right &= found == content;
        }
        right
    }

    /// Performs an operation on a record: one of the thread's own if the key is beyond the shared ones.
    fn request<M: Memory>(&self, m: &mut M, operation: Operation, key: u64, local: &mut Local) {
        let (found, values) = if key < self.records as u64 {
            (self.index.find(m, key), &self.values)
        } else {
            (self.inserted_index.find(m, local.thread, key), &self.inserted_values)
        };
        let Some(entry) = found else { return };
        let right = operation == Operation::Update || self.read(m, values, entry, key);
        if operation != Operation::Read {
            self.write(m, values, entry, key);
        }
        local.served += u64::from(right);
    }

    /// Reads up to `LONGEST_SCAN` records from a key: where keys are sorted, one after the other.
    fn scan<M: Memory>(&self, m: &mut M, local: &mut Local) {
        let first = self.draw(local);
        let last = (first + 1 + local.random.below(LONGEST_SCAN)).min(self.records as u64);
        if !self.index.is_sorted() {
            return (first..last).for_each(|key| self.request(m, Operation::Read, key, local));
        }
        let Some(entry) = self.index.find(m, first) else { return };
        for key in first..last {
            m.work(SCAN_INSTRUCTIONS);
            let right = self.read(m, &self.values, entry.map(|entry| entry + (key - first) as usize), key);
            local.served += u64::from(right);
        }
    }

    fn insert<M: Memory>(&self, m: &mut M, local: &mut Local) {
        let key = (self.records + local.inserted) as u64;
        let entry = self.inserted_index.insert(m, local.thread, local.inserted, key);
        self.write(m, &self.inserted_values, entry, key);
        local.inserted += 1;
        local.served += 1;
    }

    /// A key by popularity: for D the latest inserts are the most popular, otherwise keys are scattered.
    fn draw(&self, local: &mut Local) -> u64 {
        if WORKLOAD == 'd' {
            let newest = (self.records + local.inserted - 1) as u64;
            newest - self.popularity.rank(&mut local.random)
        } else {
            self.popularity.scrambled(&mut local.random)
        }
    }

    fn serve<M: Memory>(&self, m: &mut M, local: &mut Local) {
        let Mix { most, other, period } = mix(WORKLOAD);
        local.requests += 1;
        let operation = if local.requests.is_multiple_of(period) { other } else { most };
        m.work(self.request_instructions);
        match operation {
            Operation::Insert => self.insert(m, local),
            Operation::Scan => self.scan(m, local),
            _ => {
                let key = self.draw(local);
                self.request(m, operation, key, local);
            }
        }
    }
}

impl<const WORKLOAD: char> Workload for Ycsb<WORKLOAD> {
    type Step = Step;
    type Local = Local;

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let cleared = if self.index.is_sorted() { 0 } else { self.records };
        vec![
            Phase::new(Step::Load, self.records),
            Phase::new(Step::Clear, cleared),
            Phase::grouped(Step::Index, self.threads, self.records / self.threads),
            Phase::grouped(Step::ClearInserted, self.threads, self.room),
            Phase::new(Step::Serve, self.operations),
        ]
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Load | Step::Clear | Step::Index | Step::ClearInserted) {
            Stage::Initialisation
        } else {
            Stage::Region
        }
    }

    fn local(&self, thread: usize) -> Local {
        let random = Random::new(!self.seed, thread as u64);
        Local { thread, random, requests: 0, inserted: 0, served: 0 }
    }

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, local: &mut Local) {
        match step {
            Step::Load => self.write(m, &self.values, item, self.index.key(item)),
            Step::Clear => self.index.clear(m, item),
            Step::Index => self.index.add(m, item),
            Step::ClearInserted => self.inserted_index.clear(m, item),
            Step::Serve => self.serve(m, local),
        }
    }

    fn finish<M: Memory>(&self, m: &mut M, step: Step, local: &mut Local) {
        if let Step::Serve = step {
            self.served.put(m, local.thread, local.served as f64);
        }
    }

    /// Records found with correct content.
    fn result(&self) -> f64 {
        self.served.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Recorded, check};

    /// Runs one of the workloads; returns the records served, and its accesses.
    fn run<const WORKLOAD: char>(store: &str, operations: usize) -> (f64, Recorded) {
        let (program, recorded) = check::<Ycsb<WORKLOAD>>(&format!(
            "footprint_mib=4,operations={operations},threads=3,store={store}"
        ));
        (program.workload().result(), recorded)
    }

    fn serve<const WORKLOAD: char>(operations: usize) -> (f64, Recorded) {
        run::<WORKLOAD>("hash", operations)
    }

    #[test]
    fn every_request_finds_its_record() {
        for store in RecordIndex::STORES {
            assert_eq!(run::<'a'>(store, 3000).0, 3000.0);
            assert_eq!(run::<'b'>(store, 3000).0, 3000.0);
            assert_eq!(run::<'c'>(store, 3000).0, 3000.0);
            assert_eq!(run::<'d'>(store, 3000).0, 3000.0);
            assert_eq!(run::<'f'>(store, 3000).0, 3000.0);
            let scanned = run::<'e'>(store, 600).0 / 600.0;
            assert!((40.0..52.0).contains(&scanned), "{scanned} records a request");
        }
    }

    #[test]
    fn mixes_write_their_share() {
        let writes =
            |recorded: &Recorded| recorded.streams.iter().flatten().filter(|access| access.write).count();
        let reads_only = writes(&serve::<'c'>(6000).1);
        let share = |recorded: &Recorded| (writes(recorded) - reads_only) as f64 / (6000.0 * 32.0);
        assert!((share(&serve::<'a'>(6000).1) - 0.5).abs() < 0.01);
        assert!((share(&serve::<'b'>(6000).1) - 0.05).abs() < 0.01);
        assert!((share(&serve::<'f'>(6000).1) - 0.5).abs() < 0.01);
    }

    #[test]
    fn store_without_free_slots_is_refused() {
        let params = "footprint_mib=1,operations=1000000".parse().unwrap();
        let settings = Settings::new(&Ycsb::<'d'>::INFO, &params).unwrap();
        let error = Ycsb::<'d'>::new(&settings, 1, &mut Space::new(settings.page())).err().unwrap();
        assert!(error.to_string().contains("footprint_mib"));
    }
}
