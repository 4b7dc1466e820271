//! Monitors, and what else tells of a process's pages.

use std::fs::{self, File};
use std::io;

use super::{Finding, Use, why};
use crate::monitors::{self, Usable};
use crate::sys;

/// Looks for monitors; starts none.
pub fn examine() -> Vec<Finding> {
    let usable = monitors::usable();
    let known = |name: &str| {
        let found: Option<&Usable> = usable.iter().find(|usable| usable.name == name);
        found.map_or(Err("not known".to_owned()), |found| found.why_not.clone().map_or(Ok(()), Err))
    };
    let scanned = File::open("/proc/self/pagemap").and_then(|pagemap| sys::scan_huge(&pagemap, own_page()));
    vec![
        damon(known("damon"), known("smaps").is_ok()),
        smaps(known("smaps")),
        soft_dirty(known("soft-dirty")),
        scan(scanned),
        idle_pages(fs::metadata("/sys/kernel/mm/page_idle/bitmap").is_ok()),
    ]
}

/// The number of a page of this process.
fn own_page() -> u64 {
    let word = std::hint::black_box(1u64);
    &raw const word as u64 >> 12
}

fn damon(usable: Result<(), String>, smaps: bool) -> Finding {
    let subject = "DAMON";
    let Err(why) = usable else {
        return Finding::good(subject, "free", "the daemon knows by it which regions are hot");
    };
    let quoted = why.split('`').nth(1).map(str::to_owned);
    let mend = match quoted {
        Some(command) if why.contains("somebody") => {
            format!("memtide status, if `memtide daemon` runs; else: {command}")
        }
        Some(command) => command,
        None if why.contains("root") => "sudo memtide daemon".to_owned(),
        None => {
            "a kernel with CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS; mount -t sysfs sysfs /sys".to_owned()
        }
    };
    let found = why.split("; end it").next().unwrap_or_default();
    let finding = if smaps {
        Finding::warning(
            subject,
            found,
            "the daemon goes by smaps instead, which tells of whole mappings alone",
        )
    } else {
        Finding::missing(subject, found, "the daemon cannot know which memory is hot", &[Use::Daemon])
    };
    finding.mend(mend)
}

fn smaps(usable: Result<(), String>) -> Finding {
    let subject = "smaps, clear_refs";
    match usable {
        Ok(()) => Finding::good(subject, "there", "in DAMON's place where that cannot be used"),
        Err(why) => Finding::note(subject, why, "without DAMON the daemon has no other monitor"),
    }
}

fn soft_dirty(usable: Result<(), String>) -> Finding {
    let subject = "soft-dirty bits";
    match usable {
        Ok(()) => {
            Finding::good(subject, "kept", "writes are told from reads, for policies that ask for that")
        }
        Err(why) => Finding::note(subject, why, "writes cannot be told from reads")
            .mend("a kernel with CONFIG_MEM_SOFT_DIRTY"),
    }
}

fn scan(tried: io::Result<bool>) -> Finding {
    let subject = "PAGEMAP_SCAN";
    match tried {
        Ok(_) => Finding::good(subject, "works", "the daemon sees which pages are huge"),
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Finding::warning(
            subject,
            "this kernel has none",
            "the daemon takes huge pages for base pages: it asks to move each of their 512",
        )
        .mend("Linux 6.7 or later"),
        Err(error) => Finding::warning(subject, why(&error), "the daemon takes huge pages for base pages"),
    }
}

fn idle_pages(there: bool) -> Finding {
    let subject = "idle page tracking";
    match there {
        true => Finding::note(subject, "there", "not used: DAMON needs less for the same"),
        false => Finding::note(subject, "not there", "not needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn who_holds_damon_is_told_with_the_remedy() {
        let stat = "the kernel's damon_stat uses DAMON; end it by `echo N > /sys/module/damon_stat/parameters/enabled`";
        let other =
            "somebody else uses DAMON; end it by `echo off > /sys/kernel/mm/damon/admin/kdamonds/0/state`";
        for (why, mend) in [
            (stat, "echo N > /sys/module/damon_stat/parameters/enabled"),
            (other, "kdamonds/0/state"),
            ("DAMON needs root", "sudo"),
            ("this kernel has no DAMON", "CONFIG_DAMON_SYSFS"),
        ] {
            let found = damon(Err(why.to_owned()), true);
            assert!(found.state == State::Warning && found.stops.is_empty(), "{found:?}");
            assert!(found.mend.as_deref().is_some_and(|how| how.contains(mend)), "{found:?}");
            assert_eq!(damon(Err(why.to_owned()), false).stops, [Use::Daemon]);
        }
        assert_eq!(damon(Ok(()), false).state, State::Good);
    }

    #[test]
    fn what_is_only_missed_is_a_note() {
        assert_eq!(soft_dirty(Ok(())).state, State::Good);
        assert_eq!(soft_dirty(Err("no".to_owned())).state, State::Note);
        assert_eq!(smaps(Err("no".to_owned())).state, State::Note);
    }

    #[test]
    fn a_kernel_that_is_too_old_is_told() {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        assert!(scan(error(libc::ENOTTY)).mend.is_some_and(|how| how.contains("6.7")));
        assert_eq!(scan(Ok(false)).state, State::Good);
    }
}
