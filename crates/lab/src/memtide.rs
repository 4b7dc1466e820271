//! memtide in the guest: `run` places the program's pages, the daemon migrates them.

use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::{Companion, Program, TmpfsBind};

use crate::archive::Archive;
use crate::error::LabError;
use crate::host_files::add;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::time_scale::TimeScale;

/// Its path in the guest.
const FOLDER: &str = "/opt/memtide";
const FILE: &str = "/opt/memtide/memtide";

/// The daemon's socket, which exists once it is ready.
const SOCKET: &str = "/run/memtide/memtide.sock";
const CONFIG: &str = "/opt/memtide/memtide.toml";
const MACHINE: &str = "/opt/memtide/machine.toml";

/// The kernel's own placement, without migration: memtide is not needed.
const PLAIN: &str = "local";
const NONE: &str = "none";

/// memtide in the guest, and its policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memtide {
    /// The `memtide` binary.
    pub file: PathBuf,
    /// Its policies.
    pub policies: Policies,
    /// The guest's machine file for the policies: Linux puts all nodes with CPUs into one tier.
    pub machine: String,
    /// Its daemon's time scale.
    pub scale: TimeScale,
}

/// A pair of policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Placement, as `memtide run --placement` takes it.
    pub placement: String,
    /// Migration, as `policy` of `memtide daemon`'s configuration.
    pub migration: Option<String>,
}

impl Policies {
    /// Parses `PLACEMENT[+MIGRATION]`.
    pub fn parse(text: &str) -> Policies {
        let (placement, migration) = text.split_once('+').unwrap_or((text, NONE));
        let migration = (migration != NONE).then(|| migration.to_owned());
        Policies { placement: placement.to_owned(), migration }
    }
}

/// A guest's machine file, with its nodes in Linux's order.
pub fn machine(layout: &Layout) -> String {
    let mut machine = layout.machine.clone();
    let mut nodes: Vec<_> = layout.linux_numbers().into_iter().zip(machine.nodes).collect();
    nodes.sort_by_key(|(number, _)| *number);
    machine.nodes = nodes.into_iter().map(|(_, node)| node).collect();
    machine.to_toml()
}

impl Memtide {
    /// The command lines.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let Policies { placement, migration } = &self.policies;
        let run = (placement != PLAIN).then(|| format!("memtide run --placement {placement} -- PROGRAM"));
        let daemon = |policy: &String| {
            let settings = self.settings(policy).join(", ");
            format!("memtide daemon, {settings}")
        };
        run.into_iter().chain(migration.as_ref().map(daemon))
    }

    /// The daemon's settings, apart from the machine file.
    fn settings(&self, policy: &str) -> Vec<String> {
        let scale = Some(self.scale.factor()).filter(|&factor| factor > 1);
        let scale = scale.map(|factor| format!("time_scale = {factor}"));
        [format!("policy = {policy:?}")].into_iter().chain(scale).collect()
    }

    /// Puts it into the guest.
    pub(crate) fn add_to(&self, archive: &mut Archive) -> Result<(), LabError> {
        add(archive, Path::new(FILE), &self.file, 0)?;
        archive.text(Path::new(MACHINE), self.machine.clone());
        if let Some(policy) = &self.policies.migration {
            let settings = self.settings(policy).join("\n");
            archive.text(Path::new(CONFIG), format!("{settings}\nmachine = {MACHINE:?}\n"));
        }
        Ok(())
    }

    /// Binds memtide's files to the slowest node: they do not shrink with the machine's scale.
    pub(crate) fn tmpfs_bind(&self, layout: &Layout) -> Option<TmpfsBind> {
        let nodes = &layout.machine.nodes;
        let plain = (0..nodes.len()).filter(|&node| layout.nodes[node].memory == Memory::Plain);
        let slowest = plain.max_by_key(|&node| (nodes[node].tier, layout.nodes[node].mib))?;
        let is_slow = nodes[slowest].tier > nodes.iter().map(|node| node.tier).min()?;
        is_slow.then(|| TmpfsBind { folder: PathBuf::from(FOLDER), node: layout.linux_numbers()[slowest] })
    }

    /// The daemon.
    pub(crate) fn companion(&self, environment: &[(String, String)]) -> Option<Companion> {
        self.policies.migration.as_ref()?;
        let arguments = ["memtide", "daemon", "--config", CONFIG].map(str::to_owned).to_vec();
        let (file, folder) = (PathBuf::from(FILE), PathBuf::from("/"));
        let program = Program { file, arguments, environment: environment.to_vec(), folder };
        Some(Companion { program, ready: PathBuf::from(SOCKET) })
    }

    /// The program, started with the placement.
    pub(crate) fn place(&self, program: Program) -> Program {
        let placement = &self.policies.placement;
        if placement == PLAIN {
            return program;
        }
        let words = ["memtide", "run", "--machine", MACHINE, "--placement", placement, "--"]
            .map(str::to_owned)
            .into_iter();
        let path = program.file.display().to_string();
        let arguments = program.arguments.into_iter().skip(1);
        Program { file: FILE.into(), arguments: words.chain([path]).chain(arguments).collect(), ..program }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memtide(text: &str) -> Memtide {
        let (file, policies) = (PathBuf::new(), Policies::parse(text));
        Memtide { file, policies, machine: String::new(), scale: TimeScale::new(4) }
    }

    #[test]
    fn placement_and_migration_parse() {
        let pair = |placement: &str, migration: Option<&str>| Policies {
            placement: placement.to_owned(),
            migration: migration.map(str::to_owned),
        };
        assert_eq!(Policies::parse("bw-local"), pair("bw-local", None));
        assert_eq!(Policies::parse("local+none"), pair("local", None));
        assert_eq!(
            Policies::parse("ratio:weights=4:1+hot-cold:hot=50"),
            pair("ratio:weights=4:1", Some("hot-cold:hot=50"))
        );
    }

    #[test]
    fn daemon_gets_the_time_scale() {
        let lines = |text| memtide(text).lines().collect::<Vec<_>>();
        assert_eq!(lines("local+hot-cold"), ["memtide daemon, policy = \"hot-cold\", time_scale = 4"]);
        assert_eq!(lines("interleave"), ["memtide run --placement interleave -- PROGRAM"]);
    }

    #[test]
    fn kernel_placement_adds_no_memtide() {
        let (file, folder) = (PathBuf::from("/bin/x"), PathBuf::from("/"));
        let program =
            Program { file, arguments: vec!["x".into(), "-v".into()], environment: Vec::new(), folder };
        assert_eq!(memtide("local").place(program.clone()), program);
        assert_eq!(memtide("local+none").companion(&[]), None);
        let placed = memtide("interleave").place(program);
        assert_eq!(
            placed.arguments.join(" "),
            "memtide run --machine /opt/memtide/machine.toml --placement interleave -- /bin/x -v"
        );
        assert!(memtide("local+hot-cold").companion(&[]).is_some());
    }
}
