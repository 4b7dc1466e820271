//! Bandwidth: streams of loads and stores.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use memtide_core::{CpuId, NodeId};

use super::{MeasureError, pin};
use crate::sys::Words;

/// What each thread does with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Reads every word.
    Read,
    /// STREAM's triad, `a = b + 3 c`. Its traffic is counted as the memory sees it: `a` is read before it is written back,
    /// 32 bytes for the 24 that STREAM counts.
    Triad,
}

impl Kernel {
    fn arrays(self) -> usize {
        match self {
            Kernel::Read => 1,
            Kernel::Triad => 3,
        }
    }

    /// Bytes that move for each byte of one array.
    fn traffic(self) -> f64 {
        match self {
            Kernel::Read => 1.0,
            Kernel::Triad => 4.0,
        }
    }
}

/// Traffic of one thread on each CPU over `mib` MiB of a node each, in MB/s (10^6 bytes): that of the best of so many rounds,
/// as STREAM tells it, since the system's own work now and then takes part of one.
///
/// # Errors
/// If a CPU or the memory cannot be had.
pub fn bandwidth_mbps(
    cpus: &[CpuId],
    node: NodeId,
    mib: usize,
    rounds: u32,
    kernel: Kernel,
) -> Result<f64, MeasureError> {
    let barrier = Barrier::new(cpus.len());
    let took: Result<Vec<Vec<Duration>>, MeasureError> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let barrier = &barrier;
                scope.spawn(move || thread(cpu, node, mib, rounds, kernel, barrier))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic")).collect()
    });
    let took = took?;
    let longest = |round: usize| took.iter().map(|thread| thread[round]).max().unwrap_or_default();
    let best = (0..rounds as usize).map(longest).min().unwrap_or_default();
    let bytes = ((mib << 20) / kernel.arrays()) as f64 * kernel.traffic() * cpus.len() as f64;
    Ok(bytes / 1e6 / best.as_secs_f64())
}

/// The times of its rounds, each of which all threads begin together.
fn thread(
    cpu: CpuId,
    node: NodeId,
    mib: usize,
    rounds: u32,
    kernel: Kernel,
    barrier: &Barrier,
) -> Result<Vec<Duration>, MeasureError> {
    let memory = pin(cpu).and_then(|()| {
        Words::on_node(mib << 20, node).map_err(|source| MeasureError::Memory { node, mib, source })
    });
    let mut warm = memory.map(|mut words| {
        run(&mut words, kernel);
        words
    });
    let round = |_| {
        // All threads wait for each other, those that failed as well.
        barrier.wait();
        let start = Instant::now();
        if let Ok(words) = &mut warm {
            run(words, kernel);
        }
        start.elapsed()
    };
    let took = (0..rounds).map(round).collect();
    warm.map(|_| took)
}

fn run(words: &mut [u64], kernel: Kernel) {
    match kernel {
        Kernel::Read => {
            black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        }
        Kernel::Triad => {
            let (a, rest) = words.split_at_mut(words.len() / 3);
            let (b, c) = rest.split_at(a.len());
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b.wrapping_add(c.wrapping_mul(3));
            }
            black_box(a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kernels_move_data() {
        for kernel in [Kernel::Read, Kernel::Triad] {
            let mbps = bandwidth_mbps(&[CpuId(0)], NodeId(0), 24, 2, kernel).unwrap();
            assert!(mbps > 10.0 && mbps < 1e7, "{kernel:?}: {mbps} MB/s");
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_and_no_hang() {
        let error = bandwidth_mbps(&[CpuId(0), CpuId(900)], NodeId(0), 1, 1, Kernel::Read).unwrap_err();
        assert!(error.to_string().contains("CPU 900"), "{error}");
    }
}
