//! Monitors and other sources of information on a process's pages.

use std::fs::{self, File};
use std::io;

use super::{Finding, Use, why};
use crate::sensors::node_traffic::NodeTraffic;
use crate::sensors::regions::{self, Damon, Remedy, Unusable};
use crate::sys::pagemap;

/// Checks for monitors without starting one.
pub fn examine() -> Vec<Finding> {
    let usable = regions::usable();
    let why_not = |name: &str| usable.iter().find(|usable| usable.name == name)?.why_not.clone();
    let scanned =
        File::open("/proc/self/pagemap").and_then(|pagemap| pagemap::scan_huge(&pagemap, own_page()));
    vec![
        Damon::daemon().map_or_else(|| damon(why_not("damon"), why_not("smaps").is_none()), of_daemon),
        smaps(why_not("smaps")),
        soft_dirty(why_not("soft-dirty")),
        scan(scanned),
        idle_pages(fs::metadata("/sys/kernel/mm/page_idle/bitmap").is_ok()),
        traffic(NodeTraffic::open()),
    ]
}

/// Page number of a page of this process.
fn own_page() -> u64 {
    let word = std::hint::black_box(1u64);
    &raw const word as u64 >> 12
}

fn of_daemon(pid: i32) -> Finding {
    let found = format!("memtide's daemon, process {pid}, uses it");
    Finding::good("DAMON", found, "that daemon uses it to find hot regions; another one would use smaps")
}

fn damon(unusable: Option<Unusable>, smaps: bool) -> Finding {
    let subject = "DAMON";
    let Some(Unusable { why, remedy }) = unusable else {
        return Finding::good(subject, "free", "the daemon uses it to find hot regions");
    };
    let finding = if smaps {
        Finding::warning(subject, why, "the daemon uses smaps instead, which reports whole mappings only")
    } else {
        Finding::missing(subject, why, "the daemon cannot find hot memory", &[Use::Daemon])
    };
    finding.remedy(match remedy {
        Some(Remedy::Command(command)) => command,
        Some(Remedy::Release { owner, stops, command }) => {
            let without = if smaps { "nothing, as the daemon works without; or " } else { "" };
            format!(
                "{without}have its user end it ({owner}); last, if nobody needs it (this stops {stops}): \
                 {command}"
            )
        }
        Some(Remedy::Root) => "sudo memtide daemon".to_owned(),
        None => "a kernel with DAMON; mount -t sysfs sysfs /sys".to_owned(),
    })
}

fn smaps(unusable: Option<Unusable>) -> Finding {
    let subject = "smaps, clear_refs";
    match unusable {
        None => Finding::good(subject, "there", "replaces DAMON where that is unavailable"),
        Some(why) => Finding::note(subject, why.why, "the daemon has no monitor besides DAMON"),
    }
}

fn soft_dirty(unusable: Option<Unusable>) -> Finding {
    let subject = "soft-dirty bits";
    match unusable {
        None => Finding::good(
            subject,
            "kept",
            "writes are distinguished from reads, for policies that request it",
        ),
        Some(why) => Finding::note(subject, why.why, "writes cannot be distinguished from reads")
            .remedy("a kernel with CONFIG_MEM_SOFT_DIRTY"),
    }
}

fn scan(tried: io::Result<bool>) -> Finding {
    let subject = "PAGEMAP_SCAN";
    match tried {
        Ok(_) => Finding::good(subject, "works", "the daemon detects huge pages"),
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Finding::warning(
            subject,
            "this kernel has none",
            "the daemon takes huge pages for base pages and moves each of their 512",
        )
        .remedy("Linux 6.7 or later"),
        Err(error) => Finding::warning(subject, why(&error), "the daemon takes huge pages for base pages"),
    }
}

fn traffic(found: io::Result<NodeTraffic>) -> Finding {
    let subject = "traffic of nodes";
    match found {
        Ok(traffic) => Finding::good(subject, traffic.name(), "the daemon prints and records it"),
        Err(error) => Finding::note(subject, error.to_string(), "the daemon does not have it"),
    }
}

fn idle_pages(there: bool) -> Finding {
    let subject = "idle page tracking";
    match there {
        true => Finding::note(subject, "there", "not used: DAMON is cheaper"),
        false => Finding::note(subject, "not there", "not needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn unusable(remedy: Option<Remedy>) -> Option<Unusable> {
        Some(Unusable { why: "taken".to_owned(), remedy })
    }

    #[test]
    fn damon_obstacle_is_reported_with_remedy() {
        let release = Remedy::Release {
            owner: "some".to_owned(),
            stops: "their work",
            command: "echo off > x".to_owned(),
        };
        let steps = "nothing, as the daemon works without; or have its user end it (some); \
            last, if nobody needs it (this stops their work): echo off > x";
        let without_smaps = damon(unusable(Some(release.clone())), false).remedy.expect("a remedy");
        assert!(without_smaps.starts_with("have its user end it"), "{without_smaps}");
        for (known, remedy) in [
            (Some(release), steps),
            (Some(Remedy::Root), "sudo memtide daemon"),
            (None, "a kernel with DAMON"),
        ] {
            let found = damon(unusable(known.clone()), true);
            assert!(found.state == State::Warning && found.stops.is_empty(), "{found:?}");
            assert!(found.remedy.as_deref().is_some_and(|how| how.starts_with(remedy)), "{found:?}");
            assert_eq!(damon(unusable(known), false).stops, [Use::Daemon]);
        }
        assert_eq!(damon(None, false).state, State::Good);
    }

    #[test]
    fn missing_optional_feature_is_a_note() {
        assert_eq!(soft_dirty(None).state, State::Good);
        assert_eq!([soft_dirty(unusable(None)).state, smaps(unusable(None)).state], [State::Note; 2]);
    }

    #[test]
    fn old_kernel_is_reported() {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        assert!(scan(error(libc::ENOTTY)).remedy.is_some_and(|how| how.contains("6.7")));
        assert_eq!(scan(Ok(false)).state, State::Good);
    }
}
