//! Memory that several watched processes map: one name for each of its pages.
//!
//! The buffers of a database, for example, are in the address space of each of its processes. Each of these
//! accesses some of the pages, and has only those in its page table; what a page is worth shows by the
//! accesses of all of them. So each such page has one name, its page in the first of the processes, its owner:
//!
//! ```text
//! file         0       100     200     300
//! process 7    [owner          ]                      200 pages from 5000 on
//! process 9            [alias  |owner   ]             200 pages from 8000 on
//!                       5100..  8100..
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use memtide_core::policy::{AccessSample, Event};
use memtide_core::{PAGE_BYTES, PageSize, TaskId, Vpn};
use rustix::process::Pid;

use super::task;
use crate::cpu_budget::CpuBudget;
use crate::mappings::{self, Mapping};
use crate::processes::{Process, shared_pages};
use crate::sys::time::thread_time;

/// Resident pages of files and shared memory from which on a process's mappings are read: 16 MiB. Libraries
/// take less.
const PAGES_MIN: u64 = 4096;

/// Share of a core for looking which memory is shared: 0.1 %.
const SHARE: f64 = 0.001;

/// The memory that watched processes share.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// By process and address.
    aliases: Vec<Alias>,
    budget: CpuBudget,
}

/// Other names of an owner's pages. Owner and process are the same if it maps them twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub pid: Pid,
    pub pages: Range<u64>,
    pub owner: TaskId,
    /// The owner's first page.
    pub owned: u64,
}

impl Alias {
    fn task(&self) -> TaskId {
        task(self.pid)
    }

    /// The owner's pages.
    pub fn owned_pages(&self) -> Range<u64> {
        self.owned..self.owned + (self.pages.end - self.pages.start)
    }

    /// The owner's name of one of these pages.
    pub fn owner_page(&self, page: u64) -> u64 {
        page - self.pages.start + self.owned
    }

    /// The other name of one of the owner's pages.
    pub fn task_page(&self, page: u64) -> u64 {
        page - self.owned + self.pages.start
    }

    /// Size of a page in the owner's address space: huge pages of one process are base pages of another that
    /// maps them at other distances from a multiple of 2 MiB.
    pub fn size_of(&self, size: PageSize) -> PageSize {
        let is_aligned = self.pages.start.abs_diff(self.owned).is_multiple_of(PageSize::Huge.base_pages());
        if is_aligned { size } else { PageSize::Base }
    }
}

impl Default for SharedMemory {
    fn default() -> SharedMemory {
        SharedMemory { aliases: Vec::new(), budget: CpuBudget::share(SHARE) }
    }
}

impl SharedMemory {
    /// Looks which memory these processes share, if that is due.
    pub fn update(&mut self, processes: &[Process], now: Duration) {
        if !self.budget.is_due(now) {
            return;
        }
        let begun = thread_time();
        let parts = processes.iter().flat_map(|process| shared_parts(process.pid));
        self.aliases = aliases(parts);
        self.budget.spend(now, thread_time().saturating_sub(begun));
    }

    /// Forgets what other tasks share.
    pub fn keep(&mut self, is_kept: impl Fn(TaskId) -> bool) {
        self.aliases.retain(|alias| is_kept(alias.task()) && is_kept(alias.owner));
    }

    /// Whether no memory is known to be shared.
    pub fn is_empty(&self) -> bool {
        self.aliases.is_empty()
    }

    /// The parts of a task's pages that have other names, by address.
    pub fn aliases_in(&self, task: TaskId, pages: &Range<u64>) -> impl Iterator<Item = &Alias> {
        let first =
            self.aliases.partition_point(|alias| (alias.task(), alias.pages.end) <= (task, pages.start));
        let end = pages.end;
        self.aliases[first..].iter().take_while(move |alias| alias.task() == task && alias.pages.start < end)
    }

    /// The other names of an owner's pages.
    pub fn of_owner(&self, owner: TaskId) -> impl Iterator<Item = &Alias> {
        self.aliases.iter().filter(move |alias| alias.owner == owner)
    }

    /// Gives each sampled access the owner's name of its page.
    pub fn rename(&self, events: &mut [Event]) {
        if self.is_empty() {
            return;
        }
        for event in events {
            if let Event::AccessSample(sample) = event {
                self.rename_sample(sample);
            }
        }
    }

    fn rename_sample(&self, sample: &mut AccessSample) {
        let page = sample.page.0;
        if let Some(alias) = self.aliases_in(sample.task, &(page..page + 1)).next() {
            sample.size = alias.size_of(sample.size);
            (sample.task, sample.page) = (alias.owner, Vpn(alias.owner_page(page)));
        }
    }
}

/// Pages of a file that a task maps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    pid: Pid,
    /// In the file.
    pages: Range<u64>,
    /// The task's page of the first of them.
    start: u64,
}

/// A file: the numbers of its device and inode.
type File = (String, u64);

/// What a process maps of files in memory or on a disk, and shares with others that map them; nothing of a
/// process that maps little, has exited, or may not be inspected.
fn shared_parts(pid: Pid) -> Vec<(File, Part)> {
    if shared_pages(pid).is_none_or(|pages| pages < PAGES_MIN) {
        return Vec::new();
    }
    let part = |mapping: Mapping<'_>| is_memory(&mapping).then(|| part_of(pid, &mapping));
    mappings::read(pid, part).unwrap_or_default()
}

fn part_of(pid: Pid, mapping: &Mapping<'_>) -> (File, Part) {
    let (pages, from) = (mapping.pages(), mapping.offset / PAGE_BYTES);
    let (device, inode) = mapping.file;
    let in_file = from..from.saturating_add(pages.end - pages.start);
    ((device.to_owned(), inode), Part { pid, pages: in_file, start: pages.start })
}

/// Whether a shared mapping is memory of a file: that of a device is not, and the kernel's anonymous files
/// have one inode in common.
fn is_memory(mapping: &Mapping<'_>) -> bool {
    let is_device = mapping.name.starts_with("/dev/")
        && !["/dev/shm/", "/dev/zero", "/dev/hugepages"].iter().any(|of| mapping.name.starts_with(of));
    mapping.is_shared() && mapping.has_file() && mapping.name.starts_with('/') && !is_device
}

/// The other names of pages that are mapped more than once, by task and address; parts by the order of tasks.
fn aliases(parts: impl IntoIterator<Item = (File, Part)>) -> Vec<Alias> {
    let mut owned: BTreeMap<File, Vec<Part>> = BTreeMap::new();
    let mut aliases = Vec::new();
    for (file, part) in parts {
        add(owned.entry(file).or_default(), &part, &mut aliases);
    }
    aliases.sort_by_key(|alias| (alias.task(), alias.pages.start));
    aliases
}

/// Adds a part of a file to those that have owners, by place in the file: as far as they overlap, it is
/// another name of theirs, and else it is owned by its task.
fn add(owned: &mut Vec<Part>, part: &Part, aliases: &mut Vec<Alias>) {
    let own_name = |page: u64| part.start + (page - part.pages.start);
    let mut new = Vec::new();
    let mut from = part.pages.start;
    let mut own = |pages: Range<u64>| {
        if !pages.is_empty() {
            new.push(Part { pid: part.pid, start: own_name(pages.start), pages });
        }
    };
    let first = owned.partition_point(|known| known.pages.end <= from);
    for known in owned[first..].iter().take_while(|known| known.pages.start < part.pages.end) {
        let (start, end) = (known.pages.start.max(from), known.pages.end.min(part.pages.end));
        own(from..start);
        let owned = known.start + (start - known.pages.start);
        let pages = own_name(start)..own_name(end);
        aliases.push(Alias { pid: part.pid, pages, owner: task(known.pid), owned });
        from = end;
    }
    own(from..part.pages.end);
    owned.extend(new);
    owned.sort_by_key(|known| known.pages.start);
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, ThreadId, Time};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pid(task: u32) -> Pid {
        Pid::from_raw(task as i32).expect("a process id")
    }

    fn part(task: u32, pages: Range<u64>, start: u64) -> Part {
        Part { pid: pid(task), pages, start }
    }

    fn shared(parts: &[(u64, Part)]) -> SharedMemory {
        let named = parts.iter().map(|(inode, part)| (("00:01".to_owned(), *inode), part.clone()));
        SharedMemory { aliases: aliases(named), ..SharedMemory::default() }
    }

    fn alias(task: u32, pages: Range<u64>, owner: u32, owned: u64) -> Alias {
        Alias { pid: pid(task), pages, owner: TaskId(owner), owned }
    }

    #[test]
    fn first_task_owns_what_it_maps_and_the_next_the_rest() {
        let parts = [
            (1, part(7, 0..200, 5000)),
            (1, part(9, 100..300, 8000)),
            (2, part(9, 0..50, 9000)),
            (1, part(11, 50..400, 0)),
            (2, part(11, 50..60, 600)),
        ];
        let expected =
            [alias(9, 8000..8100, 7, 5100), alias(11, 0..150, 7, 5050), alias(11, 150..250, 9, 8100)];
        assert_eq!(shared(&parts).aliases, expected);
    }

    #[test]
    fn pages_that_a_task_maps_twice_have_its_first_name() {
        let parts = [(1, part(7, 0..10, 100)), (1, part(7, 0..10, 300))];
        assert_eq!(shared(&parts).aliases, [alias(7, 300..310, 7, 100)]);
    }

    #[test]
    fn sample_gets_the_owners_name_of_its_page() {
        let shared = shared(&[(1, part(7, 0..2000, 5120)), (1, part(9, 512..2000, 1024))]);
        let sample = |task, page, size| AccessSample {
            time: Time::ZERO,
            task: TaskId(task),
            thread: ThreadId(task),
            page: Vpn(page),
            size,
            node: NodeId(0),
            latency: None,
            period: 1,
            write: false,
        };
        let renamed = |task, page| {
            let mut events = [Event::AccessSample(sample(task, page, PageSize::Huge))];
            shared.rename(&mut events);
            let [Event::AccessSample(AccessSample { task, thread, page, size, .. })] = events else {
                unreachable!("it stays a sample")
            };
            (task.0, thread.0, page.0, size)
        };
        assert_eq!(renamed(9, 1030), (7, 9, 5638, PageSize::Huge));
        assert_eq!(renamed(9, 1023), (9, 9, 1023, PageSize::Huge));
        assert_eq!(renamed(9, 2512), (9, 9, 2512, PageSize::Huge));
        assert_eq!(renamed(7, 5120), (7, 7, 5120, PageSize::Huge));
        assert_eq!(alias(9, 10..600, 7, 5120).size_of(PageSize::Huge), PageSize::Base);
    }

    #[test]
    fn tasks_that_have_ended_share_nothing() {
        let parts = [(1, part(7, 0..9, 50)), (1, part(9, 0..9, 80)), (1, part(11, 0..9, 90))];
        let mut shared = shared(&parts);
        shared.keep(|task| task != TaskId(9));
        assert_eq!(shared.aliases, [alias(11, 90..99, 7, 50)]);
        shared.keep(|task| task != TaskId(7));
        assert!(shared.is_empty());
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

    proptest! {
        /// Each page of a file that is mapped has one owner's name, whichever process accesses it.
        #[test]
        fn each_page_of_a_file_has_one_name(
            mapped in vec((1u32..5, 0u64..40, 1u64..40), 1..8),
        ) {
            let mut parts: Vec<(u64, Part)> = Vec::new();
            // Each at another place in its task.
            for (at, &(task, from, pages)) in (0u64..).zip(&mapped) {
                parts.push((1, part(task, from..from + pages, 1000 * (at + 1))));
            }
            parts.sort_by_key(|(_, part)| task(part.pid));
            let shared = shared(&parts);
            let mut names = BTreeMap::new();
            for (_, part) in &parts {
                for (page, own) in part.pages.clone().zip(part.start..) {
                    let task = task(part.pid);
                    let alias = shared.aliases_in(task, &(own..own + 1)).next();
                    let name = alias.map_or((task, own), |alias| (alias.owner, alias.owner_page(own)));
                    prop_assert_eq!(*names.entry(page).or_insert(name), name);
                    if let Some(alias) = alias {
                        prop_assert_eq!(alias.task_page(name.1), own);
                        prop_assert!(shared.aliases_in(name.0, &(name.1..name.1 + 1)).next().is_none());
                    }
                }
            }
        }
    }
}
