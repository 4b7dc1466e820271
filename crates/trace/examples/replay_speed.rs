//! Measures the replay speed of traces: `cargo run --release -p memtide-trace --example replay_speed --
//! traces/*.parquet`.

use std::path::Path;
use std::time::Instant;

use memtide_core::{Batch, Program, Then, ThreadId};
use memtide_trace::{ReplayOptions, Trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let mut program = Trace::open(Path::new(&path))?.program(ReplayOptions::default())?;
        let (mut ready, mut waiting) = (vec![ThreadId(0)], Vec::new());
        let mut batch = Batch::default();
        let mut accesses = 0;
        while let Some(thread) = ready.pop() {
            program.next(thread, &mut batch)?;
            accesses += batch.accesses.len();
            match batch.then {
                Then::End => {}
                Then::Barrier => waiting.push(thread),
                Then::Spawn(started) | Then::Fork(started) => ready.extend([thread, started]),
                _ => ready.push(thread),
            }
            if ready.is_empty() {
                std::mem::swap(&mut ready, &mut waiting);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{path}: {accesses} accesses, {:.1} million a second", accesses as f64 / seconds / 1e6);
    }
    Ok(())
}
