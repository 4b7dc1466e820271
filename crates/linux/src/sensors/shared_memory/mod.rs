//! Memory that several watched processes map: one name for each of its pages.
//!
//! The buffers of a database, for example, are in the address space of each of its processes. Each of these
//! accesses some of the pages, and has only those in its page table; what a page is worth shows by the
//! accesses of all of them. So each such page has one name, its page in the first of the processes, its
//! owner. What processes share since a fork is the owner's, too. Of a file:
//!
//! ```text
//! file         0       100     200     300     400
//! process 7    [owner          ]                      200 pages from 5000 on
//! process 9            [alias  ]                      100 pages from 8000 on: 8000 is 5100 of process 7
//! process 11                       [owner      ]
//! process 13           [neither    ]                  its pages keep their names
//! ```

mod forked;
mod mapped;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use memtide_core::policy::{AccessSample, Event};
use memtide_core::{PageSize, TaskId, Vpn};
use rustix::process::Pid;

use self::forked::Comparison;
use self::mapped::{Mappings, aliases};
use super::task;
use crate::cpu_budget::CpuBudget;
use crate::processes::{Identity, Process};
use crate::sys::time::thread_time;

/// Most shared mappings that are looked at: of more, pages keep their names.
const PARTS_MAX: usize = 1 << 17;

/// Share of a core for mappings: 0.1 %.
const MAPPINGS_SHARE: f64 = 0.001;

/// Processor time for mappings at a time: other processes wait for the next one.
const MAPPINGS_TIME_MAX: Duration = Duration::from_millis(1);

/// Processor time at a time for comparisons of private memory, page by page.
const COMPARISON_TIME_MAX: Duration = Duration::from_millis(10);

/// Share of a core for comparing the private memory of new processes, 1 %, and for comparing it again, 0.1 %.
const FIRST_COMPARISON_SHARE: f64 = 0.01;
const COMPARISON_SHARE: f64 = 0.001;

/// Time after which it is compared again at the earliest.
const COMPARED_AGAIN: Duration = Duration::from_secs(10);

/// The memory that watched processes share.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// By process id.
    known: BTreeMap<TaskId, Known>,
    /// By process and address.
    aliases: Vec<Alias>,
    /// Pages that have other names, by owner.
    owned: BTreeMap<TaskId, Vec<Range<u64>>>,
    mappings_budget: CpuBudget,
    comparison: Option<Comparison>,
    first_comparison_budget: CpuBudget,
    comparison_budget: CpuBudget,
}

/// What a process maps.
#[derive(Debug)]
struct Known {
    identity: Identity,
    mappings: Mappings,
    read_at: Duration,
    /// Other names of pages that it shares since a fork, by address.
    forked: Vec<Alias>,
    /// `None` before the first comparison with other processes.
    compared_at: Option<Duration>,
}

/// Other names of an owner's pages. Owner and process are the same if it maps them twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alias {
    pub pid: Pid,
    pub pages: Range<u64>,
    pub owner: TaskId,
    /// The owner's first page.
    pub owned: u64,
    /// Whether they are shared since a fork: the owner has all of them.
    pub is_forked: bool,
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
        SharedMemory {
            known: BTreeMap::new(),
            aliases: Vec::new(),
            owned: BTreeMap::new(),
            mappings_budget: CpuBudget::share(MAPPINGS_SHARE),
            comparison: None,
            first_comparison_budget: CpuBudget::share(FIRST_COMPARISON_SHARE),
            comparison_budget: CpuBudget::share(COMPARISON_SHARE),
        }
    }
}

impl SharedMemory {
    /// Looks which memory these processes, sorted by id, share, as far as that is due. Forgets others.
    pub fn update(&mut self, processes: &[Process], now: Duration) {
        if self.keep(processes) | self.read_mappings(processes, now) | self.compare(now) {
            self.find_aliases();
        }
    }

    /// Forgets all other processes; returns whether there were any.
    fn keep(&mut self, processes: &[Process]) -> bool {
        let before = self.known.len();
        let now = |id| processes.binary_search_by_key(&id, |process| task(process.pid)).ok();
        let is_same =
            |id, known: &Known| now(id).is_some_and(|at| processes[at].identity() == known.identity);
        self.known.retain(|&id, known| is_same(id, known));
        self.known.len() < before
    }

    /// Reads what processes map, new ones first, then those that were read longest ago; returns whether that
    /// has changed.
    fn read_mappings(&mut self, processes: &[Process], now: Duration) -> bool {
        if !self.mappings_budget.is_due(now) {
            return false;
        }
        let begun = thread_time();
        let read_at = |process: &Process| self.known.get(&task(process.pid)).map(|known| known.read_at);
        let mut longest_ago: Vec<(Option<Duration>, &Process)> =
            processes.iter().map(|process| (read_at(process), process)).collect();
        longest_ago.sort_by_key(|(read_at, _)| *read_at);
        let mut is_changed = false;
        for (_, process) in longest_ago {
            is_changed |= self.read(process, now);
            if thread_time().saturating_sub(begun) > MAPPINGS_TIME_MAX {
                break;
            }
        }
        self.mappings_budget.spend(now, thread_time().saturating_sub(begun));
        is_changed
    }

    /// Reads what a process maps; returns whether its shared mappings have changed.
    fn read(&mut self, process: &Process, read_at: Duration) -> bool {
        let before = self.known.remove(&task(process.pid));
        let others: usize = self.known.values().map(|known| known.mappings.parts.len()).sum();
        let mut mappings = Mappings::of(process.pid);
        mappings.parts.truncate(PARTS_MAX - others);
        let parts_before = before.as_ref().map(|known| &known.mappings.parts[..]).unwrap_or_default();
        let is_changed = mappings.parts != parts_before;
        let (forked, compared_at) = before.map(|known| (known.forked, known.compared_at)).unwrap_or_default();
        let known = Known { identity: process.identity(), mappings, read_at, forked, compared_at };
        self.known.insert(task(process.pid), known);
        is_changed
    }

    /// Compares private memory of processes, each with that of those with lower ids; returns whether other
    /// names have changed.
    fn compare(&mut self, now: Duration) -> bool {
        let is_new = self.has_new();
        if !self.budget_of_comparison(is_new).is_due(now) {
            return false;
        }
        let begun = thread_time();
        let spent = || thread_time().saturating_sub(begun);
        let mut is_changed = false;
        while spent() < COMPARISON_TIME_MAX {
            let Some(mut comparison) = self.comparison.take().or_else(|| self.next_comparison(now)) else {
                break;
            };
            match comparison.step() {
                Some(found) => is_changed |= self.set_forked(comparison.pid, found, now),
                None => self.comparison = Some(comparison),
            }
        }
        self.budget_of_comparison(is_new).spend(now, spent());
        is_changed
    }

    fn budget_of_comparison(&mut self, is_new: bool) -> &mut CpuBudget {
        if is_new { &mut self.first_comparison_budget } else { &mut self.comparison_budget }
    }

    /// Whether private memory of a known process was not compared yet.
    fn has_new(&self) -> bool {
        self.known.values().any(|known| known.compared_at.is_none())
    }

    /// The next comparison that is due: of a new process first, then of the one compared longest ago.
    fn next_comparison(&self, now: Duration) -> Option<Comparison> {
        let is_due = |known: &Known| known.compared_at.is_none_or(|at| now >= at + COMPARED_AGAIN);
        let due = self.known.iter().filter(|(_, known)| is_due(known));
        let (&id, known) = due.min_by_key(|(_, known)| known.compared_at)?;
        let of = |known: &Known| known.identity.0;
        let others = self.known.range(..id).map(|(_, other)| (of(other), &other.mappings.private[..]));
        Some(Comparison::new(of(known), &known.mappings.private, others))
    }

    fn set_forked(&mut self, pid: Pid, forked: Vec<Alias>, compared_at: Duration) -> bool {
        let Some(known) = self.known.get_mut(&task(pid)) else { return false };
        known.compared_at = Some(compared_at);
        let is_changed = known.forked != forked;
        known.forked = forked;
        is_changed
    }

    fn find_aliases(&mut self) {
        let mut all = aliases(self.known.values().flat_map(|known| &known.mappings.parts));
        let forked = self.known.values().flat_map(|known| &known.forked);
        all.extend(forked.filter(|alias| self.is_owned(alias)).cloned());
        all.sort_by_key(|alias| (alias.task(), alias.pages.start));
        // What was read earlier may be of an address space that has changed.
        all.dedup_by(|next, kept| next.task() == kept.task() && next.pages.start < kept.pages.end);
        self.owned = owned(&all);
        self.aliases = all;
    }

    /// Whether the owner of pages that are shared since a fork is known, and owns them itself.
    fn is_owned(&self, alias: &Alias) -> bool {
        self.known.get(&alias.owner).is_some_and(|owner| {
            let first = owner.forked.partition_point(|other| other.pages.end <= alias.owned);
            owner.forked.get(first).is_none_or(|other| other.pages.start >= alias.owned_pages().end)
        })
    }

    /// Whether it is known what these processes, those of the last update, share.
    pub fn knows_all(&self, processes: &[Process]) -> bool {
        self.known.len() == processes.len() && !self.has_new()
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

    /// The owner of a task's page, and its page there; `None` if the task owns it.
    pub fn owner_of(&self, task: TaskId, page: u64) -> Option<(TaskId, u64)> {
        let alias = self.aliases_in(task, &(page..page + 1)).next()?;
        Some((alias.owner, alias.owner_page(page)))
    }

    /// The other names of pages that an owner need not have in its page table.
    pub fn mapped_with(&self, owner: TaskId) -> impl Iterator<Item = &Alias> {
        self.aliases.iter().filter(move |alias| alias.owner == owner && !alias.is_forked)
    }

    /// Whether a page of an owner has other names.
    pub fn is_shared(&self, owner: TaskId, page: u64) -> bool {
        self.owned.get(&owner).is_some_and(|pages| {
            let first = pages.partition_point(|pages| pages.end <= page);
            pages.get(first).is_some_and(|pages| pages.contains(&page))
        })
    }

    /// Pages of an owner that it need not have in its page table; more if mappings of others overlap in part.
    pub fn mapped_pages(&self, owner: TaskId) -> u64 {
        let mut largest: BTreeMap<u64, u64> = BTreeMap::new();
        for alias in self.mapped_with(owner) {
            let pages = largest.entry(alias.owned).or_default();
            *pages = (alias.pages.end - alias.pages.start).max(*pages);
        }
        largest.values().sum()
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

/// The pages that have other names, by owner and address.
fn owned(aliases: &[Alias]) -> BTreeMap<TaskId, Vec<Range<u64>>> {
    let mut owned: BTreeMap<TaskId, Vec<Range<u64>>> = BTreeMap::new();
    for alias in aliases {
        owned.entry(alias.owner).or_default().push(alias.owned_pages());
    }
    for pages in owned.values_mut() {
        pages.sort_by_key(|pages| pages.start);
        pages.dedup_by(|next, pages| {
            let is_joined = next.start <= pages.end;
            if is_joined {
                pages.end = pages.end.max(next.end);
            }
            is_joined
        });
    }
    owned
}

#[cfg(test)]
mod tests {
    use memtide_core::{NodeId, ThreadId, Time};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use std::collections::BTreeSet;

    use super::mapped::Part;
    use super::*;

    fn pid(task: u32) -> Pid {
        Pid::from_raw(task as i32).expect("a process id")
    }

    fn part(task: u32, pages: Range<u64>, start: u64) -> Part {
        Part { pid: pid(task), pages, start }
    }

    fn shared(parts: &[(u64, Part)]) -> SharedMemory {
        let ids: BTreeSet<u32> = parts.iter().map(|(_, part)| task(part.pid).0).collect();
        known(&processes(ids), parts, &[])
    }

    fn alias(task: u32, pages: Range<u64>, owner: u32, owned: u64) -> Alias {
        Alias { pid: pid(task), pages, owner: TaskId(owner), owned, is_forked: false }
    }

    #[test]
    fn part_is_another_name_of_the_one_that_contains_it() {
        let parts = [
            (1, part(7, 0..200, 5000)),
            (2, part(7, 0..200, 6000)),
            (1, part(9, 100..200, 8000)),
            (1, part(11, 200..300, 0)),
            (1, part(13, 100..250, 400)),
            (1, part(13, 190..200, 600)),
            (1, part(13, 250..300, 700)),
        ];
        let expected =
            [alias(9, 8000..8100, 7, 5100), alias(13, 600..610, 7, 5190), alias(13, 700..750, 11, 50)];
        let shared = shared(&parts);
        assert_eq!(shared.aliases, expected);
        assert_eq!([7, 11, 13].map(|task| shared.mapped_pages(TaskId(task))), [110, 50, 0]);
        let is_shared = [(7, 5099), (7, 5100), (7, 5199), (7, 5200), (11, 49), (11, 50), (13, 600)];
        let expected = [false, true, true, false, false, true, false];
        assert_eq!(is_shared.map(|(task, page)| shared.is_shared(TaskId(task), page)), expected);
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

    /// These processes, as if each had these shared mappings and other names.
    fn known(processes: &[Process], parts: &[(u64, Part)], forked: &[Alias]) -> SharedMemory {
        let of = |process: &Process| {
            let own = parts.iter().filter(|(_, part)| part.pid == process.pid);
            let parts = own.map(|(inode, part)| (("00:01".to_owned(), *inode), part.clone())).collect();
            Known {
                identity: process.identity(),
                mappings: Mappings { parts, private: Vec::new() },
                read_at: Duration::ZERO,
                forked: forked.iter().filter(|alias| alias.pid == process.pid).cloned().collect(),
                compared_at: None,
            }
        };
        let known = processes.iter().map(|process| (task(process.pid), of(process))).collect();
        let mut shared = SharedMemory { known, ..SharedMemory::default() };
        shared.find_aliases();
        shared
    }

    fn keep(shared: &mut SharedMemory, processes: &[Process]) {
        assert!(shared.keep(processes));
        shared.find_aliases();
    }

    fn processes(ids: impl IntoIterator<Item = u32>) -> Vec<Process> {
        let me = crate::processes::one(rustix::process::getpid()).expect("this process");
        ids.into_iter().map(|id| Process { pid: pid(id), ..me.clone() }).collect()
    }

    #[test]
    fn processes_that_have_ended_share_nothing() {
        let parts = [(7, 50), (9, 80), (11, 90)].map(|(id, start)| (1, part(id, 0..9, start)));
        let mut shared = known(&processes([7, 9, 11]), &parts, &[]);
        assert_eq!(shared.aliases, [alias(9, 80..89, 7, 50), alias(11, 90..99, 7, 50)]);
        let mut left = processes([7, 11]);
        keep(&mut shared, &left);
        assert_eq!(shared.aliases, [alias(11, 90..99, 7, 50)]);
        left[0].started_ticks += 1;
        keep(&mut shared, &left);
        assert!(shared.is_empty() && shared.known.len() == 1, "its id was used again");
    }

    #[test]
    fn pages_that_are_shared_since_a_fork_have_one_owner() {
        let forked = |id, pages: Range<u64>, owner| Alias {
            is_forked: true,
            ..alias(id, pages.clone(), owner, pages.start)
        };
        let all = [
            forked(9, 100..200, 7),
            // The last one is compared after process 9 has written a part of its pages.
            forked(11, 100..200, 7),
            forked(11, 300..400, 9),
            forked(13, 150..250, 9),
        ];
        let mut shared = known(&processes([7, 9, 11, 13]), &[(1, part(7, 0..50, 0))], &all);
        assert_eq!(shared.aliases, all[..3], "process 9 does not own pages of process 7");
        assert_eq!(shared.owner_of(TaskId(11), 350), Some((TaskId(9), 350)));
        assert!(shared.is_shared(TaskId(7), 199) && !shared.is_shared(TaskId(9), 199));
        assert_eq!(shared.mapped_with(TaskId(7)).count(), 0, "it has all of them");
        let left = processes([9, 11, 13]);
        keep(&mut shared, &left);
        for id in [9, 11, 13] {
            assert!(!shared.knows_all(&left));
            shared.set_forked(pid(id), shared.known[&TaskId(id)].forked.clone(), Duration::ZERO);
        }
        assert!(shared.knows_all(&left));
        assert!(!shared.knows_all(&processes([9, 11, 13, 15])), "the last one's mappings were not read");
        assert_eq!(shared.aliases, all[2..3], "until they are compared again");
    }

    #[test]
    fn other_names_of_an_address_space_that_has_changed_do_not_overlap() {
        let stale = Alias { is_forked: true, ..alias(9, 80..180, 7, 80) };
        let parts = [(1, part(7, 0..50, 500)), (1, part(9, 0..50, 100)), (2, part(9, 0..9, 400))];
        let shared = known(&processes([7, 9]), &parts, std::slice::from_ref(&stale));
        assert_eq!(shared.aliases, [stale]);
    }

    proptest! {
        /// A page and its other names are one page of the file, and an owner's name is the only one.
        #[test]
        fn names_are_of_one_page_of_the_file(mapped in vec((1u32..5, 0u64..40, 1u64..40), 1..8)) {
            let mut parts: Vec<(u64, Part)> = Vec::new();
            // Each at another place in its task.
            for (at, &(task, from, pages)) in (0u64..).zip(&mapped) {
                parts.push((1, part(task, from..from + pages, 1000 * (at + 1))));
            }
            parts.sort_by_key(|(_, part)| task(part.pid));
            let shared = shared(&parts);
            let in_file: BTreeMap<(TaskId, u64), u64> = parts
                .iter()
                .flat_map(|(_, part)| (part.start..).map(|own| (task(part.pid), own)).zip(part.pages.clone()))
                .collect();
            for (&(task, own), page) in &in_file {
                let Some(alias) = shared.aliases_in(task, &(own..own + 1)).next() else { continue };
                let owned = alias.owner_page(own);
                prop_assert_eq!(in_file.get(&(alias.owner, owned)), Some(page));
                prop_assert_eq!(alias.task_page(owned), own);
                prop_assert!(shared.aliases_in(alias.owner, &(owned..owned + 1)).next().is_none());
            }
        }
    }
}
