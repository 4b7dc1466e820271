//! Time scale: a guest has a part of the machine's memory, so that a program is through with it sooner, while
//! the kernel and the daemons act as often as on the whole machine. All their times are divided alike, and
//! their limits per interval; rates and shares stay.

use memtide_lab_protocol::agent::Write;

use crate::subjects::write;

const NUMA_BALANCING: &str = "/sys/kernel/debug/sched/numa_balancing";
const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";

/// Linux's defaults: `sysctl_numa_balancing_*` of kernel/sched/fair.c, in ms and MiB per scan.
const OF_NUMA_BALANCING: [(&str, u32); 5] = [
    ("scan_delay_ms", 1000),
    ("scan_period_min_ms", 1000),
    ("scan_period_max_ms", 60_000),
    ("scan_size_mb", 256),
    ("hot_threshold_ms", 1000),
];

/// Linux's defaults of mm/khugepaged.c, in ms and pages per scan: x86-64.
const OF_KHUGEPAGED: [(&str, u32); 3] =
    [("scan_sleep_millisecs", 10_000), ("alloc_sleep_millisecs", 60_000), ("pages_to_scan", 4096)];

/// A factor by which times are divided; 1: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeScale(u32);

impl TimeScale {
    /// A factor of at least 1.
    pub fn new(factor: u32) -> TimeScale {
        TimeScale(factor.max(1))
    }

    /// The factor.
    pub fn factor(self) -> u32 {
        self.0
    }

    /// khugepaged's settings.
    pub(crate) fn khugepaged(self) -> Vec<Write> {
        self.writes(KHUGEPAGED, &OF_KHUGEPAGED)
    }

    /// NUMA balancing's settings.
    pub(crate) fn numa_balancing(self) -> Vec<Write> {
        self.writes(NUMA_BALANCING, &OF_NUMA_BALANCING)
    }

    /// Nothing without a time scale: the kernel's own values stay, whatever they are.
    fn writes(self, folder: &str, settings: &[(&str, u32)]) -> Vec<Write> {
        let settings = settings.iter().filter(|_| self.0 > 1);
        let divided = |value: u32| ((value + self.0 / 2) / self.0).max(1);
        settings.map(|&(file, value)| write(&format!("{folder}/{file}"), divided(value))).collect()
    }

    /// damo's options: durations and sizes, which are per interval, are those with a unit.
    pub(crate) fn options(self, text: &str) -> String {
        if self.0 == 1 {
            return text.to_owned();
        }
        text.split(' ').map(|word| self.quotient(word)).collect::<Vec<_>>().join(" ")
    }

    fn quotient(self, word: &str) -> String {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let Ok(number) = word[..word.len() - unit.len()].parse::<u64>() else { return word.to_owned() };
        let (number, unit) = match unit {
            "s" => (number * 1_000_000, "us"),
            "ms" => (number * 1000, "us"),
            "G" => (number << 30, ""),
            "MB" => (number << 20, ""),
            _ => return word.to_owned(),
        };
        format!("{}{unit}", number / u64::from(self.0))
    }
}

impl Default for TimeScale {
    fn default() -> TimeScale {
        TimeScale(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_settings_are_divided() {
        let texts = |factor| {
            let writes = TimeScale::new(factor).numa_balancing();
            writes.into_iter().map(|write| write.text).collect::<Vec<_>>()
        };
        assert_eq!(texts(10), ["100", "100", "6000", "26", "100"]);
        assert!(texts(1).is_empty());
    }

    #[test]
    fn options_with_a_unit_are_divided() {
        let scale = TimeScale::new(8);
        assert_eq!(
            scale.options(
                "--intervals 4% 3 5ms 10s --size 4096 max --age 30s max --quota 1s 50G 200MB 0.5% 1"
            ),
            "--intervals 4% 3 625us 1250000us --size 4096 max --age 3750000us max \
             --quota 125000us 6710886400 26214400 0.5% 1"
        );
        assert_eq!(TimeScale::default().options("--age 30s max"), "--age 30s max");
    }
}
