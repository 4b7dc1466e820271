//! Linux's DAMON on virtual addresses (Documentation/admin-guide/mm/damon/usage.rst), set up through sysfs.

mod aggregated;
mod left_over;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use memtide_core::Time;
use memtide_core::policy::RegionSampling;
use rustix::process::getpid;

use self::aggregated::Aggregated;
use self::left_over::Starter;
use super::{Found, RegionMonitor, Remedy, Unusable};
use crate::processes::{Identity, Process};

const ROOT: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const CONTEXT: &str = "0/contexts/0";

/// The kernel's own modules that use DAMON, and what stops with them.
const MODULES: [(&str, &str); 3] = [
    ("damon_stat", "the kernel's statistics of idle memory"),
    ("damon_reclaim", "the kernel's reclaim of idle memory ahead of need"),
    ("damon_lru_sort", "the kernel's sorting of its lists of pages by access"),
];

/// Maximum interval at which DAMON updates the mapped ranges, unless its aggregation interval is longer.
const UPDATE_MAX: Time = Time::from_ms(1000);

/// Minimum number of regions per process.
const REGIONS_MIN: u32 = 10;

/// Minimum number of processes for which regions are reserved.
const TARGETS_LIKELY: usize = 64;

/// Whether DAMON supports virtual addresses, where it is not in use: creates and removes a context to find
/// out.
fn watches_addresses() -> Option<bool> {
    let write = |file: &str, text: &str| fs::write(Path::new(ROOT).join(file), text).ok();
    write("nr_kdamonds", "1")?;
    let made = write("0/contexts/nr_contexts", "1");
    let reports =
        made.and_then(|()| fs::read_to_string(Path::new(ROOT).join(CONTEXT).join("avail_operations")).ok());
    write("nr_kdamonds", "0")?;
    Some(reports?.lines().any(|operations| operations == "vaddr"))
}

/// A kernel thread that watches processes; stopped when dropped.
#[derive(Debug)]
pub struct Damon {
    needs: RegionSampling,
    /// Sampling interval, chosen for the budget if there is one.
    sampling: Time,
    /// CPU time of the kernel thread and time, both when the interval was last chosen.
    tuned: Option<(Time, Instant)>,
    /// Samples of the regions that were read last; 0 if they were not new.
    samples: u32,
    /// The process of each target; `None` in the slot of one that has exited.
    targets: Vec<Option<Identity>>,
    /// The targets of the watched processes, in their order.
    watched: Vec<usize>,
    /// Its reports; `None` without processes to watch.
    reports: Option<Aggregated>,
    /// Thread id of the kernel thread since its start.
    thread: i32,
}

impl Damon {
    /// Whether DAMON can be used.
    ///
    /// # Errors
    /// If the kernel lacks it, or another user has it.
    pub fn check() -> Result<(), Unusable> {
        let unusable = |why: String, remedy: Option<Remedy>| Err(Unusable { why, remedy });
        for (module, stops) in MODULES {
            let file = format!("/sys/module/{module}/parameters/enabled");
            if fs::read_to_string(&file).is_ok_and(|enabled| enabled.trim() == "Y") {
                let why = format!("the kernel's {module} uses DAMON");
                let owner = format!("the kernel, as {file} or its command line says");
                return unusable(
                    why,
                    Some(Remedy::Release { owner, stops, command: format!("echo N > {file}") }),
                );
            }
        }
        let used = match fs::read_to_string(Path::new(ROOT).join("nr_kdamonds")) {
            Ok(used) => used,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = "this kernel has no DAMON (CONFIG_DAMON_VADDR, CONFIG_DAMON_SYSFS), or sysfs is \
                    not mounted";
                return unusable(why.to_owned(), None);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(not_root()),
            Err(error) => return unusable(format!("{ROOT}: {error}"), None),
        };
        match user(&used)? {
            Some((Starter::Daemon(pid), _)) => {
                let why = format!("memtide's daemon, process {pid}, uses DAMON");
                let stops = "that daemon's migration";
                let owner = format!("memtide's daemon, process {pid}");
                return unusable(why, Some(Remedy::Release { owner, stops, command: format!("kill {pid}") }));
            }
            Some((_, file)) => {
                let (owner, stops) = (owner(), "that program's monitoring and its DAMON schemes");
                let remedy = Remedy::Release { owner, stops, command: format!("echo off > {file}") };
                return unusable("another program uses DAMON".to_owned(), Some(remedy));
            }
            None => {}
        }
        if !rustix::process::geteuid().is_root() {
            return Err(not_root());
        }
        if used.trim() == "0" && watches_addresses() == Some(false) {
            let why = "this kernel's DAMON does not watch processes (CONFIG_DAMON_VADDR is not set)";
            return unusable(why.to_owned(), None);
        }
        aggregated::check()
    }

    /// The process id of the memtide daemon that uses it, if one does.
    pub fn daemon() -> Option<i32> {
        let used = fs::read_to_string(Path::new(ROOT).join("nr_kdamonds")).ok()?;
        match user(&used).ok()? {
            Some((Starter::Daemon(pid), _)) => Some(pid),
            _ => None,
        }
    }

    /// DAMON without processes to watch.
    pub fn new(needs: &RegionSampling) -> Damon {
        Damon {
            needs: *needs,
            sampling: needs.sampling,
            tuned: None,
            samples: 0,
            targets: Vec::new(),
            watched: Vec::new(),
            reports: None,
            thread: 0,
        }
    }

    fn state(&self) -> io::Result<String> {
        Ok(fs::read_to_string(Path::new(ROOT).join("0/state"))?.trim().to_owned())
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let file = Path::new(ROOT).join(file);
        fs::write(&file, text).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("writing '{text}' to {}: {error}{}", file.display(), hint(&error)),
            )
        })
    }

    fn stop(&mut self) -> io::Result<()> {
        if self.targets.is_empty() {
            return Ok(());
        }
        self.targets.clear();
        self.watched.clear();
        self.reports = None;
        if self.state()? == "on" {
            if !self.is_its_own()? {
                return Ok(());
            }
            self.write("0/state", "off")?;
        }
        self.write("nr_kdamonds", "0")
    }

    /// Whether the running thread is the one started here: root may have stopped it and started another.
    fn is_its_own(&self) -> io::Result<bool> {
        Ok(thread(0)? == self.thread)
    }

    fn start(&mut self, targets: &[Option<Identity>]) -> io::Result<()> {
        if Path::new(ROOT).join("0").exists()
            && self.state()? == "on"
            && left_over::starter(thread(0)?) == Starter::Dead
        {
            self.write("0/state", "off")?;
        }
        let regions = |name: &str| format!("{CONTEXT}/monitoring_attrs/nr_regions/{name}");
        self.write("nr_kdamonds", "1")?;
        self.write("0/contexts/nr_contexts", "1")?;
        self.write(&format!("{CONTEXT}/operations"), "vaddr")?;
        let aggregation = self.needs.aggregation;
        self.write_interval("update", UPDATE_MAX.min(aggregation * 2).max(aggregation))?;
        self.write_interval("aggr", self.needs.aggregation)?;
        self.write_interval("sample", self.sampling)?;
        self.write(&regions("max"), &self.needs.regions_max.max(REGIONS_MIN).to_string())?;
        self.write(&regions("min"), &REGIONS_MIN.to_string())?;
        self.describe(targets)?;
        // Without this note, a later daemon finds DAMON in use if this one is killed.
        let _ = left_over::record(None);
        self.write("0/state", "on")?;
        self.thread = thread(0)?;
        let _ = left_over::record(Some(self.thread));
        self.tuned = None;
        Ok(())
    }

    fn write_interval(&self, name: &str, time: Time) -> io::Result<()> {
        let us = (time.0 / 1_000_000).max(1);
        self.write(&format!("{CONTEXT}/monitoring_attrs/intervals/{name}_us"), &us.to_string())
    }

    /// Sets the sampling interval by the kernel thread's CPU time and the budget, if there is one. A kernel
    /// that does not tell that time (CONFIG_SCHED_INFO) keeps the interval.
    fn tune(&mut self) -> io::Result<()> {
        if self.needs.budget_bp.is_none() {
            return Ok(());
        }
        let Some(spent) = cpu_time(self.thread) else { return Ok(()) };
        let Some((spent_before, at)) = self.tuned.replace((spent, Instant::now())) else { return Ok(()) };
        let passed = Time::from_ns(at.elapsed().as_nanos() as f64);
        let wanted = self.needs.tuned(self.sampling, spent.since(spent_before), passed);
        if wanted == self.sampling {
            return Ok(());
        }
        self.sampling = wanted;
        self.write_interval("sample", wanted)?;
        self.change(&self.targets)?;
        if let Some(reports) = &mut self.reports {
            reports.update();
            reports.drop_partial();
        }
        Ok(())
    }

    /// Commits other targets. A target that keeps its slot keeps its regions and their ages.
    fn change(&self, targets: &[Option<Identity>]) -> io::Result<()> {
        self.describe(targets)?;
        self.write("0/state", "commit")
    }

    /// Writes the targets to sysfs without committing them.
    fn describe(&self, targets: &[Option<Identity>]) -> io::Result<()> {
        let many = targets.len().to_string();
        self.write(&format!("{CONTEXT}/targets/nr_targets"), &many)?;
        for (number, target) in targets.iter().enumerate() {
            let folder = format!("{CONTEXT}/targets/{number}");
            let pid = target.map_or_else(getpid, |(pid, _)| pid);
            self.write(&format!("{folder}/pid_target"), &pid.as_raw_nonzero().to_string())?;
            if self.targets.get(number).is_some_and(|before| before != target) {
                self.forget(&folder)?;
            }
        }
        Ok(())
    }

    /// Resets a target to one region at an unmapped page, instead of those of its previous process.
    fn forget(&self, target: &str) -> io::Result<()> {
        self.write(&format!("{target}/regions/nr_regions"), "1")?;
        self.write(&format!("{target}/regions/0/start"), "4096")?;
        self.write(&format!("{target}/regions/0/end"), "8192")
    }

    fn restart(&mut self, wanted: &[Identity]) -> io::Result<()> {
        let targets = places(&[], wanted);
        if let Err(error) = self.start(&targets) {
            // Clean up after a failed start; if another user's thread runs, the kernel refuses that.
            let _ = self.write("nr_kdamonds", "0");
            return Err(error);
        }
        self.settle(targets, wanted);
        let regions_max = (self.needs.regions_max as usize).max(REGIONS_MIN as usize * TARGETS_LIKELY);
        match Aggregated::of(self.thread, regions_max, self.needs.aggregation) {
            Ok(reports) => {
                self.reports = Some(reports);
                Ok(())
            }
            Err(error) => {
                self.stop()?;
                Err(error)
            }
        }
    }

    fn settle(&mut self, targets: Vec<Option<Identity>>, wanted: &[Identity]) {
        if let Some(reports) = &mut self.reports {
            reports.update();
            let changed = |&number: &usize| self.targets.get(number) != targets.get(number);
            (0..targets.len()).filter(changed).for_each(|number| reports.forget(number));
        }
        let at = |process: &Identity| targets.iter().position(|target| *target == Some(*process));
        self.watched = wanted.iter().map(|process| at(process).expect("a target for each")).collect();
        self.targets = targets;
    }
}

/// The starter of the first running thread among this many, and its state file; those of dead daemons are
/// skipped.
fn user(used: &str) -> io::Result<Option<(Starter, String)>> {
    for number in 0..used.trim().parse().unwrap_or(0u32) {
        let file = format!("{ROOT}/{number}/state");
        if fs::read_to_string(&file)?.trim() == "on" {
            match left_over::starter(thread(number)?) {
                Starter::Dead => {}
                starter => return Ok(Some((starter, file))),
            }
        }
    }
    Ok(None)
}

/// Who may have started a DAMON kernel thread that memtide did not start: sysfs does not say.
fn owner() -> String {
    let name = |process: procfs::process::Process| Some((process.pid, process.stat().ok()?.comm));
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    let is_damo = |(_, name): &(i32, String)| name.starts_with("damo");
    match all.filter_map(name).find(is_damo) {
        Some((pid, name)) => {
            format!("probably {name}, process {pid} (`damo stop` ends what damo has started)")
        }
        _ => "another program or an administrator; if damo started it, `damo stop` ends it".to_owned(),
    }
}

fn not_root() -> Unusable {
    Unusable { why: "DAMON needs root".to_owned(), remedy: Some(Remedy::Root) }
}

/// The meaning of a kernel error.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            " (DAMON is in use; on Linux 6.17 and later `echo N > /sys/module/damon_stat/parameters/enabled`)"
        }
        _ => "",
    }
}

impl RegionMonitor for Damon {
    fn watch(&mut self, processes: &[Process]) -> io::Result<()> {
        let wanted: Vec<Identity> = processes.iter().map(Process::identity).collect();
        let targets = places(&self.targets, &wanted);
        let gaps = targets.len() - wanted.len();
        let is_at_work = !self.targets.is_empty() && self.is_its_own().unwrap_or(false);
        let goes_on = is_at_work && !wanted.is_empty() && gaps <= wanted.len();
        if !goes_on || self.change(&targets).is_err() {
            // If a process exits during the commit, the kernel refuses it, and some kernels stop the thread.
            self.stop()?;
            return if wanted.is_empty() { Ok(()) } else { self.restart(&wanted) };
        }
        self.settle(targets, &wanted);
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<Vec<Found>>> {
        if self.watched.is_empty() {
            return Ok(Vec::new());
        }
        if self.state()? != "on" {
            self.stop()?;
            return Err(io::Error::other("it ended, as after its last process"));
        }
        if !self.is_its_own()? {
            self.stop()?;
            return Err(io::Error::other("another program took it"));
        }
        let reports = self.reports.as_mut().expect("reports while processes are watched");
        reports.update();
        let latest = self.watched.iter().map(|&target| reports.latest(target)).collect();
        let samples = self.needs.aggregation.0 / self.sampling.0.max(1);
        self.samples = if reports.take_new() { samples as u32 } else { 0 };
        self.tune()?;
        Ok(latest)
    }

    fn samples(&self) -> Option<u32> {
        self.needs.budget_bp.map(|_| self.samples)
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        // A refusal leaves nothing else to do.
        let _ = self.stop();
    }
}

/// The targets for these processes. A process that was watched keeps its slot; a new one takes a free slot;
/// free slots stay empty, except at the end.
fn places(before: &[Option<Identity>], wanted: &[Identity]) -> Vec<Option<Identity>> {
    let mut new = wanted.iter().filter(|process| !before.contains(&Some(**process))).copied();
    let stays = |process: &Identity| wanted.contains(process);
    let mut places: Vec<_> =
        before.iter().map(|target| target.filter(stays).or_else(|| new.next())).collect();
    places.extend(new.map(Some));
    let end = places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    places.truncate(end);
    places
}

/// CPU time of a thread so far.
fn cpu_time(thread: i32) -> Option<Time> {
    let known = procfs::process::Process::new(thread).ok()?.schedstat().ok()?;
    Some(Time::from_ns(known.sum_exec_runtime as f64))
}

/// The thread id of a DAMON kernel thread.
fn thread(number: u32) -> io::Result<i32> {
    let file = format!("{ROOT}/{number}/pid");
    let text = fs::read_to_string(&file)?;
    text.trim().parse().map_err(|_| io::Error::other(format!("{file} is '{}'", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    fn some(pids: &[i32]) -> Vec<Option<Identity>> {
        pids.iter().map(|&pid| Pid::from_raw(pid).map(|pid| (pid, 7))).collect()
    }

    #[test]
    fn watched_process_keeps_its_slot_and_gaps_are_filled_first() {
        for (before, wanted, after) in [
            (&[][..], &[3, 4][..], &[3, 4][..]),
            (&[3, 4], &[2, 3, 4], &[3, 4, 2]),
            (&[3, 4, 2], &[4], &[0, 4]),
            (&[0, 4], &[4, 5, 6], &[5, 4, 6]),
            (&[5, 4, 6], &[4, 7], &[7, 4]),
            (&[5, 4, 6], &[], &[]),
        ] {
            let wanted: Vec<Identity> = some(wanted).into_iter().flatten().collect();
            assert_eq!(places(&some(before), &wanted), some(after), "{before:?}");
        }
        let again = (Pid::from_raw(3).expect("a pid"), 8);
        assert_eq!(places(&some(&[3, 4]), &[again]), [Some(again)], "another process of the same number");
    }
}
