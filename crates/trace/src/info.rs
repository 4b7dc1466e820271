//! Statistics of a trace.

use std::collections::HashMap;

use memtide_core::{Mapping, Mark, PAGE_BYTES};
use serde::Serialize;

use crate::columns::{Columns, Kind, is_access, mark, sum};
use crate::program::mapping;
use crate::{Trace, TraceError};

/// Statistics of a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceInfo {
    /// The program's command line.
    pub program: String,
    /// The recorded instruction set.
    pub arch: String,
    /// The recorder.
    pub recorder: String,
    /// File size in bytes.
    pub file_bytes: u64,
    /// Instructions of the whole program per epoch; 0 if epochs count accesses.
    pub epoch_instructions: u64,
    /// Number of epochs.
    pub epochs: u32,
    /// Number of processes, that is, address spaces.
    pub processes: u32,
    /// Number of threads of all processes.
    pub threads: u32,
    /// Instructions retired by all threads.
    pub instructions: u64,
    /// Marks that begin a region of interest; if 0, the whole trace is one.
    pub regions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Non-temporal stores among them.
    pub non_temporal_writes: u64,
    /// Bytes loaded.
    pub read_bytes: u64,
    /// Bytes stored.
    pub written_bytes: u64,
    /// Pages (4 KiB) accessed.
    pub footprint_pages: u64,
    /// Pages stored to.
    pub written_pages: u64,
    /// Accesses whose address depends on an earlier load that may still have been in flight.
    pub dependent_accesses: u64,
    /// Share of accesses that are dependent, from 0 to 1.
    pub dependent_share: f64,
}

impl Trace {
    /// Reads the whole trace, checks it, and computes its statistics. Calls `watch` with the share done; it
    /// stops if that returns false.
    ///
    /// # Errors
    /// If the trace is damaged anywhere, or `watch` stops it.
    pub fn info(&self, watch: &mut dyn FnMut(f64) -> bool) -> Result<TraceInfo, TraceError> {
        let mut scan = Scan::new(self);
        let groups = self.groups().len();
        let mut columns = Columns::default();
        for index in 0..groups {
            self.load(index, &mut columns)?;
            (0..columns.len())
                .try_for_each(|row| scan.row(&columns, row))
                .map_err(|what| TraceError::damaged(self.path(), format!("row group {index}: {what}")))?;
            if !watch((index + 1) as f64 / groups as f64) {
                return Err(TraceError::Interrupted);
            }
        }
        scan.finish(self)
    }

    /// The mappings of the first process, in the order in which they are made. Reads the whole trace, and
    /// calls `watch` with the share done; it stops if that returns false.
    ///
    /// # Errors
    /// As [`Trace::info`].
    pub fn mappings(&self, watch: &mut dyn FnMut(f64) -> bool) -> Result<Vec<Mapping>, TraceError> {
        let mut is_child = vec![false; self.totals().threads as usize];
        let (mut found, mut columns) = (Vec::new(), Columns::default());
        let groups = self.groups().len();
        for index in 0..groups {
            self.load(index, &mut columns)?;
            for row in (0..columns.len()).filter(|&row| !is_access(columns.kind[row])) {
                let (thread, address) = (columns.thread[row] as usize, columns.address[row] as u64);
                match Kind::from_number(columns.kind[row]) {
                    Some(Kind::Map) if !is_child[thread] => found.push(mapping(&columns, row)),
                    Some(Kind::Spawn) => is_child[address as usize] = is_child[thread],
                    Some(Kind::Fork) => is_child[address as usize] = true,
                    _ => {}
                }
            }
            if !watch((index + 1) as f64 / groups as f64) {
                return Err(TraceError::Interrupted);
            }
        }
        Ok(found)
    }
}

/// Pages per word of bits.
const BLOCK_PAGES: u64 = 64;

/// Maximum blocks of pages that are counted: less than 1 GiB of memory, for up to 2 TiB.
const MAX_BLOCKS: usize = 1 << 23;

struct Scan {
    info: TraceInfo,
    marks: u64,
    /// Each thread's address space and instructions.
    threads: Vec<(u32, u64)>,
    /// Bits of pages accessed and of pages stored to, by address space and [`BLOCK_PAGES`].
    pages: HashMap<(u32, u64), [u64; 2]>,
    /// The last page, and whether it was written: most accesses need no lookup.
    last: Option<(u32, u64, bool)>,
}

impl Scan {
    fn new(trace: &Trace) -> Scan {
        let (header, totals) = (trace.header(), trace.totals());
        let info = TraceInfo {
            program: header.program.clone(),
            arch: header.arch.clone(),
            recorder: header.recorder.clone(),
            file_bytes: trace.bytes(),
            epoch_instructions: header.epoch_instructions,
            epochs: totals.epochs,
            processes: 1,
            threads: totals.threads,
            ..TraceInfo::default()
        };
        let threads = vec![(0, 0); totals.threads as usize];
        Scan { info, marks: 0, threads, pages: HashMap::new(), last: None }
    }

    fn row(&mut self, columns: &Columns, row: usize) -> Result<(), &'static str> {
        let (space, retired) = &mut self.threads[columns.thread[row] as usize];
        let instructions = columns.instructions[row] as u64;
        if instructions < *retired {
            return Err("a thread's instruction count falls");
        }
        *retired = instructions;
        let space = *space;
        let address = columns.address[row] as u64;
        match Kind::from_number(columns.kind[row]) {
            Some(kind @ (Kind::Access | Kind::NonTemporalStore)) => {
                self.info.non_temporal_writes += u64::from(kind == Kind::NonTemporalStore);
                self.access(columns, row, space, address);
                if self.pages.len() > MAX_BLOCKS {
                    return Err("it accesses more than 8388608 separate blocks of 256 KiB");
                }
            }
            Some(Kind::Spawn) => self.threads[address as usize].0 = space,
            Some(Kind::Fork) => {
                self.threads[address as usize].0 = self.info.processes;
                self.info.processes += 1;
            }
            Some(Kind::Mark) => {
                self.marks += 1;
                self.info.regions += u64::from(mark(address) == Some(Mark::Begin));
            }
            _ => {}
        }
        Ok(())
    }

    fn access(&mut self, columns: &Columns, row: usize, space: u32, address: u64) {
        let (size, write) = (columns.size[row] as u64, columns.write[row]);
        let info = &mut self.info;
        info.accesses += 1;
        info.dependent_accesses += u64::from(columns.producer[row] > 0);
        let (count, bytes) = match write {
            true => (&mut info.writes, &mut info.written_bytes),
            false => (&mut info.reads, &mut info.read_bytes),
        };
        *count += 1;
        *bytes += size;
        for page in address / PAGE_BYTES..=address.saturating_add(size - 1) / PAGE_BYTES {
            if self.last == Some((space, page, write)) {
                continue;
            }
            self.last = Some((space, page, write));
            let block = self.pages.entry((space, page / BLOCK_PAGES)).or_default();
            let bit = 1 << (page % BLOCK_PAGES);
            block[0] |= bit;
            block[1] |= if write { bit } else { 0 };
        }
    }

    fn finish(mut self, trace: &Trace) -> Result<TraceInfo, TraceError> {
        let instructions = trace.totals().instructions;
        if sum(self.threads.iter().map(|&(_, retired)| retired)) != Some(instructions) {
            return Err(TraceError::damaged(trace.path(), "its instructions do not add up"));
        }
        if (self.marks, self.info.regions) != (trace.totals().marks, trace.totals().regions) {
            return Err(TraceError::damaged(trace.path(), "its marks do not add up"));
        }
        if self.info.non_temporal_writes != trace.totals().non_temporal_stores {
            return Err(TraceError::damaged(trace.path(), "its non-temporal stores do not add up"));
        }
        self.info.instructions = instructions;
        let count =
            |which: usize| self.pages.values().map(|block| u64::from(block[which].count_ones())).sum();
        self.info.footprint_pages = count(0);
        self.info.written_pages = count(1);
        self.info.dependent_share = self.info.dependent_accesses as f64 / self.info.accesses.max(1) as f64;
        Ok(self.info)
    }
}
