//! User input: machine files, configurations, policies, workloads, lists, measurements.

use std::sync::LazyLock;

use memtide_core::machine::bundled;
use memtide_core::params::{Params, split_list, split_name};
use memtide_core::{CpuId, Machine, NodeId};
use memtide_daemon::Config;
use memtide_lab::Subject;
use memtide_linux::topology::{self, Capacity, MeasuredFile, Node, Processor, System, nodelist};
use memtide_workloads::{RunFile, RunSource, Settings};

use crate::files::MemoryFile;

/// A machine file: what is accepted is written as TOML and read back.
pub fn machine(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(machine) = Machine::parse("machine", text) else { return };
    assert!(machine.cpus() > 0 && !machine.nodes.is_empty(), "a machine without CPUs or memory");
    let written = machine.to_toml();
    let again = Machine::parse("machine", &written).expect("what was written can be read");
    assert_eq!(again.to_toml(), written);
    let reduced = machine.reduced().to_toml();
    if let Ok(again) = Machine::parse("machine", &reduced) {
        assert_eq!(again.to_toml(), reduced);
    }
}

/// The daemon's configuration.
pub fn daemon_config(data: &[u8]) {
    let file = MemoryFile::new(data);
    let Ok(config) = Config::read(&file.path()) else { return };
    let limits = config.limits();
    assert!((1_000_000..=1_000_000_000_000).contains(&limits.bytes_per_second.expect("a limit")));
    assert!(!config.stall().is_zero());
    let written = toml::to_string(&config).expect("a configuration can be written");
    let again = MemoryFile::new(written.as_bytes());
    let again = Config::read(&again.path()).expect("what was written can be read");
    assert_eq!(toml::to_string(&again).expect("a configuration can be written"), written);
}

/// The machine for policies.
fn small_machine() -> &'static Machine {
    static MACHINE: LazyLock<Machine> =
        LazyLock::new(|| bundled::machine("optane").expect("a bundled machine").expect("a machine"));
    &MACHINE
}

/// Policies: a placement with or without a migration, and the daemon's.
pub fn policy(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for item in split_list(text) {
        if let Ok(policy) = memtide_policies::parse(item) {
            assert_eq!(memtide_policies::parse(&policy.to_string()).expect("its name").name(), policy.name());
            // Weights may not fit the machine's tiers.
            let _ = policy.placement(small_machine());
            policy.migration(small_machine()).sensors();
        }
    }
    let migration = memtide_daemon::migration(text, small_machine());
    assert!(migration.is_err() || memtide_daemon::parse_migration(text).is_ok());
}

/// Workloads: what is accepted reads back as printed and stays within its declared memory.
pub fn workload(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for item in split_list(text) {
        let (name, params) = split_name(item);
        let Ok(params) = params.parse::<Params>() else { continue };
        let printed: Params = params.to_string().parse().expect("what was printed can be read");
        assert_eq!(printed, params);
        let Some(info) = memtide_workloads::list().iter().find(|info| info.name == name) else { continue };
        let Ok(settings) = Settings::new(info, &params) else { continue };
        let declares = |name: &str| info.parameters.iter().any(|parameter| parameter.name == name);
        assert!(!declares("footprint_mib") || (1..=1 << 20).contains(&(settings.footprint_bytes() >> 20)));
        assert!(!declares("threads") || (1..=1024).contains(&settings.threads()));
    }
}

/// Run files: levels are within their range, and workloads are those that exist.
pub fn run_file(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(mix) = RunFile::parse("folder/mix.toml", text) else { return };
    for (number, program) in mix.programs().iter().enumerate() {
        assert!(program.priority.is_none_or(|level| (1..=5).contains(&level)));
        if let RunSource::Workload { name, .. } = &program.source {
            assert!(memtide_workloads::list().iter().any(|info| info.name == name));
        }
        let without_memory = mix.check_buffers(number, &[]);
        assert_eq!(without_memory.is_err(), program.messages.is_some());
        assert!(!program.description().is_empty());
    }
}

/// Subjects of `memtide lab compare`.
pub fn lab_subject(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(subjects) = Subject::parse_list(text) else { return };
    for subject in subjects {
        assert_eq!(Subject::parse(subject.name()).as_ref().ok(), Some(&subject));
        let _ = subject.policies();
    }
}

/// Node lists: accepted ones are sorted, and contain only existing nodes.
pub fn node_list(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let there = [0, 2, 3, 7, 300];
    let Ok(found) = nodelist::numbers(text, &there) else { return };
    assert!(!found.is_empty() && found.is_sorted_by(|a, b| a < b));
    assert!(found.iter().all(|number| there.contains(number)));
}

/// A system of two nodes, one without CPUs, without firmware figures.
fn system() -> &'static System {
    static SYSTEM: LazyLock<System> = LazyLock::new(|| {
        let node = |number: u8, cpus: u16| Node {
            id: NodeId(number),
            cpus: (0..cpus).map(CpuId).collect(),
            memory: Some(Capacity { total_kib: 1 << 22, free_kib: 1 << 21 }),
            tier: Some(number),
            distances: vec![(NodeId(number), 10), (NodeId(1 - number), 20)],
            firmware: None,
        };
        let cache = topology::Cache { level: 1, capacity_kib: 32, ways: 8, cpus: 1 };
        let processor = Processor { threads_per_core: 1, clock_mhz: None, caches: vec![cache] };
        System { nodes: vec![node(0, 4), node(1, 0)], processor }
    });
    &SYSTEM
}

/// Output of `memtide measure -o json`: accepted figures give a machine that reads back.
pub fn measured(data: &[u8]) {
    let Ok(file) = MeasuredFile::parse(data) else { return };
    assert!(file.cached().count() <= data.len());
    let Ok(machine) = system().machine("measured", &file.figures()) else { return };
    let written = machine.to_toml();
    assert_eq!(Machine::parse("measured", &written).expect("a machine").to_toml(), written);
}
