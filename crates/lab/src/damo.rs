//! damo, DAMON's user-space tool, in the guest, with its authors' configurations for two tiers, or changed
//! ones.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use memtide_core::params::{Parameter, Params, Values};
use memtide_lab_protocol::agent::{Preparation, Program};

use crate::archive::Archive;
use crate::cache::damo::{PROGRAM, PYTHON};
use crate::error::LabError;
use crate::host_files::{add, find, refused};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::time_scale::TimeScale;

/// Its path in the guest until the program starts.
const FOLDER: &str = "/opt/damo";

/// damo runs it for the kernel's release.
const UNAME: &str = "uname";

/// First Linux with the actions `migrate_hot` and `migrate_cold`, with node-utilisation quota goals, and with
/// a module that uses DAMON from boot.
const MIGRATES: Release = (6, 11);
const TUNES: Release = (6, 16);
pub const HAS_STAT: Release = (6, 17);

/// Major and minor number of a kernel.
pub type Release = (u32, u32);

/// Parts of the time that demotions and promotions may take: one in this many.
const DEMOTIONS: u64 = 20;
const PROMOTIONS: u64 = 10;

/// What may be changed of the configuration for Linux 6.11 to 6.15.
pub const PARAMETERS: [Parameter; 6] = [
    Parameter::integer("sampling_ms", "ms", "time between two samples of a region", [1, 100, 10_000]),
    Parameter::integer("aggregation_ms", "ms", "time whose samples are counted", [1, 2000, 600_000]),
    Parameter::integer(
        "interval_ms",
        "ms",
        "time between two updates of regions, and of the limits of work",
        [10, 20_000, 600_000],
    ),
    Parameter::integer("hot", "%", "least share of accessed samples to be promoted", [1, 5, 100]),
    Parameter::integer("cold", "%", "greatest share of accessed samples to be demoted", [0, 0, 99]),
    Parameter::integer("cold_ms", "ms", "how long it must have been that cold", [0, 30_000, 600_000]),
];

/// Which configuration of damo.
#[derive(Clone, Debug, PartialEq)]
pub enum Setup {
    /// Its authors' for the kernel.
    Authors,
    /// That for Linux 6.11 to 6.15 with other [`PARAMETERS`].
    Changed(Values),
}

impl Setup {
    /// Parses what follows `damo` in a subject's name.
    ///
    /// # Errors
    /// If it is not a list of [`PARAMETERS`]; says why.
    pub fn parse(text: &str) -> Result<Setup, String> {
        let Some(params) = text.strip_prefix(':') else { return Ok(Setup::Authors) };
        let values = params.parse::<Params>().and_then(|params| params.values(&PARAMETERS));
        let values = values.map_err(|error| error.to_string())?;
        for (less, more) in
            [("sampling_ms", "aggregation_ms"), ("aggregation_ms", "interval_ms"), ("cold", "hot")]
        {
            let [least, most] = [less, more].map(|name| values.u64(name));
            if least > most {
                return Err(format!("{less} is {least}, {more} is {most}; {more} must be at least {less}"));
            }
        }
        Ok(Setup::Changed(values))
    }

    fn style(&self, linux: Release) -> Style {
        match self {
            Setup::Authors if linux < TUNES => {
                Style::fixed(&Params::new().values(&PARAMETERS).expect("defaults"))
            }
            Setup::Authors => Style::tuned(),
            Setup::Changed(values) => Style::fixed(values),
        }
    }
}

/// A configuration: options of a kdamond for a node (`{from}`) and one of the other tier (`{to}`), and count
/// options that are 1 for each.
struct Style {
    demote: String,
    promote: String,
    each: &'static [&'static str],
}

impl Style {
    /// For Linux 6.16 and later: `scripts/mem_tier.sh` of damo's repository. Quotas are tuned to 99.7 % of a
    /// fast node used and 0.5 % free, at up to 200 MB/s. The monitoring intervals at first are damo's
    /// defaults.
    fn tuned() -> Style {
        let intervals = "--monitoring_intervals 5ms 100ms 1s --monitoring_intervals_goal 4% 3 5ms 10s";
        let limits = "--damos_apply_interval 1s --damos_quota_interval 1s --damos_quota_space 200MB";
        Style {
            demote: format!(
                "{intervals} --damos_action migrate_cold {{to}} --damos_access_rate 0% 0% {limits} \
                 --damos_quota_goal node_mem_free_bp 0.5% {{from}} --damos_filter reject young"
            ),
            promote: format!(
                "{intervals} --damos_action migrate_hot {{to}} --damos_access_rate 5% max {limits} \
                 --damos_quota_goal node_mem_used_bp 99.7% {{to}} --damos_filter allow young"
            ),
            each: &[
                "--damos_nr_quota_goals",
                "--damos_nr_filters",
                "--nr_targets",
                "--nr_schemes",
                "--nr_ctxs",
            ],
        }
    }

    /// For Linux 6.11 to 6.15: `tools/gen_migpol.py --global` of SK hynix's HMSDK, whose authors wrote the
    /// actions. Demotions may take a twentieth of the time, promotions a tenth.
    fn fixed(values: &Values) -> Style {
        let [sampling, aggregation, interval, age] =
            ["sampling_ms", "aggregation_ms", "interval_ms", "cold_ms"].map(|name| values.u64(name));
        let [hot, cold] = ["hot", "cold"].map(|name| values.u64(name));
        let intervals = format!(
            "--monitoring_intervals {} {} {} --monitoring_nr_regions_range 100 10000",
            time(sampling),
            time(aggregation),
            time(interval)
        );
        let quota =
            |share: u64| format!("--damos_quotas {} 50G {} 0 0 1%", time(interval / share), time(interval));
        let (demotions, promotions, age) = (quota(DEMOTIONS), quota(PROMOTIONS), time(age));
        Style {
            demote: format!(
                "{intervals} --damos_action migrate_cold {{to}} --damos_sz_region 4096 max \
                 --damos_filter young matching --damos_access_rate 0% {cold}% --damos_age {age} max \
                 {demotions}"
            ),
            promote: format!(
                "{intervals} --damos_action migrate_hot {{to}} --damos_sz_region 4096 max \
                 --damos_filter young nomatching --damos_access_rate {hot}% 100% --damos_age 0 max \
                 {promotions}"
            ),
            each: &["--damos_nr_filters", "--nr_targets", "--nr_schemes", "--nr_ctxs"],
        }
    }
}

/// As damo reads it.
fn time(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

/// damo and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damo {
    /// The fetched tool.
    pub files: PathBuf,
    /// Arguments of each invocation.
    pub commands: Vec<String>,
}

/// A kdamond for each node: idle pages of a fast node move to the nearest slow one, accessed pages of a slow
/// node to the nearest fast one.
///
/// # Errors
/// If the machine does not have two tiers or the kernel lacks a required feature; says which.
pub fn commands(
    setup: &Setup,
    layout: &Layout,
    linux: Release,
    scale: TimeScale,
) -> Result<Vec<String>, String> {
    if linux < MIGRATES {
        let ((major, minor), (least, most)) = (linux, MIGRATES);
        return Err(format!(
            "Linux {major}.{minor} does not migrate with DAMON; take {least}.{most} or later"
        ));
    }
    if let Setup::Changed(values) = setup {
        let (interval_ms, least) = (values.u64("interval_ms"), u64::from(scale.factor()) * DEMOTIONS);
        if interval_ms < least {
            return Err(format!(
                "interval_ms is {interval_ms}; with time scale {} it must be at least {least}, as damo \
                 takes a limit of less than 1 ms of work as none",
                scale.factor()
            ));
        }
    }
    let start = scale.options(&start(layout, &setup.style(linux))?);
    let stop_stat = (linux >= HAS_STAT).then(|| "module stat write enabled N".to_owned());
    Ok(stop_stat.into_iter().chain([start]).collect())
}

impl Damo {
    /// Its command lines.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.commands.iter().map(|command| format!("damo {command}"))
    }

    /// Puts it into the guest.
    pub(crate) fn add_to(&self, archive: &mut Archive) -> Result<Preparation, LabError> {
        let guest = Path::new(FOLDER);
        let uname = find(OsStr::new(UNAME))
            .ok_or_else(|| refused(OsStr::new(UNAME), "is missing, and damo needs it in the guest"))?;
        add(archive, &guest.join("bin").join(UNAME), &uname, 0)?;
        add(archive, &guest.join(PYTHON), &self.files.join(PYTHON), 0)?;
        add_folder(archive, guest, &self.files)?;
        let programs = self.commands.iter().map(|command| program(guest, command)).collect();
        Ok(Preparation { programs, folder: guest.to_owned() })
    }
}

fn program(folder: &Path, command: &str) -> Program {
    let text = |path: PathBuf| path.display().to_string();
    let environment = [
        ("PATH", text(folder.join("bin"))),
        ("HOME", text(folder.to_owned())),
        ("PYTHONHOME", text(folder.to_owned())),
    ];
    let words = ["damo".to_owned(), text(folder.join(PROGRAM))].into_iter();
    Program {
        file: folder.join(PYTHON),
        arguments: words.chain(command.split_whitespace().map(str::to_owned)).collect(),
        environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
        folder: folder.to_owned(),
    }
}

/// Adds plain files only; scripts among them come without their interpreters.
fn add_folder(archive: &mut Archive, guest: &Path, host: &Path) -> Result<(), LabError> {
    let unreadable = || LabError::file(host, "read it for the guest");
    for entry in fs::read_dir(host).map_err(unreadable())? {
        let entry = entry.map_err(unreadable())?;
        let (kind, inside) = (entry.file_type().map_err(unreadable())?, guest.join(entry.file_name()));
        if kind.is_dir() {
            add_folder(archive, &inside, &entry.path())?;
        } else if kind.is_file() {
            archive.host(&inside, &entry.path());
        }
    }
    Ok(())
}

fn start(layout: &Layout, style: &Style) -> Result<String, String> {
    let nodes = &layout.machine.nodes;
    let present: Vec<usize> =
        (0..nodes.len()).filter(|&node| layout.nodes[node].memory != Memory::Absent).collect();
    let mut tiers: Vec<_> = present.iter().map(|&node| nodes[node].tier).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let [fast, slow] = tiers[..] else {
        let count = tiers.len();
        let tiers = if count == 1 { "tier" } else { "tiers" };
        return Err(format!(
            "the machine has {count} {tiers} of memory from the start, and damo's set-up is for 2"
        ));
    };
    let of = |tier| present.iter().copied().filter(move |&node| nodes[node].tier == tier);
    let nearest = |from: usize, tier| of(tier).min_by_key(|&to| (layout.distances[from][to], to));
    let numbers = layout.linux_numbers();
    let thread = |from: usize, to: usize, options: &str| {
        let (from, to) = (numbers[from].to_string(), numbers[to].to_string());
        format!(" --numa_node {from} {}", options.replace("{from}", &from).replace("{to}", &to))
    };
    let demotions = of(fast).filter_map(|from| Some(thread(from, nearest(from, slow)?, &style.demote)));
    let promotions = of(slow).filter_map(|from| Some(thread(from, nearest(from, fast)?, &style.promote)));
    let threads: String = demotions.chain(promotions).collect();
    let ones = " 1".repeat(present.len());
    let counts: String = style.each.iter().map(|option| format!(" {option}{ones}")).collect();
    Ok(format!("start{threads}{counts}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtide_core::Machine;

    fn lines(machine: &str, linux: Release) -> Result<Vec<String>, String> {
        let machine = Machine::parse("test", machine).expect("a machine");
        let layout = Layout::new(&machine, None).expect("a layout");
        commands(&Setup::Authors, &layout, linux, TimeScale::default())
    }

    #[test]
    fn each_node_has_kdamond_to_nearest_node_of_other_tier() {
        let two = include_str!("../../../machines/hinuma.toml");
        let [start] = &lines(two, (6, 12)).unwrap()[..] else { panic!("one command") };
        assert!(start.starts_with("start --numa_node 0 --monitoring_intervals 100ms 2s 20s"), "{start}");
        assert!(start.contains("--damos_action migrate_cold 1 --damos_sz_region 4096 max"), "{start}");
        assert!(start.contains("--numa_node 1 --monitoring_intervals"), "{start}");
        assert!(start.contains("--damos_action migrate_hot 0 "), "{start}");
        assert!(start.ends_with("--nr_targets 1 1 --nr_schemes 1 1 --nr_ctxs 1 1"), "{start}");

        let three = include_str!("../../../machines/ddr5-cxl.toml");
        let start = lines(three, (6, 12)).unwrap().pop().unwrap();
        let counted = |text: &str| start.matches(text).count();
        assert_eq!(
            (counted("migrate_cold 2"), counted("migrate_hot 0"), counted("migrate_hot 1")),
            (2, 1, 0)
        );
        assert!(start.ends_with("--nr_ctxs 1 1 1"), "{start}");
    }

    #[test]
    fn absent_nodes_have_no_kdamond() {
        let machine = include_str!("../../../machines/ddr5-cxl.toml");
        let machine = Machine::parse("test", machine).expect("a machine");
        let start = |name: &str| {
            let named = [(name.to_owned(), Memory::Absent)];
            let layout = Layout::with(&machine, Some(1), &named).expect("a layout");
            start(&layout, &Setup::Authors.style((6, 12)))
        };
        let without = start("dram1").expect("two tiers");
        assert!(without.ends_with("--nr_ctxs 1 1") && !without.contains("--numa_node 1"), "{without}");
        assert!(start("cxl").unwrap_err().contains("1 tier of memory from the start"));
    }

    #[test]
    fn newer_kernels_use_node_utilisation_goals() {
        let all = lines(include_str!("../../../machines/hinuma.toml"), (7, 3)).unwrap();
        assert_eq!(all[0], "module stat write enabled N");
        assert!(all[1].contains("--damos_quota_goal node_mem_free_bp 0.5% 0 --damos_filter reject young"));
        assert!(all[1].contains("--damos_quota_goal node_mem_used_bp 99.7% 0 --damos_filter allow young"));
        assert_eq!(lines(include_str!("../../../machines/hinuma.toml"), (6, 16)).unwrap().len(), 1);
    }

    #[test]
    fn changed_configuration_is_that_of_older_kernels_whatever_the_kernel() {
        let machine =
            Machine::parse("test", include_str!("../../../machines/hinuma.toml")).expect("a machine");
        let layout = Layout::new(&machine, None).expect("a layout");
        let commands = |text, linux, scale| {
            let setup = Setup::parse(text).expect("parameters");
            commands(&setup, &layout, linux, TimeScale::new(scale)).expect("commands").pop().expect("one")
        };
        let authors = commands("", (6, 12), 1);
        assert_eq!(commands(":hot=5", (7, 3), 1), authors);
        let changed = commands(
            ":sampling_ms=4,aggregation_ms=200:interval_ms=2000:hot=30:cold=9:cold_ms=0",
            (6, 12),
            4,
        );
        for expected in [
            "--monitoring_intervals 1000us 50000us 500000us ",
            "--damos_access_rate 0% 9% --damos_age 0us max --damos_quotas 25000us 13421772800 500000us ",
            "--damos_access_rate 30% 100% --damos_age 0 max --damos_quotas 50000us 13421772800 500000us ",
        ] {
            assert!(changed.contains(expected), "{changed}");
        }
        assert!(Setup::parse(":warm=1").unwrap_err().contains("sampling_ms"));
        assert!(Setup::parse(":aggregation_ms=50").unwrap_err().contains("aggregation_ms must be at least"));
        assert!(Setup::parse(":hot=5:cold=6").unwrap_err().contains("hot must be at least cold"));
        let short = Setup::parse(":sampling_ms=1:aggregation_ms=9:interval_ms=79").expect("parameters");
        let error = super::commands(&short, &layout, (6, 12), TimeScale::new(4)).unwrap_err();
        assert!(error.contains("at least 80"), "{error}");
        assert!(Setup::parse(":hot=0").is_err() && Setup::parse(":hot").is_err());
    }

    #[test]
    fn parameters_are_in_docs() {
        let docs = include_str!("../../../docs/lab.md");
        for parameter in &PARAMETERS {
            let Parameter { name, unit, help, .. } = parameter;
            let row =
                format!("| `{name}` | {} | {} | {unit} | {help} |", parameter.range(), parameter.default());
            assert!(docs.contains(&row), "docs/lab.md lacks {row}");
        }
    }

    #[test]
    fn unsupported_machines_and_kernels_are_refused() {
        let two = include_str!("../../../machines/hinuma.toml");
        assert!(lines(two, (6, 10)).unwrap_err().contains("6.11"));
        let one = two.replace("tier = 1", "tier = 0");
        assert_eq!(
            lines(&one, (6, 12)).unwrap_err(),
            "the machine has 1 tier of memory from the start, and damo's set-up is for 2"
        );
    }
}
