//! Measures how fast each workload returns its accesses: millions per second of host time, threads in turn.
//!
//! `cargo run --release -p memtide-workloads --example speed [NAME [KEY=VALUE,..]]`

use std::time::{Duration, Instant};

use memtide_core::{Batch, Then, ThreadId};
use memtide_workloads::{Params, WorkloadError, list, program};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let params: Params = arguments.next().unwrap_or_default().parse()?;
    println!(
        "{:<20} {:>12} {:>10} {:>10} {:>9} {:>8}",
        "workload", "accesses", "M/s", "set-up s", "writes %", "dep. %"
    );
    for info in list() {
        if name.as_ref().is_none_or(|name| name == info.name) {
            measure(info.name, &params)?;
        }
    }
    Ok(())
}

fn measure(name: &str, params: &Params) -> Result<(), WorkloadError> {
    let start = Instant::now();
    let mut program = program(name, params, 1)?;
    let set_up = start.elapsed();
    let mut runnable: Vec<_> =
        (0..program.threads()).map(|thread| (ThreadId::from(thread), thread == 0)).collect();
    let mut batch = Batch::default();
    let (mut accesses, mut writes, mut dependent) = (0_usize, 0, 0);
    let mut spent = Duration::ZERO;
    while !runnable.is_empty() {
        let mut spawned = Vec::new();
        runnable.retain_mut(|(thread, runs)| {
            while *runs {
                let start = Instant::now();
                program.next(*thread, &mut batch).expect("asked in order");
                spent += start.elapsed();
                accesses += batch.accesses.len();
                writes += batch.accesses.iter().filter(|access| access.write).count();
                dependent += batch.accesses.iter().filter(|access| access.producer > 0).count();
                match batch.then {
                    Then::Spawn(child) => spawned.push(child),
                    Then::Barrier => *runs = false,
                    Then::End => return false,
                    _ => {}
                }
            }
            true
        });
        let at_barrier = runnable.iter().all(|(thread, runs)| !runs && !spawned.contains(thread));
        for (thread, runs) in &mut runnable {
            *runs |= at_barrier || spawned.contains(thread);
        }
    }
    let percent = |part: usize| part as f64 * 100.0 / accesses as f64;
    println!(
        "{name:<20} {accesses:>12} {:>10.1} {:>10.2} {:>9.1} {:>8.1}",
        accesses as f64 / 1e6 / spent.as_secs_f64(),
        set_up.as_secs_f64(),
        percent(writes),
        percent(dependent),
    );
    Ok(())
}
