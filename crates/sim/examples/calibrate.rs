//! For each profile of a measured bandwidth, finds the `instructions_per_line` with which it draws its
//! bandwidth, alone on its machine: `cargo run --release -p memtide-sim --example calibrate [PROFILE..]`.
//! The results go into `crates/workloads/profiles/*.toml`.

#[path = "../tests/support/profiles.rs"]
mod support;

use memtide_workloads::{Bandwidth, Profile, profiles};
use support::{Drawn, SEED, draw};

/// Maximum relative error of the bandwidth.
const TOLERANCE: f64 = 0.005;

const STEPS: usize = 12;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen = profiles().iter().filter(|p| wanted.is_empty() || wanted.contains(&p.name));
    let chosen = chosen.filter_map(|profile| Some((profile, profile.bandwidth?)));
    println!("{:20} {:>21} {:>8} {:>8}", "profile", "instructions_per_line", "reads", "writes");
    for (profile, bandwidth) in chosen {
        let (found, drawn) = solve(profile, bandwidth);
        let share = |drawn: f64, wanted: f64| 100.0 * drawn / wanted;
        let reads = share(drawn.reads, bandwidth.read_mbps);
        let writes = share(drawn.writes, bandwidth.write_mbps);
        println!("{:20} {found:21.1} {reads:6.1} % {writes:6.1} %", profile.name);
    }
}

/// Secant steps on the logarithms of intensity and bandwidth.
fn solve(profile: &Profile, bandwidth: Bandwidth) -> (f64, Drawn) {
    let off =
        |drawn: Drawn| ((drawn.reads + drawn.writes) / (bandwidth.read_mbps + bandwidth.write_mbps)).ln();
    let mut slope = -1.0;
    let mut at = profile.instructions_per_line.ln();
    let mut drawn = draw(profile, at.exp(), SEED);
    for _ in 0..STEPS {
        if off(drawn).abs() < TOLERANCE {
            break;
        }
        let next = (at - off(drawn) / slope).max(0.0);
        let found = draw(profile, next.exp(), SEED);
        if next != at {
            slope = ((off(found) - off(drawn)) / (next - at)).clamp(-2.0, -0.2);
        }
        (at, drawn) = (next, found);
    }
    ((at.exp() * 10.0).round() / 10.0, drawn)
}
