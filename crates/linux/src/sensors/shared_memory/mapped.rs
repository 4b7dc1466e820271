//! What processes map, and the other names of pages of a file that several of them map.

use std::collections::BTreeMap;
use std::ops::Range;

use memtide_core::PAGE_BYTES;
use rustix::process::Pid;

use super::Alias;
use super::forked::RUN_MIN;
use crate::mappings::{self, Mapping};
use crate::processes::shared_pages;
use crate::sensors::task;

/// Resident pages of files and shared memory from which on a process's files count: 16 MiB. Libraries take
/// less.
const PAGES_MIN: u64 = 4096;

/// Pages of a file that a task maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub pid: Pid,
    /// In the file.
    pub pages: Range<u64>,
    /// The task's page of the first of them.
    pub start: u64,
}

/// A file: the numbers of its device and inode.
pub type File = (String, u64);

/// What a process maps of memory that it may share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Shared mappings.
    pub parts: Vec<(File, Part)>,
    /// Private anonymous ones.
    pub private: Vec<Range<u64>>,
}

impl Mappings {
    /// Those of a process; none of one that has exited or may not be inspected. Of one that has few pages of
    /// files, only private ones.
    pub fn of(pid: Pid) -> Mappings {
        let has_files = shared_pages(pid).is_some_and(|pages| pages >= PAGES_MIN);
        let mut all = Mappings::default();
        let see = |mapping: Mapping<'_>| {
            if is_private(&mapping) {
                all.private.push(mapping.pages());
            } else if has_files && is_memory(&mapping) {
                all.parts.push(part_of(pid, &mapping));
            }
            None::<()>
        };
        match mappings::read(pid, see) {
            Ok(_) => Mappings { parts: joined(all.parts), ..all },
            Err(_) => Mappings::default(),
        }
    }
}

/// Whether a mapping is anonymous memory that a fork may share.
fn is_private(mapping: &Mapping<'_>) -> bool {
    let pages = mapping.pages();
    let is_anonymous = !mapping.is_shared() && !mapping.has_file() && !mapping.is_of_kernel();
    is_anonymous && mapping.is_accessible() && pages.end - pages.start >= RUN_MIN
}

fn part_of(pid: Pid, mapping: &Mapping<'_>) -> (File, Part) {
    let (pages, from) = (mapping.pages(), mapping.offset / PAGE_BYTES);
    let (device, inode) = mapping.file;
    let in_file = from..from.saturating_add(pages.end - pages.start);
    ((device.to_owned(), inode), Part { pid, pages: in_file, start: pages.start })
}

/// Parts with those made one that differ in permissions alone.
fn joined(mut parts: Vec<(File, Part)>) -> Vec<(File, Part)> {
    parts.dedup_by(|(next_file, next), (file, part)| {
        let is_next = next_file == file
            && next.pages.start == part.pages.end
            && next.start - part.start == part.pages.end - part.pages.start;
        if is_next {
            part.pages.end = next.pages.end;
        }
        is_next
    });
    parts
}

/// Whether a shared mapping is memory of a file: that of a device is not, and the kernel's anonymous files
/// have one inode in common.
fn is_memory(mapping: &Mapping<'_>) -> bool {
    let is_device = mapping.name.starts_with("/dev/")
        && !["/dev/shm/", "/dev/zero", "/dev/hugepages"].iter().any(|of| mapping.name.starts_with(of));
    mapping.is_shared() && mapping.has_file() && mapping.name.starts_with('/') && !is_device
}

/// The other names of pages that are mapped more than once; parts by the order of tasks.
/// A part is another name of the one that contains it, and else it is owned, unless it overlaps one.
pub fn aliases<'p>(parts: impl IntoIterator<Item = &'p (File, Part)>) -> Vec<Alias> {
    let mut owned: BTreeMap<&File, BTreeMap<u64, &Part>> = BTreeMap::new();
    let mut aliases = Vec::new();
    for (file, part) in parts {
        let owned = owned.entry(file).or_default();
        let before = owned.range(..part.pages.end).next_back().map(|(_, known)| *known);
        match before.filter(|known| known.pages.end > part.pages.start) {
            None => _ = owned.insert(part.pages.start, part),
            Some(known) => aliases.extend(known.alias(part)),
        }
    }
    aliases
}

impl Part {
    /// This owned part's other name by a part of the file; `None` if it does not contain that.
    fn alias(&self, part: &Part) -> Option<Alias> {
        let pages = part.start..part.start + (part.pages.end - part.pages.start);
        let owned = self.start + part.pages.start.checked_sub(self.pages.start)?;
        let is_within = part.pages.end <= self.pages.end;
        is_within.then(|| Alias { pid: part.pid, pages, owner: task(self.pid), owned, is_forked: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(pages: Range<u64>, start: u64) -> Part {
        Part { pid: rustix::process::getpid(), pages, start }
    }

    #[test]
    fn mappings_that_differ_in_permissions_are_one_part() {
        let file = |inode| ("00:01".to_owned(), inode);
        let parts = [
            (file(1), part(0..10, 100)),
            (file(1), part(10..15, 110)),
            (file(1), part(15..20, 200)),
            (file(2), part(20..25, 205)),
        ];
        let mut expected = parts.clone().to_vec();
        expected.remove(1);
        expected[0].1.pages.end = 15;
        assert_eq!(joined(parts.to_vec()), expected);
    }

    #[test]
    fn memory_of_files_is_shared_and_that_of_devices_is_not() {
        let is_shared = |line: &str| is_memory(&Mapping::of(line).expect("a mapping"));
        assert!(is_shared("1000-2000 rw-s 00000000 00:01 1037 /dev/zero (deleted)"));
        assert!(is_shared("1000-2000 rw-s 00000000 00:01 4 /SYSV00000000 (deleted)"));
        assert!(is_shared("1000-2000 r--s 00000000 08:02 9 /srv/data"));
        assert!(is_shared("1000-2000 rw-s 00000000 00:1a 9 /dev/shm/pool"));
        assert!(!is_shared("1000-2000 rw-p 00000000 08:02 9 /srv/data"));
        assert!(!is_shared("1000-2000 rw-s 00000000 00:06 9 /dev/dri/card0"));
        assert!(!is_shared("1000-2000 rw-s 00000000 00:0e 1 anon_inode:[io_uring]"));
    }
}
