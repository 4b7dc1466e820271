//! Subjects of a comparison: how the guest places and migrates pages.

use std::path::PathBuf;

use memtide_core::Machine;
use memtide_core::params::split_list_unless;
use memtide_lab_protocol::agent::{MemoryPolicy, Write};

use crate::damo::{Damo, HAS_STAT, Setup, commands};
use crate::error::LabError;
use crate::layout::Layout;
use crate::memtide::{self, Memtide, Policies};
use crate::time_scale::TimeScale;
use crate::tools::Tools;

/// Every subject's syntax, with a description.
pub const SUBJECTS: [(&str, &str); 8] = [
    ("default", "first touch, no migration"),
    ("interleave", "all nodes in turn (MPOL_INTERLEAVE)"),
    ("weighted", "MPOL_WEIGHTED_INTERLEAVE by bandwidth"),
    ("weighted:W1:W2..", "by weights 1 to 255, in node order"),
    ("numab=0|1|2[+demotion]", "kernel.numa_balancing; demotion"),
    ("damo", "DAMON's tool, its authors' set-up"),
    ("damo:NAME=VALUE..", "damo, other values (docs/lab.md)"),
    ("memtide:PLACEMENT[+MIGRATION]", "`memtide run` and the daemon"),
];

/// Prefix of NUMA balancing subjects.
const BALANCING: &str = "numab=";

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const DAMON_STAT: &str = "/sys/module/damon_stat/parameters/enabled";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// `MPOL_INTERLEAVE` of the kernel's `linux/mempolicy.h`.
const INTERLEAVE: u32 = 3;
/// `MPOL_WEIGHTED_INTERLEAVE`, since Linux 6.9.
const WEIGHTED_INTERLEAVE: u32 = 6;

/// Tolerance of weights against the bandwidth ratio: small weights keep interleave rounds short.
const CLOSE: f64 = 0.05;
const SMALLEST_WEIGHTS: std::ops::RangeInclusive<u8> = 1..=16;

/// How the guest places and migrates pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    name: String,
    way: Way,
}

#[derive(Clone, Debug, PartialEq)]
enum Way {
    Default,
    Interleave,
    /// Weights in the machine file's node order; `None`: from bandwidths.
    Weighted(Option<Vec<u8>>),
    Balancing {
        mode: u8,
        demotion: bool,
    },
    Damo(Setup),
    Memtide(Policies),
}

/// A subject's settings in a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// Memory policy of the program at its start.
    pub policy: Option<MemoryPolicy>,
    /// Kernel files written before the program starts.
    pub writes: Vec<Write>,
    /// Weight of each guest node, if the subject uses weights.
    pub weights: Option<Vec<u8>>,
    /// damo, if the subject uses it.
    pub damo: Option<Damo>,
    /// memtide, if the subject uses it.
    pub memtide: Option<Memtide>,
}

impl Subject {
    /// Parses a subject in the syntax of [`SUBJECTS`].
    ///
    /// # Errors
    /// If there is no such subject; lists what is allowed.
    pub fn parse(text: &str) -> Result<Subject, LabError> {
        let way = match text {
            "default" => Some(Way::Default),
            "interleave" => Some(Way::Interleave),
            "weighted" => Some(Way::Weighted(None)),
            _ => damo(text)?
                .or_else(|| memtide_policies(text))
                .or_else(|| weights_of(text))
                .or_else(|| balancing(text)),
        };
        way.map(|way| Subject { name: text.to_owned(), way }).ok_or_else(|| {
            let known: Vec<String> = SUBJECTS.map(|(name, what)| format!("\n  {name}: {what}")).into();
            let what = format!("unknown subject; known:{}", known.concat());
            LabError::Subject { subject: text.to_owned(), what }
        })
    }

    /// Parses comma-separated subjects; parameters of memtide's policies may contain commas, too.
    ///
    /// # Errors
    /// As [`Subject::parse`].
    pub fn parse_list(text: &str) -> Result<Vec<Subject>, LabError> {
        let items = split_list_unless(text, |piece| piece.starts_with(BALANCING));
        items.into_iter().map(Subject::parse).collect()
    }

    /// The subject as entered.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it uses accessed bits of page tables, which are exact only while the clock plugin drives
    /// QEMU's TLB.
    pub fn needs_accessed_bits(&self) -> bool {
        let migrates = |policies: &Policies| policies.migration.is_some();
        matches!(self.way, Way::Balancing { demotion: true, .. } | Way::Damo(_))
            || self.policies().is_some_and(migrates)
    }

    /// memtide's policies, if it uses them.
    pub fn policies(&self) -> Option<&Policies> {
        match &self.way {
            Way::Memtide(policies) => Some(policies),
            _ => None,
        }
    }

    /// Whether it needs tiers and Linux sees only one: Linux puts every node with CPUs into the fastest tier.
    pub fn lacks_tiers(&self, layout: &Layout) -> bool {
        let tiering =
            matches!(self.way, Way::Balancing { mode: 2, .. } | Way::Balancing { demotion: true, .. });
        let nodes = layout.nodes.iter().take(layout.machine.nodes.len());
        tiering && nodes.clone().all(|node| !node.vcpus.is_empty())
    }

    /// Whether it uses NUMA hint faults.
    pub fn needs_hint_faults(&self) -> bool {
        matches!(self.way, Way::Balancing { mode: 1.., .. })
    }

    /// Its settings in the guest of a layout.
    ///
    /// # Errors
    /// If there is not one weight per node, or damo is missing or does not support the machine or kernel.
    pub fn setting(
        &self,
        machine: &Machine,
        layout: &Layout,
        tools: &Tools,
        scale: TimeScale,
    ) -> Result<Setting, LabError> {
        let numbers = layout.linux_numbers();
        let all = |mode| Some(MemoryPolicy { mode, nodes: numbers.iter().map(|number| 1 << number).sum() });
        let quiet = || vec![write(NUMA_BALANCING, "0")];
        let mut setting = match &self.way {
            Way::Default => Setting { writes: quiet(), ..Setting::default() },
            Way::Interleave => Setting { policy: all(INTERLEAVE), writes: quiet(), ..Setting::default() },
            Way::Weighted(given) => {
                let weights = match given {
                    Some(weights) => self.in_guest_order(weights, machine, layout)?,
                    None => weights_from(&bandwidths(layout)),
                };
                let nodes = numbers.iter().zip(&weights);
                let of_nodes = nodes.map(|(node, weight)| write(&format!("{WEIGHTS}/node{node}"), weight));
                let writes = quiet().into_iter().chain(of_nodes).collect();
                Setting {
                    policy: all(WEIGHTED_INTERLEAVE),
                    writes,
                    weights: Some(weights),
                    ..Setting::default()
                }
            }
            Way::Balancing { mode, demotion } => {
                let own = [write(DEMOTION, demotion), write(NUMA_BALANCING, mode)];
                let writes = scale.numa_balancing().into_iter().chain(own).collect();
                Setting { writes, ..Setting::default() }
            }
            Way::Damo(setup) => {
                let commands = commands(setup, layout, tools.linux()?, scale);
                let commands =
                    commands.map_err(|what| LabError::Subject { subject: self.name.clone(), what })?;
                let damo = Damo { files: tools.damo()?.to_owned(), commands };
                Setting { writes: quiet(), damo: Some(damo), ..Setting::default() }
            }
            Way::Memtide(policies) => {
                let (file, policies, machine) =
                    (tools.memtide.clone(), policies.clone(), memtide::machine(layout));
                let memtide = Memtide { file, policies, machine, scale };
                // Linux 6.17 and later monitor the whole system with DAMON, which has one user at a time.
                let stat = (tools.linux()? >= HAS_STAT).then(|| write(DAMON_STAT, "N"));
                Setting {
                    writes: quiet().into_iter().chain(stat).collect(),
                    memtide: Some(memtide),
                    ..Setting::default()
                }
            }
        };
        setting.writes.extend(scale.khugepaged());
        Ok(setting)
    }

    fn in_guest_order(
        &self,
        weights: &[u8],
        machine: &Machine,
        layout: &Layout,
    ) -> Result<Vec<u8>, LabError> {
        let names: Vec<&str> = machine.nodes.iter().map(|node| node.name.as_str()).collect();
        if weights.len() != names.len() {
            let (has, of, wanted) = (weights.len(), names.join(", "), names.len());
            let what =
                format!("{has} weights; give {wanted}, one for each of {}'s nodes: {of}", machine.name);
            return Err(LabError::Subject { subject: self.name.clone(), what });
        }
        let weight = |name: &str| names.iter().zip(weights).find(|(other, _)| **other == name);
        Ok(layout
            .machine
            .nodes
            .iter()
            .filter_map(|node| weight(&node.name))
            .map(|(_, &weight)| weight)
            .collect())
    }
}

pub(crate) fn write(file: &str, value: impl ToString) -> Write {
    Write { file: PathBuf::from(file), text: value.to_string() }
}

fn damo(text: &str) -> Result<Option<Way>, LabError> {
    let Some(rest) = text.strip_prefix("damo").filter(|rest| rest.is_empty() || rest.starts_with(':')) else {
        return Ok(None);
    };
    let error = |what| LabError::Subject { subject: text.to_owned(), what };
    Ok(Some(Way::Damo(Setup::parse(rest).map_err(error)?)))
}

fn memtide_policies(text: &str) -> Option<Way> {
    text.strip_prefix("memtide:").map(|policies| Way::Memtide(Policies::parse(policies)))
}

fn weights_of(text: &str) -> Option<Way> {
    let weight = |word: &str| word.parse().ok().filter(|&weight: &u8| weight > 0);
    let weights = text.strip_prefix("weighted:")?.split(':').map(weight).collect::<Option<Vec<u8>>>()?;
    Some(Way::Weighted(Some(weights)))
}

fn balancing(text: &str) -> Option<Way> {
    let rest = text.strip_prefix(BALANCING)?;
    let (mode, demotion) = rest.strip_suffix("+demotion").map_or((rest, false), |mode| (mode, true));
    let mode = ["0", "1", "2"].iter().position(|known| *known == mode)?;
    Some(Way::Balancing { mode: mode as u8, demotion })
}

/// Read bandwidth of each node from its nearest CPUs: Linux 6.16 and later derive weights from the same
/// figures.
fn bandwidths(layout: &Layout) -> Vec<f64> {
    let nodes = layout.nodes.iter().take(layout.machine.nodes.len()).enumerate();
    nodes.map(|(number, node)| layout.reach(node.initiator, number).1).collect()
}

/// The smallest weights within tolerance of the bandwidth ratio.
fn weights_from(bandwidths: &[f64]) -> Vec<u8> {
    let least = bandwidths.iter().copied().fold(f64::INFINITY, f64::min);
    let wanted = |smallest: u8| bandwidths.iter().map(move |mbps| mbps / least * f64::from(smallest));
    let weight = |wanted: f64| wanted.round().min(f64::from(u8::MAX));
    let error = |smallest: &u8| wanted(*smallest).map(|x| (weight(x) / x - 1.0).abs()).fold(0.0, f64::max);
    let close = SMALLEST_WEIGHTS.clone().find(|smallest| error(smallest) <= CLOSE);
    let smallest =
        close.or_else(|| SMALLEST_WEIGHTS.min_by(|a, b| error(a).total_cmp(&error(b)))).unwrap_or(1);
    wanted(smallest).map(|wanted| weight(wanted) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_small_and_close_to_the_ratio() {
        assert_eq!(weights_from(&[17.0, 3.4]), [5, 1]);
        assert_eq!(weights_from(&[15.0, 10.0]), [3, 2]);
        assert_eq!(weights_from(&[100.0, 100.0, 52.0]), [2, 2, 1]);
        assert_eq!(weights_from(&[1e6, 1.0]), [255, 1]);
    }

    #[test]
    fn listed_subjects_parse() {
        let way = |text| Subject::parse(text).map(|subject| subject.way).ok();
        assert_eq!(way("weighted:4:1"), Some(Way::Weighted(Some(vec![4, 1]))));
        assert_eq!(way("numab=2+demotion"), Some(Way::Balancing { mode: 2, demotion: true }));
        assert_eq!(way("numab=0"), Some(Way::Balancing { mode: 0, demotion: false }));
        assert_eq!(way("damo"), Some(Way::Damo(Setup::Authors)));
        assert!(way("damo:hot=20").is_some());
        for wrong in [
            "damos",
            "damo:cold",
            "",
            "weighted:",
            "weighted:0:1",
            "weighted:256:1",
            "numab=3",
            "numab=",
            "demotion",
        ] {
            assert_eq!(way(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn commas_in_policy_parameters_do_not_end_a_subject() {
        let list = "default,numab=1,memtide:local+hot-cold:low=1,high=2,numab=2+demotion,damo";
        let subjects = Subject::parse_list(list).expect("subjects");
        let names: Vec<&str> = subjects.iter().map(Subject::name).collect();
        assert_eq!(
            names,
            ["default", "numab=1", "memtide:local+hot-cold:low=1,high=2", "numab=2+demotion", "damo"]
        );
        assert!(Subject::parse_list("default,numab=3").is_err() && Subject::parse_list("default,").is_err());
    }

    #[test]
    fn tiering_needs_a_node_without_cpus() {
        let machine =
            Machine::parse("test", include_str!("../../../machines/hinuma.toml")).expect("a machine");
        for (name, vcpus, warned) in [
            ("numab=2+demotion", 2, true),
            ("numab=0+demotion", 2, true),
            ("numab=2", 1, false),
            ("numab=1", 2, false),
            ("damo", 2, false),
        ] {
            let layout = Layout::new(&machine, Some(vcpus)).expect("a layout");
            let subject = Subject::parse(name).expect("a subject");
            assert_eq!(subject.lacks_tiers(&layout), warned, "{name} with {vcpus}");
        }
    }

    #[test]
    fn weights_follow_machine_file_node_order() {
        let text = include_str!("../../../machines/bmpm-5.toml");
        let reversed = text.replace("[[initiator]]\nname = \"socket0\"\ncpus = 8\n", "").replace(
            "name = \"socket1\"\ncpus = 8\n",
            "name = \"socket1\"\ncpus = 8\n\n[[initiator]]\nname = \"socket0\"\ncpus = 8\n",
        );
        for (text, guest) in [(text, [4, 1]), (reversed.as_str(), [1, 4])] {
            let machine = Machine::parse("test", text).expect("a machine");
            let layout = Layout::new(&machine, None).expect("a layout");
            let tools = Tools::default();
            let setting = Subject::parse("weighted:4:1").expect("a subject").setting(
                &machine,
                &layout,
                &tools,
                TimeScale::default(),
            );
            assert_eq!(setting.expect("a setting").weights, Some(guest.to_vec()));
            let wrong = Subject::parse("weighted:4:1:1").expect("a subject").setting(
                &machine,
                &layout,
                &tools,
                TimeScale::default(),
            );
            assert!(wrong.expect_err("three weights for two nodes").to_string().contains("dram, nvm"));
        }
    }
}
