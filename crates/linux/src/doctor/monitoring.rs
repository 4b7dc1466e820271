//! Monitors, and who else uses them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use super::{Finding, Use, text, why};
use crate::sys;

/// Modules of the kernel that use DAMON by themselves, and then let nobody else.
const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Looks for monitors; starts none.
pub fn examine() -> Vec<Finding> {
    let running = |module: &&str| {
        let enabled = text(&format!("/sys/module/{module}/parameters/enabled"));
        enabled.is_ok_and(|enabled| enabled == "Y")
    };
    let idle = fs::metadata("/sys/kernel/mm/page_idle/bitmap").is_ok();
    vec![
        damon(in_use(), MODULES.into_iter().find(running)),
        scan(File::open("/proc/self/pagemap").and_then(|pagemap| sys::scan_huge(&pagemap, own_page()))),
        soft_dirty(pagemap_entry()),
        idle_pages(idle),
    ]
}

/// The number of a page of this process that was written to.
fn own_page() -> u64 {
    let word = std::hint::black_box(1u64);
    &raw const word as u64 >> 12
}

fn pagemap_entry() -> io::Result<u64> {
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, own_page() * 8)?;
    Ok(u64::from_ne_bytes(entry))
}

/// Whether somebody uses DAMON's one interface for user space.
fn in_use() -> io::Result<bool> {
    let count: u32 = text(&format!("{KDAMONDS}/nr_kdamonds"))?.parse().map_err(io::Error::other)?;
    Ok((0..count).any(|number| text(&format!("{KDAMONDS}/{number}/state")).is_ok_and(|state| state == "on")))
}

fn damon(in_use: io::Result<bool>, module: Option<&str>) -> Finding {
    let subject = "DAMON";
    let missing = |found: String, mend: &str| {
        let means = "the daemon cannot know which memory is hot";
        Finding::missing(subject, found, means, &[Use::Daemon]).mend(mend)
    };
    match (in_use, module) {
        (Ok(false), None) => Finding::good(subject, "free", "the daemon knows which memory is hot by it"),
        (Ok(false), Some(module)) => missing(
            format!("in use by {module}"),
            &format!("echo N > /sys/module/{module}/parameters/enabled"),
        ),
        (Ok(true), _) => missing(
            "in use: by `memtide daemon`, if one runs, else by somebody else".to_owned(),
            "memtide status; or: echo off > /sys/kernel/mm/damon/admin/kdamonds/0/state",
        ),
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
            missing("root's alone".to_owned(), "sudo memtide daemon")
        }
        (Err(error), _) => missing(
            why(&error),
            "a kernel with CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS; mount -t sysfs sysfs /sys",
        ),
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

fn soft_dirty(entry: io::Result<u64>) -> Finding {
    const SOFT_DIRTY: u64 = 1 << 55;
    let subject = "soft-dirty bits";
    match entry {
        Ok(entry) if entry & SOFT_DIRTY != 0 => {
            Finding::good(subject, "kept", "writes can be told from reads")
        }
        Ok(_) => Finding::note(subject, "not kept", "writes cannot be told from reads by them")
            .mend("a kernel with CONFIG_MEM_SOFT_DIRTY"),
        Err(error) => Finding::note(subject, why(&error), "writes cannot be told from reads by them")
            .mend("mount -t proc proc /proc; a kernel with CONFIG_PROC_PAGE_MONITOR"),
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
        let error = |number| Err(io::Error::from_raw_os_error(number));
        for (found, mend) in [
            (damon(Ok(false), Some("damon_stat")), "echo N > /sys/module/damon_stat/parameters/enabled"),
            (damon(Ok(true), None), "kdamonds/0/state"),
            (damon(error(libc::EACCES), None), "sudo"),
            (damon(error(libc::ENOENT), None), "CONFIG_DAMON_SYSFS"),
        ] {
            assert_eq!(found.stops, [Use::Daemon]);
            assert!(found.mend.as_deref().is_some_and(|how| how.contains(mend)), "{found:?}");
        }
        assert_eq!(damon(Ok(false), None).state, State::Good);
    }

    #[test]
    fn bits_of_the_page_map_are_read() {
        assert_eq!(soft_dirty(Ok(1 << 55 | 1 << 63)).state, State::Good);
        assert_eq!(soft_dirty(Ok(1 << 63)).state, State::Note);
        let error = |number| Err(io::Error::from_raw_os_error(number));
        assert!(scan(error(libc::ENOTTY)).mend.is_some_and(|how| how.contains("6.7")));
        assert_eq!(scan(Ok(false)).state, State::Good);
    }

    #[test]
    fn a_page_of_this_process_is_in_memory() {
        assert!(pagemap_entry().expect("a page map") >> 63 == 1);
    }
}
