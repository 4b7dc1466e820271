//! Cores and caches.

use super::TopologyError;
use super::sysfs::Sysfs;

const CPUS: &str = "devices/system/cpu";

/// A data or unified cache, as one CPU sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Level; 1 is nearest to the core.
    pub level: u8,
    /// Capacity per instance in KiB.
    pub capacity_kib: u64,
    /// Associativity.
    pub ways: u16,
    /// CPUs that share an instance, including hardware threads.
    pub cpus: u16,
}

/// Cores, all assumed equal to the first online one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processor {
    /// Hardware threads per core, at least 1.
    pub threads_per_core: u16,
    /// Maximum clock in MHz, if the kernel reports it.
    pub clock_mhz: Option<f64>,
    /// Data caches, nearest to the core first; empty where the hypervisor hides them.
    pub caches: Vec<Cache>,
}

/// The first online CPU, its core and caches.
pub fn processor(sysfs: &Sysfs) -> Result<Processor, TopologyError> {
    let online = sysfs.online_cpus()?;
    let cpu = format!("{CPUS}/cpu{}", online.first().copied().unwrap_or(0));
    let threads = sysfs.list(&format!("{cpu}/topology/thread_siblings_list"))?.map_or(1, |list| list.len());
    let khz: Option<f64> = sysfs.value(&format!("{cpu}/cpufreq/cpuinfo_max_freq"))?;
    let folder = format!("{cpu}/cache");
    let mut caches = Vec::new();
    for index in sysfs.numbered::<u16>(&folder, "index")? {
        caches.extend(cache(sysfs, &format!("{folder}/index{index}"))?);
    }
    caches.sort_by_key(|cache| cache.level);
    Ok(Processor { threads_per_core: threads.max(1) as u16, clock_mhz: khz.map(|khz| khz / 1e3), caches })
}

/// `None` for an instruction cache, or one whose geometry the kernel does not report.
fn cache(sysfs: &Sysfs, folder: &str) -> Result<Option<Cache>, TopologyError> {
    let file = |name: &str| format!("{folder}/{name}");
    if sysfs.text(&file("type"))?.is_none_or(|kind| kind == "Instruction") {
        return Ok(None);
    }
    let level = sysfs.value(&file("level"))?;
    let capacity_kib = sysfs.read(&file("size"), kib)?;
    let ways = sysfs.value(&file("ways_of_associativity"))?;
    let cpus = sysfs.list(&file("shared_cpu_list"))?.map_or(1, |list| list.len() as u16);
    let (Some(level), Some(capacity_kib), Some(ways @ 1..)) = (level, capacity_kib, ways) else {
        return Ok(None);
    };
    Ok(Some(Cache { level, capacity_kib, ways, cpus }))
}

fn kib(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.len().checked_sub(1)?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "K" => Some(number),
        "M" => Some(number << 10),
        _ => None,
    }
}
