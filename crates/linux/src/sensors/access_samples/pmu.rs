//! What this system's processor can sample with addresses: its performance monitoring units in sysfs.

use std::fs;
use std::path::Path;

use perf_event::data::{DataSource, MemLevel, MemLevelNum};
use perf_event::events::Software;
use perf_event::{Builder, SampleSkid};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// Sampled instructions of AMD (IBS op).
const IBS_OP: &str = "ibs_op";

/// The cores of Intel's processors; performance cores of hybrid ones.
const INTEL: [&str; 2] = ["cpu", CORES];
const CORES: &str = "cpu_core";

/// The CPUs of the latter, in sysfs.
const CORES_CPUS: &str = "bus/event_source/devices/cpu_core/cpus";

/// Retired loads that missed the third cache, with their addresses: MEM_LOAD_RETIRED.L3_MISS, event 0xd1,
/// mask 0x20, of Intel's cores since Haswell (Intel's perfmon events).
const L3_MISS: u64 = 0x20d1;

/// Memory behind a CXL link (linux/perf_event.h: PERF_MEM_LVLNUM_CXL, Linux 6.2).
const CXL: MemLevelNum = MemLevelNum::new(0x9);

/// An event whose samples say addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledEvent {
    unit: Unit,
    /// The unit's number, and its configuration.
    number: u32,
    config: u64,
    /// Whose CPUs have it; `None`: all.
    cpus: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pebs,
    Ibs,
    PageFaults,
}

impl SampledEvent {
    /// Misses of the last cache, as the processor samples them.
    ///
    /// # Errors
    /// Why it does not.
    pub fn misses() -> Result<SampledEvent, String> {
        SampledEvent::misses_of(Path::new(DEVICES))
    }

    /// The same, of a copy of sysfs.
    fn misses_of(devices: &Path) -> Result<SampledEvent, String> {
        let unit =
            |name: &str| number(&devices.join(name).join("type")).and_then(|unit| unit.try_into().ok());
        if let Some(number) = unit(IBS_OP) {
            let bit = |option| bit(&devices.join(IBS_OP).join("format").join(option));
            let counts_operations = bit("cnt_ctl").ok_or("IBS of this processor cannot count operations")?;
            let config = counts_operations | bit("l3missonly").unwrap_or(0);
            return Ok(SampledEvent { unit: Unit::Ibs, number, config, cpus: None });
        }
        let has_addresses = |name: &str| devices.join(name).join("events/mem-loads").exists();
        let intel = INTEL.into_iter().find(|name| has_addresses(name));
        if let Some((name, number)) = intel.and_then(|name| Some((name, unit(name)?))) {
            let cpus = (name == CORES).then_some(CORES_CPUS);
            return Ok(SampledEvent { unit: Unit::Pebs, number, config: L3_MISS, cpus });
        }
        Err("this processor, or the kernel, samples no addresses: neither AMD's IBS nor Intel's PEBS with \
             mem-loads is in /sys/bus/event_source/devices (virtual machines mostly have none)"
            .to_owned())
    }

    /// Page faults without I/O, once they are served: on any Linux.
    #[must_use]
    pub fn page_faults() -> SampledEvent {
        SampledEvent {
            unit: Unit::PageFaults,
            number: 1,
            config: Software::PAGE_FAULTS_MIN.into(),
            cpus: None,
        }
    }

    /// The file of sysfs that lists the CPUs that sample it, if not all do.
    pub(super) fn cpus(&self) -> Option<&'static str> {
        self.cpus
    }

    /// Its name in texts.
    pub(super) fn name(&self) -> &'static str {
        match self.unit {
            Unit::Pebs => "Intel's PEBS: one of {} loads that miss",
            Unit::Ibs => "AMD's IBS: one of {} operations",
            Unit::PageFaults => "one of {} page faults",
        }
    }

    /// Sampling of one of `period` events.
    pub(super) fn builder(&self, period: u32) -> Builder<'static> {
        let mut builder = Builder::new(Software::DUMMY);
        let attributes = builder.attrs_mut();
        (attributes.type_, attributes.config) = (self.number, self.config);
        match self.unit {
            Unit::Pebs => _ = builder.precise_ip(SampleSkid::RequestZero),
            // IBS cannot leave out the kernel.
            Unit::Ibs => _ = builder.include_kernel().include_hv(),
            Unit::PageFaults => {}
        }
        builder.sample_period(self.valid_period(period).into());
        builder
    }

    /// The period to start with, for one of this many misses.
    pub(super) fn first_period(&self, misses: u32) -> u32 {
        let per_miss = if self.unit == Unit::Ibs { OPERATIONS_PER_MISS } else { 1 };
        self.valid_period(misses.saturating_mul(per_miss))
    }

    /// The period that is nearest to one, of those that can be had.
    pub(super) fn valid_period(&self, period: u32) -> u32 {
        match self.unit {
            Unit::Ibs => period.clamp(IBS_PERIOD_MIN, 1 << 26) & !15,
            Unit::Pebs | Unit::PageFaults => period.max(1),
        }
    }

    /// Whether a sampled access waited for memory.
    pub(super) fn missed(&self, from: DataSource) -> bool {
        let rams = MemLevel::LOC_RAM | MemLevel::REM_RAM1 | MemLevel::REM_RAM2;
        match self.unit {
            Unit::Ibs => {
                from.mem_lvl().intersects(rams)
                    || [MemLevelNum::RAM, MemLevelNum::PMEM, CXL].contains(&from.mem_lvl_num())
            }
            Unit::Pebs | Unit::PageFaults => true,
        }
    }
}

/// Operations per miss, until the budget tunes the period.
const OPERATIONS_PER_MISS: u32 = 256;

/// Minimum operations per sample: 50,000 samples a second of a core that retires 3 operations a nanosecond.
const IBS_PERIOD_MIN: u32 = 1 << 16;

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The bit of the configuration that sysfs gives for an option of one bit: `config:19`.
fn bit(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let bit: u32 = text.trim().strip_prefix("config:")?.parse().ok()?;
    1_u64.checked_shl(bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (file, text) in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    fn misses_of(files: &[(&str, &str)]) -> Result<(Unit, u32, u64), String> {
        let folder = devices(files);
        SampledEvent::misses_of(folder.path()).map(|event| (event.unit, event.number, event.config))
    }

    #[test]
    fn event_is_the_one_that_sysfs_offers() {
        let zen3 = [("ibs_op/type", "11\n"), ("ibs_op/format/cnt_ctl", "config:19\n")];
        assert_eq!(misses_of(&zen3), Ok((Unit::Ibs, 11, 1 << 19)));
        let zen4 = [&zen3[..], &[("ibs_op/format/l3missonly", "config:16\n"), ("cpu/type", "4\n")]].concat();
        assert_eq!(misses_of(&zen4), Ok((Unit::Ibs, 11, 1 << 19 | 1 << 16)));
        let xeon = [("cpu/type", "4\n"), ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n")];
        assert_eq!(misses_of(&xeon), Ok((Unit::Pebs, 4, 0x20d1)));
        let hybrid = [("cpu_core/type", "4\n"), ("cpu_core/events/mem-loads", ""), ("cpu_atom/type", "10\n")];
        assert_eq!(misses_of(&hybrid), Ok((Unit::Pebs, 4, 0x20d1)));
    }

    #[test]
    fn unknown_units_and_broken_files_are_refused_with_the_reason() {
        for files in [
            &[][..],
            &[("cpu/type", "4\n")],
            &[("cpu/type", "four\n"), ("cpu/events/mem-loads", "")],
            &[("cpu/type", "99999999999\n"), ("cpu/events/mem-loads", "")],
        ] {
            let why = misses_of(files).expect_err("nothing to sample");
            assert!(why.contains("neither AMD's IBS nor Intel's PEBS"), "{why}");
        }
        for option in ["config:64\n", "config1:0\n", "config:0-7\n", ""] {
            let old = [("ibs_op/type", "11\n"), ("ibs_op/format/cnt_ctl", option)];
            assert_eq!(misses_of(&old), Err("IBS of this processor cannot count operations".to_owned()));
        }
    }

    #[test]
    fn periods_are_valid() {
        let ibs = SampledEvent { unit: Unit::Ibs, number: 11, config: 0, cpus: None };
        for (period, valid) in [(0, 1 << 16), (100_001, 100_000), (u32::MAX, 1 << 26)] {
            assert_eq!(ibs.valid_period(period), valid);
        }
        assert_eq!(SampledEvent::page_faults().valid_period(0), 1);
        assert_eq!((ibs.first_period(1024), ibs.valid_period(1 << 18)), (1 << 18, 1 << 18), "it is kept");
    }
}
