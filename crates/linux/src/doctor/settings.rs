//! Kernel settings that migrate or pin pages.

use super::{Finding, State, text};
use crate::sys::transparent_huge_pages;

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// What the kernel's NUMA balancing does to a daemon's moves, and how to switch it off; `None` if it is off.
pub fn numa_balancing_warning() -> Option<String> {
    warning(numa_balancing(text(NUMA_BALANCING).ok().as_deref()))
}

fn warning(finding: Finding) -> Option<String> {
    let Finding { subject, found, state, means, remedy, .. } = finding;
    let remedy = remedy.unwrap_or_default();
    (state == State::Warning).then(|| format!("{subject} is {found}: {means}; to switch it off: {remedy}"))
}

/// Checks each setting.
pub fn examine() -> Vec<Finding> {
    let read = |file: &str| text(file).ok();
    vec![
        kernel(read("/proc/sys/kernel/osrelease").as_deref()),
        numa_balancing(read(NUMA_BALANCING).as_deref()),
        demotion(read("/sys/kernel/mm/numa/demotion_enabled").as_deref()),
        huge_pages(read("/sys/kernel/mm/transparent_hugepage/enabled").as_deref()),
        zone_reclaim(read("/proc/sys/vm/zone_reclaim_mode").as_deref()),
        swap(read("/proc/swaps").as_deref()),
    ]
}

fn kernel(release: Option<&str>) -> Finding {
    let subject = "kernel";
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok());
    let parts = release.map(|release| {
        let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
        (number(parts.next()).unwrap_or(0), number(parts.next()).unwrap_or(0))
    });
    match (release, parts) {
        (Some(release), Some(version)) if version >= (6, 12) => {
            Finding::good(subject, format!("Linux {release}"), "memtide is tested on 6.12 and later")
        }
        (release, _) => Finding::note(
            subject,
            format!("Linux {}", release.unwrap_or("of unknown version")),
            "memtide is tested on 6.12 and later; other rows list what this one lacks",
        ),
    }
}

fn numa_balancing(value: Option<&str>) -> Finding {
    let subject = "kernel.numa_balancing";
    match value {
        None => Finding::good(subject, "not there", "the kernel does not migrate pages by hint faults"),
        Some("0") => Finding::good(subject, "0", "the kernel does not migrate pages by hint faults"),
        Some(value) => Finding::warning(
            subject,
            value,
            "the kernel migrates pages of programs without a memory policy, against the daemon",
        )
        .remedy("sysctl kernel.numa_balancing=0"),
    }
}

fn demotion(value: Option<&str>) -> Finding {
    let subject = "demotion_enabled";
    match value {
        Some("true" | "1") => Finding::warning(
            subject,
            "true",
            "the kernel demotes pages of full nodes, independently of the daemon's policy",
        )
        .remedy("echo 0 > /sys/kernel/mm/numa/demotion_enabled"),
        value => Finding::good(subject, value.unwrap_or("not there"), "the kernel does not demote pages"),
    }
}

fn huge_pages(value: Option<&str>) -> Finding {
    let subject = "transparent huge pages";
    match value.and_then(transparent_huge_pages::chosen) {
        Some("always") => Finding::note(
            subject,
            "always",
            "the kernel's ratios are in units of 2 MiB, too coarse for small programs; the daemon \
             may collapse base pages into huge ones",
        ),
        chosen => Finding::good(
            subject,
            chosen.unwrap_or("not there"),
            "ratios are in pages of 4 KiB; the daemon makes no huge pages",
        ),
    }
}

fn zone_reclaim(value: Option<&str>) -> Finding {
    let subject = "vm.zone_reclaim_mode";
    match value {
        None | Some("0") => {
            Finding::good(subject, value.unwrap_or("not there"), "a full node spills to the next one at once")
        }
        Some(value) => Finding::warning(
            subject,
            value,
            "the kernel reclaims pages of a full node before it uses another node",
        )
        .remedy("sysctl vm.zone_reclaim_mode=0"),
    }
}

fn swap(table: Option<&str>) -> Finding {
    let subject = "swap";
    let areas: Vec<&str> =
        table.unwrap_or_default().lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    if areas.is_empty() {
        return Finding::note(
            subject,
            "none",
            "a program bound to one tier (fast-only) is killed when that is full; others spill",
        );
    }
    let means = "a program bound to one tier (fast-only) is swapped when that is full; pages that are \
        swapped do not move";
    Finding::note(subject, areas.join(", "), means)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_migration_is_a_warning_with_remedy() {
        for (found, remedy) in [
            (numa_balancing(Some("1")), "sysctl kernel.numa_balancing=0"),
            (numa_balancing(Some("2")), "sysctl kernel.numa_balancing=0"),
            (demotion(Some("true")), "echo 0 > /sys/kernel/mm/numa/demotion_enabled"),
            (zone_reclaim(Some("1")), "sysctl vm.zone_reclaim_mode=0"),
        ] {
            assert_eq!((found.state, found.remedy.as_deref()), (State::Warning, Some(remedy)));
            assert!(warning(found).is_some_and(|text| text.ends_with(remedy)));
        }
        for found in
            [numa_balancing(Some("0")), numa_balancing(None), demotion(Some("false")), zone_reclaim(None)]
        {
            assert_eq!((found.state, found.remedy.as_deref()), (State::Good, None));
            assert_eq!(warning(found), None);
        }
    }

    #[test]
    fn selected_hugepage_mode_is_in_brackets() {
        assert_eq!(huge_pages(Some("[always] madvise never")).state, State::Note);
        assert_eq!(huge_pages(Some("always [madvise] never")).found, "madvise");
        assert_eq!(huge_pages(Some("odd")).found, "not there");
    }

    #[test]
    fn versions_compare_numerically() {
        let state = |release| kernel(Some(release)).state;
        assert_eq!(state("6.12.117+deb12-cloud-amd64"), State::Good);
        assert_eq!(state("7.3.4"), State::Good);
        assert_eq!(state("6.9.0"), State::Note);
        assert_eq!(state("odd"), State::Note);
    }

    #[test]
    fn swap_areas_are_listed() {
        assert_eq!(swap(Some("Filename\tType\n/dev/zram0  partition 1 2 3")).found, "/dev/zram0");
        assert_eq!(swap(Some("Filename\tType")).found, "none");
    }
}
