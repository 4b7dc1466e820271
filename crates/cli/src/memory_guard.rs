//! Ends a simulation that would use up the system's memory.

use std::process::exit;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use procfs::{Current, Meminfo, WithCurrentSystemInfo};

/// Interval of looking at the memory: a run allocates at most some 100 MiB in it.
const INTERVAL: Duration = Duration::from_millis(50);

/// Below this share of the system's memory, programs lose their code from memory, and all of them crawl.
const AVAILABLE_MIN: f64 = 0.05;

/// A process with less than this share of the system's memory is not the cause.
const OWN_MIN: f64 = 0.25;

/// Watches memory from now on, in a thread. Ends the process with an error before this process uses up the
/// system's memory; nothing may be lost by that.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            while let Some([total, available, own]) = sizes() {
                if let Some(why) = shortage(total, available, own) {
                    message!("memtide: error: {why}");
                    exit(1);
                }
                thread::sleep(INTERVAL);
            }
        });
    });
}

/// Bytes of the system's memory, of what is available, and of what this process has; `None` without procfs.
fn sizes() -> Option<[u64; 3]> {
    let memory = Meminfo::current().ok()?;
    let own = procfs::process::Process::myself().and_then(|me| me.stat()).ok()?;
    Some([memory.mem_total, memory.mem_available?, own.rss_bytes().get()])
}

fn shortage(total: u64, available: u64, own: u64) -> Option<String> {
    let is_short = (available as f64) < AVAILABLE_MIN * total as f64 && own as f64 > OWN_MIN * total as f64;
    is_short.then(|| {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        format!(
            "the programs need more memory than this system has: {:.1} of {:.1} GiB are in use by this run, \
             {:.1} GiB are left; nothing was written; use fewer --copies, or workloads with a smaller \
             footprint_mib",
            gib(own),
            gib(total),
            gib(available)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn shortage_is_reported_when_own_memory_causes_it() {
        let why = shortage(24 * GIB, GIB, 20 * GIB).expect("a shortage");
        assert!(why.contains("20.0 of 24.0 GiB") && why.contains("--copies"), "{why}");
        assert_eq!(shortage(24 * GIB, 2 * GIB, 20 * GIB), None, "enough is left");
        assert_eq!(shortage(24 * GIB, GIB, GIB), None, "other programs have it");
    }

    #[test]
    fn sizes_of_this_system_are_plausible() {
        let [total, available, own] = sizes().expect("procfs");
        assert!(own > 0 && own < total && available <= total, "{total} {available} {own}");
    }
}
