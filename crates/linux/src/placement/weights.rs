//! The kernel's weights of weighted interleave: one per node, system-wide.
//!
//! A holder saves the previous weights before it sets them. The last holder restores them; if it died, the
//! next one does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memtide_core::NodeId;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::stat;

const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";
const STATE: &str = "/run/memtide";
const LOCK: &str = "weights.lock";
const SAVED_FILE: &str = "weights.json";

/// Whether the kernel computes the weights (Linux 6.16 and later).
const AUTO: &str = "auto";

/// Why weights cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The kernel has no weights.
    #[error("this kernel has no weighted interleave ({WEIGHTS} is missing): it came with Linux 6.9")]
    Unsupported,
    /// Another run uses other weights.
    #[error(
        "node {} has weight {held} for the program of process {pid}, but needs {wanted}: weights are \
         system-wide; wait for that program, or use the same placement for both", node.0
    )]
    Held {
        /// The node.
        node: NodeId,
        /// Its current weight.
        held: u8,
        /// The requested weight.
        wanted: u8,
        /// The holder.
        pid: u32,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}{}", file.display(), if source.kind() == io::ErrorKind::PermissionDenied {
        "; the weights are system-wide and need root" } else { "" })]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

type WeightResult<T> = Result<T, WeightError>;

/// Weights held for a program; released when dropped.
#[derive(Debug)]
pub struct Weights {
    paths: Paths,
    me: Holder,
}

#[derive(Clone, Debug)]
struct Paths {
    weights: PathBuf,
    state: PathBuf,
}

/// The previous weights, the current ones, and their holders.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// The previous content of each of the kernel's files.
    before: Vec<(String, String)>,
    set: Vec<(NodeId, u8)>,
    holders: Vec<Holder>,
}

/// A process, distinguished from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holder {
    pid: u32,
    started_ticks: u64,
}

impl Weights {
    /// Sets the weights until the value is dropped. First restores what a dead run left set.
    ///
    /// # Errors
    /// If the kernel has no weights, the caller may not set them, or a running program needs others.
    pub fn hold(wanted: &[(NodeId, u8)]) -> WeightResult<Weights> {
        Weights::hold_in(Paths::of_system(), wanted)
    }

    /// Restores the weights that a dead run left set, unless another run holds them; returns whether it did.
    ///
    /// # Errors
    /// If the caller may not set them.
    pub fn restore_leftover() -> WeightResult<bool> {
        Paths::of_system().restore_leftover()
    }

    /// Whether [`Weights::restore_leftover`] has anything to restore.
    pub fn has_leftover() -> bool {
        Paths::of_system().has_leftover()
    }

    fn hold_in(paths: Paths, wanted: &[(NodeId, u8)]) -> WeightResult<Weights> {
        if !paths.weights.is_dir() {
            return Err(WeightError::Unsupported);
        }
        let _lock = paths.lock()?;
        let mut saved = paths.load_of_living_holders()?;
        if let Some(fault) = saved.conflict(wanted) {
            return Err(fault);
        }
        let me = Holder::me();
        saved.holders.push(me);
        for &(node, weight) in wanted {
            if !saved.set.iter().any(|(set, _)| *set == node) {
                saved.set.push((node, weight));
            }
        }
        if saved.before.is_empty() {
            saved.before = paths.read_all()?;
        }
        paths.save(&saved)?;
        let held = Weights { paths, me };
        for &(node, weight) in wanted {
            held.paths.write(&format!("node{}", node.0), &weight.to_string())?;
        }
        Ok(held)
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let release = || -> WeightResult<()> {
            let _lock = self.paths.lock()?;
            let mut saved = self.paths.saved()?.unwrap_or_default();
            let mine = saved.holders.iter().position(|holder| *holder == self.me);
            mine.map(|at| saved.holders.remove(at));
            if saved.holders.is_empty() { self.paths.restore(&saved) } else { self.paths.save(&saved) }
        };
        // On failure, the next run finds the saved weights and retries.
        let _ = release();
    }
}

impl Saved {
    fn conflict(&self, wanted: &[(NodeId, u8)]) -> Option<WeightError> {
        let holder = self.holders.first()?;
        let differs = |&(node, weight): &(NodeId, u8)| {
            let (_, held) = self.set.iter().find(|(set, held)| *set == node && *held != weight)?;
            Some(WeightError::Held { node, held: *held, wanted: weight, pid: holder.pid })
        };
        wanted.iter().find_map(differs)
    }
}

impl Paths {
    fn of_system() -> Paths {
        Paths { weights: WEIGHTS.into(), state: STATE.into() }
    }

    fn has_leftover(&self) -> bool {
        let saved = self.saved().ok().flatten();
        saved.is_some_and(|saved| !saved.holders.iter().any(Holder::lives))
    }

    fn restore_leftover(&self) -> WeightResult<bool> {
        if !self.has_leftover() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        // Another process may have created it first.
        let left = self.has_leftover();
        self.load_of_living_holders()?;
        Ok(left)
    }

    /// Takes the lock until it is dropped.
    fn lock(&self) -> WeightResult<File> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.state).map_err(failed(&self.state))?;
        let path = self.state.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed(&path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
        Ok(file)
    }

    fn saved(&self) -> WeightResult<Option<Saved>> {
        let path = self.state.join(SAVED_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path)(error)),
        };
        let saved = serde_json::from_slice(&text).map_err(|error| failed(&path)(error.into()))?;
        Ok(Some(saved))
    }

    /// The saved weights with their live holders; if there are none, restores the weights and starts a new
    /// record.
    fn load_of_living_holders(&self) -> WeightResult<Saved> {
        let Some(mut saved) = self.saved()? else { return Ok(Saved::default()) };
        saved.holders.retain(Holder::lives);
        if saved.holders.is_empty() {
            self.restore(&saved)?;
            return Ok(Saved::default());
        }
        Ok(saved)
    }

    /// Replaces the file atomically.
    fn save(&self, saved: &Saved) -> WeightResult<()> {
        let (path, next) = (self.state.join(SAVED_FILE), self.state.join("weights.json.new"));
        let text = serde_json::to_vec(saved).expect("plain data");
        let mut file = File::create(&next).map_err(failed(&next))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed(&next))?;
        fs::rename(&next, &path).map_err(failed(&path))
    }

    fn restore(&self, saved: &Saved) -> WeightResult<()> {
        let auto = saved.before.iter().any(|(name, text)| name == AUTO && text == "true");
        let nodes = saved.before.iter().filter(|(name, _)| name != AUTO && !auto);
        for (name, text) in nodes {
            match self.write(name, text) {
                // A node that was removed has no weight.
                Err(WeightError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        if auto {
            self.write(AUTO, "true")?;
        }
        let path = self.state.join(SAVED_FILE);
        fs::remove_file(&path).map_err(failed(&path))
    }

    fn read_all(&self) -> WeightResult<Vec<(String, String)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.weights).map_err(failed(&self.weights))? {
            let entry = entry.map_err(failed(&self.weights))?;
            let text = fs::read_to_string(entry.path()).map_err(failed(&entry.path()))?;
            files.push((entry.file_name().to_string_lossy().into_owned(), text.trim().to_owned()));
        }
        files.sort();
        Ok(files)
    }

    fn write(&self, name: &str, text: &str) -> WeightResult<()> {
        let path = self.weights.join(name);
        let file = OpenOptions::new().write(true).truncate(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed(&path))
    }
}

impl Holder {
    fn me() -> Holder {
        let pid = std::process::id();
        Holder { pid, started_ticks: started_ticks(pid).unwrap_or(0) }
    }

    fn lives(&self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }
}

/// A process's start time, in ticks since boot: field 22 of /proc/PID/stat (proc_pid_stat(5)).
fn started_ticks(pid: u32) -> Option<u64> {
    stat::field(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, 22)
}

fn failed(file: &Path) -> impl Fn(io::Error) -> WeightError {
    let file = file.to_owned();
    move |source| WeightError::File { file: file.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::mem::forget;

    use super::*;

    fn paths() -> (tempfile::TempDir, Paths) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = Paths { weights: folder.path().join("sys"), state: folder.path().join("run") };
        fs::create_dir(&paths.weights).expect("a folder");
        for (node, weight) in [("node0", "3\n"), ("node2", "1\n")] {
            fs::write(paths.weights.join(node), weight).expect("a file");
        }
        (folder, paths)
    }

    fn weights(paths: &Paths) -> [String; 2] {
        ["node0", "node2"]
            .map(|node| fs::read_to_string(paths.weights.join(node)).expect("a weight").trim().to_owned())
    }

    const WANTED: [(NodeId, u8); 2] = [(NodeId(0), 5), (NodeId(2), 2)];

    #[test]
    fn last_holder_restores_weights() {
        let (_folder, paths) = paths();
        let first = Weights::hold_in(paths.clone(), &WANTED).expect("weights");
        assert_eq!(weights(&paths), ["5", "2"]);
        assert!(!paths.restore_leftover().expect("its holder lives"));
        drop(first);
        assert_eq!(weights(&paths), ["3", "1"]);
        assert_eq!(paths.saved().expect("readable"), None);
    }

    #[test]
    fn conflicting_weights_are_refused_and_equal_ones_shared() {
        let (_folder, paths) = paths();
        let first = Weights::hold_in(paths.clone(), &WANTED).expect("weights");
        let refused = Weights::hold_in(paths.clone(), &[(NodeId(0), 1)]).expect_err("a conflict").to_string();
        assert!(refused.contains("node 0 has weight 5") && refused.contains("but needs 1"), "{refused}");
        let second = Weights::hold_in(paths.clone(), &WANTED[..1]).expect("the same weights");
        drop(first);
        assert_eq!(weights(&paths), ["5", "2"]);
        drop(second);
        assert_eq!(weights(&paths), ["3", "1"]);
    }

    #[test]
    fn next_run_restores_weights_of_a_dead_run() {
        let (_folder, paths) = paths();
        let mut dead = Weights::hold_in(paths.clone(), &WANTED).expect("weights");
        let mut saved = paths.saved().expect("readable").expect("saved weights");
        saved.holders[0].started_ticks += 1;
        paths.save(&saved).expect("saved weights");
        dead.me.started_ticks += 1;
        forget(dead);
        assert!(paths.has_leftover());
        let text = fs::read(paths.state.join(SAVED_FILE)).expect("saved weights");
        assert!(
            paths.restore_leftover().expect("weights") && !paths.restore_leftover().expect("nothing left")
        );
        assert_eq!((weights(&paths), paths.has_leftover()), (["3", "1"].map(str::to_owned), false));
        fs::write(paths.state.join(SAVED_FILE), text).expect("saved weights");
        let next = Weights::hold_in(paths.clone(), &[(NodeId(2), 9)]).expect("no living holder");
        assert_eq!(weights(&paths), ["3", "9"]);
        drop(next);
        assert_eq!(weights(&paths), ["3", "1"]);
    }

    #[test]
    fn kernel_without_weights_is_reported() {
        let (_folder, mut paths) = paths();
        paths.weights.push("none");
        assert!(matches!(Weights::hold_in(paths, &WANTED), Err(WeightError::Unsupported)));
    }

    #[test]
    fn this_process_has_a_start_time() {
        assert!(Holder::me().lives() && started_ticks(std::process::id()).is_some());
        assert!(!Holder { pid: 0, started_ticks: 0 }.lives());
    }
}
