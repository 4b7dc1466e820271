//! Linux's DAMON on virtual addresses (Documentation/admin-guide/mm/damon/usage.rst), by its files in sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memtide_core::Time;
use memtide_core::policy::RegionNeeds;
use rustix::process::Pid;

use super::{Found, Monitor};

const ROOT: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// How often DAMON looks at which memory is mapped.
const UPDATE: Time = Time::from_ms(1000);

/// The least regions that it watches a process in.
const REGIONS_MIN: u32 = 10;

/// A kernel thread that watches processes; ends when dropped.
#[derive(Debug)]
pub struct Damon {
    needs: RegionNeeds,
    root: PathBuf,
    watched: usize,
}

impl Damon {
    /// DAMON, watching nobody yet.
    ///
    /// # Errors
    /// If the kernel lacks it, or somebody else uses it.
    pub fn new(needs: &RegionNeeds) -> io::Result<Damon> {
        let damon = Damon { needs: *needs, root: PathBuf::from(ROOT), watched: 0 };
        let used = fs::read_to_string(damon.root.join("nr_kdamonds")).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => {
                    "this kernel has no DAMON (CONFIG_DAMON_SYSFS), or sysfs is not mounted".to_owned()
                }
                io::ErrorKind::PermissionDenied => "DAMON needs root".to_owned(),
                _ => format!("{}: {error}", damon.root.display()),
            };
            io::Error::new(error.kind(), why)
        })?;
        if used.trim() != "0" && damon.state()? == "on" {
            let why = "somebody else uses DAMON; end it, or write `off` to its `state` in /sys/kernel/mm/damon/admin/kdamonds/0";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        Ok(damon)
    }

    fn state(&self) -> io::Result<String> {
        Ok(fs::read_to_string(self.root.join("0/state"))?.trim().to_owned())
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let file = self.root.join(file);
        fs::write(&file, text).map_err(|error| {
            io::Error::new(error.kind(), format!("{text} to {}: {error}{}", file.display(), hint(&error)))
        })
    }

    fn stop(&mut self) -> io::Result<()> {
        self.watched = 0;
        if self.root.join("0/state").exists() && self.state()? == "on" {
            self.write("0/state", "off")?;
        }
        Ok(())
    }

    fn set_up(&self, processes: &[Pid]) -> io::Result<()> {
        const CONTEXT: &str = "0/contexts/0";
        let us = |time: Time| (time.0 / 1_000_000).to_string();
        let interval = |name: &str| format!("{CONTEXT}/monitoring_attrs/intervals/{name}_us");
        let regions = |name: &str| format!("{CONTEXT}/monitoring_attrs/nr_regions/{name}");
        self.write("nr_kdamonds", "1")?;
        self.write("0/contexts/nr_contexts", "1")?;
        self.write(&format!("{CONTEXT}/operations"), "vaddr")?;
        self.write(&interval("update"), &us(UPDATE.max(self.needs.aggregation)))?;
        self.write(&interval("aggr"), &us(self.needs.aggregation))?;
        self.write(&interval("sample"), &us(self.needs.sampling))?;
        self.write(&regions("max"), &self.needs.regions_max.max(REGIONS_MIN).to_string())?;
        self.write(&regions("min"), &REGIONS_MIN.to_string())?;
        self.write(&format!("{CONTEXT}/targets/nr_targets"), &processes.len().to_string())?;
        self.write(&format!("{CONTEXT}/schemes/nr_schemes"), &processes.len().to_string())?;
        for (number, process) in processes.iter().enumerate() {
            let pid = process.as_raw_nonzero().to_string();
            self.write(&format!("{CONTEXT}/targets/{number}/pid_target"), &pid)?;
            self.scheme(&format!("{CONTEXT}/schemes/{number}"), number)?;
        }
        self.write("0/state", "on")
    }

    /// A scheme that does nothing but tell which regions of one target there are: regions do not say whose they are.
    fn scheme(&self, scheme: &str, target: usize) -> io::Result<()> {
        self.write(&format!("{scheme}/action"), "stat")?;
        for (file, most) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
            self.write(&format!("{scheme}/access_pattern/{file}/max"), &most.to_string())?;
        }
        self.write(&format!("{scheme}/filters/nr_filters"), "1")?;
        self.write(&format!("{scheme}/filters/0/type"), "target")?;
        self.write(&format!("{scheme}/filters/0/damon_target_idx"), &target.to_string())?;
        self.write(&format!("{scheme}/filters/0/matching"), "N")
    }
}

/// What the kernel means by an error.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            " (DAMON is in use; on Linux 6.17 and later `echo N > /sys/module/damon_stat/parameters/enabled`)"
        }
        _ => "",
    }
}

impl Monitor for Damon {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn watch(&mut self, processes: &[Pid]) -> io::Result<()> {
        self.stop()?;
        if !processes.is_empty() {
            self.set_up(processes)?;
        }
        self.watched = processes.len();
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<Vec<Found>>> {
        if self.watched == 0 {
            return Ok(Vec::new());
        }
        if self.state()? != "on" {
            return Err(io::Error::other("it has ended, as it does with the last process that it watches"));
        }
        self.write("0/state", "update_schemes_tried_regions")?;
        let schemes = self.root.join("0/contexts/0/schemes");
        (0..self.watched).map(|number| regions(&schemes.join(format!("{number}/tried_regions")))).collect()
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        // Nothing is left to do if the kernel refuses.
        let _ = self.stop().and_then(|()| self.write("nr_kdamonds", "0"));
    }
}

fn regions(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let number = |name: &str| -> io::Result<u64> {
            let text = fs::read_to_string(entry.path().join(name))?;
            text.trim()
                .parse()
                .map_err(|_| io::Error::other(format!("{name} of a region is '{}'", text.trim())))
        };
        let (start, end) = (number("start")? / 4096, number("end")? / 4096);
        let reads = u32::try_from(number("nr_accesses")?).unwrap_or(u32::MAX);
        let age = u32::try_from(number("age")?).unwrap_or(u32::MAX);
        found.push(Found { start, pages: end.saturating_sub(start), reads, writes: 0, age });
    }
    found.retain(|region| region.pages > 0);
    found.sort_by_key(|region| region.start);
    Ok(found)
}
