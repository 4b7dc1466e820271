//! Each profile, alone on its paper's machine, draws the bandwidth that the paper reports for the program.

#[path = "support/profiles.rs"]
mod support;

use std::sync::Mutex;
use std::thread;

use memtide_workloads::profiles;
use support::{SEED, draw};

const TOLERANCE: f64 = 0.05;

#[test]
fn every_profile_draws_its_bandwidth() {
    let measured = profiles().iter().filter_map(|profile| Some((profile, profile.bandwidth?)));
    let left = Mutex::new(measured);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((profile, bandwidth)) = left.lock().unwrap().next() else { return };
                    let drawn = draw(profile, profile.instructions_per_line, SEED);
                    let far = |drawn: f64, wanted: f64| (drawn / wanted - 1.0).abs() > TOLERANCE;
                    if far(drawn.reads, bandwidth.read_mbps) || far(drawn.writes, bandwidth.write_mbps) {
                        wrong.lock().unwrap().push(format!(
                            "{}: {drawn:.1?}, the table has {} and {}",
                            profile.name, bandwidth.read_mbps, bandwidth.write_mbps
                        ));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
