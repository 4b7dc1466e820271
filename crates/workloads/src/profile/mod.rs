//! Profiles: synthetic programs with the known traffic of real ones.

mod domains;
mod synthetic;

use std::sync::LazyLock;

use serde::Deserialize;

use memtide_core::params::Parameter;

use crate::info::Info;
use crate::params;

pub use domains::Domains;
pub(crate) use synthetic::Synthetic;

const FILES: [&str; 3] = [
    include_str!("../../profiles/bmpm.toml"),
    include_str!("../../profiles/bdm.toml"),
    include_str!("../../profiles/memos.toml"),
];

/// A program described by its traffic.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name as a workload.
    pub name: String,
    /// The program that it models.
    pub summary: String,
    /// The paper that it was run for.
    pub source: String,
    /// Machine file for which it was calibrated, running alone.
    pub machine: String,
    /// Its number of threads there.
    pub threads: u64,
    /// Its memory there, in MiB, at the machine file's scale.
    pub footprint_mib: u64,
    /// Its measured bandwidth, if that is what it was calibrated to.
    pub bandwidth: Option<Bandwidth>,
    /// A thread's mean instructions per accessed line over the whole run.
    pub instructions_per_line: f64,
    /// When lines are accessed.
    pub burst: Burst,
    /// Which lines are accessed.
    pub locality: Locality,
    /// Repeated stages of a run; empty if there is only one.
    pub phases: Vec<Stage>,
}

/// Measured bandwidth of a program, over its whole run.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Bandwidth {
    /// Lines read from memory, in MB/s.
    pub read_mbps: f64,
    /// Lines written to memory, in MB/s; at most the read bandwidth.
    pub write_mbps: f64,
}

/// When a profile's threads access lines: together, at the end of each period.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Share of a period's instructions that are spread among its lines, above 0 and at most 1.
    pub duty: f64,
    /// Instructions per thread and period.
    pub period_instructions: f64,
}

/// Which lines a profile accesses, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Locality {
    /// Accesses that continue the thread's sequential walk through its own part; the others are to any line
    /// of the footprint.
    pub sequential_share: f64,
    /// Accesses to hot pages, among the others.
    pub hot_share: f64,
    /// Pages that are hot.
    pub hot_footprint_share: f64,
    /// Accesses that depend on the previous one, among the others.
    pub dependent_share: f64,
    /// Whether the threads first touch the pages in turn, as a server fills its memory, instead of each its
    /// own part.
    #[serde(default)]
    pub touched_in_turn: bool,
    /// Which pages are written; all alike if absent, in the ratio of the measured bandwidths.
    pub domains: Option<Domains>,
}

/// A stage of a profile's run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its number of periods.
    pub periods: usize,
    /// Lines accessed per period, relative to the run's weighted mean.
    pub draw: f64,
    /// The accessed part of the footprint: its start and end, from 0 to 1.
    pub window: [f64; 2],
}

/// A file of profiles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: String,
    machine: String,
    threads: u64,
    /// Divides the footprints.
    #[serde(default = "unscaled")]
    scale: u64,
    burst: Burst,
    profile: Vec<Entry>,
}

fn unscaled() -> u64 {
    1
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    summary: String,
    /// Instead of the file's.
    threads: Option<u64>,
    footprint_mib: u64,
    #[serde(flatten)]
    bandwidth: Option<Bandwidth>,
    instructions_per_line: f64,
    /// Instead of the file's.
    duty: Option<f64>,
    #[serde(flatten)]
    locality: Locality,
    #[serde(default)]
    phase: Vec<Stage>,
}

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| FILES.into_iter().flat_map(read).collect());

/// All profiles.
pub fn profiles() -> &'static [Profile] {
    &PROFILES
}

fn read(text: &str) -> Vec<Profile> {
    let File { source, machine, threads, scale, burst, profile } =
        toml::from_str(text).expect("a bundled file of profiles is well-formed");
    let complete = |entry: Entry| Profile {
        name: entry.name,
        summary: entry.summary,
        source: source.clone(),
        machine: machine.clone(),
        threads: entry.threads.unwrap_or(threads),
        footprint_mib: (entry.footprint_mib + scale / 2) / scale,
        bandwidth: entry.bandwidth,
        instructions_per_line: entry.instructions_per_line,
        burst: Burst { duty: entry.duty.unwrap_or(burst.duty), ..burst },
        locality: entry.locality,
        phases: entry.phase,
    };
    profile.into_iter().map(complete).collect()
}

/// A probability in 65536ths; 1 is 65535 of them.
fn share_65536(share: f64) -> u16 {
    libm::round(share * 65536.0) as u16
}

impl Profile {
    /// Share of stores among its accesses.
    pub fn store_share(&self) -> f64 {
        match (&self.locality.domains, &self.bandwidth) {
            (Some(domains), _) => domains.store_share(&self.locality),
            // Every accessed line is read, and written ones are written back.
            (None, Some(bandwidth)) => bandwidth.write_mbps / bandwidth.read_mbps,
            (None, None) => 0.0,
        }
    }

    fn stresses(&self) -> String {
        match &self.bandwidth {
            Some(Bandwidth { read_mbps, write_mbps }) => format!(
                "draws {read_mbps:.0} MB/s of reads and {write_mbps:.0} MB/s of writes on machine {}, in \
                 bursts",
                self.machine
            ),
            None => format!(
                "{:.1} lines per 1000 instructions, {:.0} % stores, with pages that are mostly written",
                1000.0 / self.instructions_per_line,
                100.0 * self.store_share()
            ),
        }
    }

    /// The profile as a workload, with the profile's values as parameter defaults.
    pub(crate) fn info(&'static self) -> Info {
        let intensity = Parameter::number(
            "instructions_per_line",
            "",
            "mean instructions of a thread per line accessed",
            [1.0, self.instructions_per_line, 1e6],
        );
        let evenness = Parameter::number(
            "evenness",
            "",
            "mean over highest of the lines of its threads: below 1, the first thread accesses more lines \
             than the others",
            [0.01, 1.0, 1.0],
        );
        let duty = Parameter::number(
            "duty",
            "",
            "share of the instructions that are spread among the lines: below 1, lines are accessed in \
             bursts",
            [0.01, self.burst.duty, 1.0],
        );
        let parameters = vec![
            params::nominal_footprint_mib(self.footprint_mib),
            intensity,
            duty,
            evenness,
            params::operations(4_000_000),
            params::threads(self.threads),
            params::PAGE,
        ];
        Info {
            name: &self.name,
            summary: &self.summary,
            stresses: self.stresses().leak(),
            source: &self.source,
            parameters: parameters.leak(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_match_bdm_table_1() {
        // Columns: seconds, millions of lines read and written.
        let table = [
            ("is", 31.0, 758.0, 338.0),
            ("ep", 462.0, 2739.0, 1028.0),
            ("cg", 319.0, 31174.0, 810.0),
            ("mg", 129.0, 7507.0, 2940.0),
            ("ft", 335.0, 18555.0, 17270.0),
            ("bt", 920.0, 45682.0, 17270.0),
            ("sp", 626.0, 92526.0, 47727.0),
            ("lu", 733.0, 84716.0, 38302.0),
        ];
        for (name, seconds, reads, writes) in table {
            let profile = profiles().iter().find(|profile| profile.name == format!("bdm-{name}")).unwrap();
            let bandwidth = profile.bandwidth.unwrap();
            assert!((bandwidth.read_mbps - reads * 64.0 / seconds).abs() < 0.06, "{name}");
            assert!((bandwidth.write_mbps - writes * 64.0 / seconds).abs() < 0.06, "{name}");
        }
        assert_eq!(profiles().iter().filter(|profile| profile.machine == "bdm").count(), table.len());
    }

    #[test]
    fn shares_are_shares() {
        for profile in profiles() {
            let Locality { sequential_share, hot_share, hot_footprint_share, dependent_share, .. } =
                profile.locality;
            for share in
                [sequential_share, hot_share, hot_footprint_share, dependent_share, profile.burst.duty]
            {
                assert!((0.0..=1.0).contains(&share), "{}: {share}", profile.name);
            }
            assert!(profile.burst.duty > 0.0 && (0.0..=1.0).contains(&profile.store_share()));
            assert!(profile.bandwidth.is_some() || profile.locality.domains.is_some(), "{}", profile.name);
            for Stage { window: [from, to], periods, draw } in &profile.phases {
                assert!(0.0 <= *from && from < to && *to <= 1.0 && *periods > 0 && *draw > 0.0);
            }
        }
    }
}
