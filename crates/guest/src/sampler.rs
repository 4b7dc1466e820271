//! Samples memory use over time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memtide_lab_protocol::agent::Sample;

use crate::counters;

const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(200);

/// Maximum number of samples; at the limit every second one is dropped and the interval doubles.
const MOST: usize = 1000;

/// Samples each node's memory use relative to the program's start, since the guest's files are in memory,
/// too. A sample costs about 50,000 instructions per node, so the interval grows with the run.
pub struct Sampler {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Starts sampling; time 0 is now.
    pub fn start() -> Sampler {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let files: Vec<PathBuf> = counters::folders().iter().map(|folder| folder.join("meminfo")).collect();
        let before: Vec<u64> = files.iter().map(|file| in_use_kib(file)).collect();
        Sampler { ended, thread: thread::spawn(move || samples(&files, &before, &until)) }
    }

    /// Returns the samples so far.
    pub fn end(self) -> Vec<Sample> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

fn in_use_kib(file: &Path) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    counters::kib(&text, "AnonPages:") + counters::kib(&text, "Shmem:")
}

fn samples(files: &[PathBuf], before: &[u64], ended: &AtomicBool) -> Vec<Sample> {
    let started = Instant::now();
    let mut samples = Vec::new();
    let mut pause = SHORTEST;
    let mut longest = LONGEST;
    loop {
        thread::park_timeout(pause);
        if ended.load(Ordering::Relaxed) {
            return samples;
        }
        let nodes_kib =
            files.iter().zip(before).map(|(file, before)| in_use_kib(file).saturating_sub(*before));
        let guest_ns = started.elapsed().as_nanos() as u64;
        samples.push(Sample { guest_ns, nodes_kib: nodes_kib.collect() });
        pause = (pause * 2).min(longest);
        if samples.len() == MOST {
            let mut number = 0;
            samples.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            longest *= 2;
        }
    }
}
