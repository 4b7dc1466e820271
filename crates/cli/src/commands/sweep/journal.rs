//! Results of a sweep that is not complete: a file per shard, to which each run appends a line of JSON.
//!
//! The first line says which sweep it is of, the second which columns it has.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results::{Columns, Outcome};
use super::shard::Shard;
use crate::failure::Failure;
use crate::output::folder_of;

/// End of a journal's name, after that of the file of results.
const END: &str = ".partial";

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Sweep(Value),
    Columns(Columns),
    Run(usize, Outcome),
}

/// What all journals of a sweep hold.
#[derive(Default)]
pub struct Known {
    /// Those of the figures, once a run has any.
    pub columns: Option<Columns>,
    /// Results by the run's number.
    pub outcomes: BTreeMap<usize, Outcome>,
}

/// The journal of this process's shard.
pub struct Journal {
    path: PathBuf,
    /// Its file, and whether it has the columns.
    file: Mutex<(File, bool)>,
}

impl Journal {
    /// Opens or creates the journal of a shard of the sweep that `results` will hold the results of.
    pub fn open(results: &Path, shard: Shard, sweep: &Value) -> Result<Journal, Failure> {
        let path = named(results, &format!("{}{END}", shard.suffix()));
        let fail = |error: io::Error| Failure::unwritable(path.display(), &error);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(fail)?;
        if let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            return Err(Failure::Run(format!(
                "{}: another process writes it now; wait for it",
                path.display()
            )));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        // A line that the last run did not finish.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(fail)?;
        let known = read(&path, &text[..whole], sweep)?;
        let has_columns = known.columns.is_some();
        let journal = Journal { file: Mutex::new((file, has_columns)), path };
        if whole == 0 {
            let mut file = journal.file.lock().expect("no holder panics");
            journal.append(&mut file.0, &Line::Sweep(sweep.clone()))?;
        }
        Ok(journal)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a run's result, and before the first one with figures their columns.
    pub fn add(&self, run: usize, columns: Option<&Columns>, outcome: &Outcome) -> Result<(), Failure> {
        let mut file = self.file.lock().expect("no holder panics");
        let (file, has_columns) = &mut *file;
        if let (Some(columns), false) = (columns, *has_columns) {
            self.append(file, &Line::Columns(columns.clone()))?;
            *has_columns = true;
        }
        self.append(file, &Line::Run(run, outcome.clone()))
    }

    fn append(&self, file: &mut File, line: &Line) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).expect("lines are plain data");
        text.push(b'\n');
        file.write_all(&text).map_err(|error| Failure::unwritable(self.path.display(), &error))
    }
}

/// What the journals of all shards hold.
pub fn known(results: &Path, sweep: &Value) -> Result<Known, Failure> {
    let mut all = Known::default();
    for path in journals(results)? {
        let text = match fs::read(&path) {
            // Another shard's process has just put all results into the file of results.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(|error| Failure::unreadable(&path.display().to_string(), &error))?,
        };
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let one = read(&path, &text[..whole], sweep)?;
        all.columns = all.columns.or(one.columns);
        all.outcomes.extend(one.outcomes);
    }
    Ok(all)
}

/// Removes all journals of a sweep.
pub fn remove(results: &Path) -> Result<(), Failure> {
    for path in journals(results)? {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::Run(format!("{}: cannot be removed ({error})", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Paths of all journals, sorted.
fn journals(results: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = folder_of(results);
    let name = results.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ours = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let shard = file.strip_prefix(&name).and_then(|rest| rest.strip_suffix(END));
        shard.is_some_and(Shard::is_suffix)
    };
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>());
    let entries = entries.map_err(|error| Failure::unreadable(&folder.display().to_string(), &error))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().filter(ours).collect();
    paths.sort();
    Ok(paths)
}

/// The name of a file of results with something after it.
pub fn named(results: &Path, end: &str) -> PathBuf {
    let mut name: OsString = results.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Reads a journal's whole lines; refuses those of another sweep.
fn read(path: &Path, text: &[u8], sweep: &Value) -> Result<Known, Failure> {
    let mut known = Known::default();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())) {
        let refused = |what: &str| {
            let path = path.display();
            Failure::Input(format!("{path}, line {number}: {what}; remove it, or name another --out"))
        };
        match serde_json::from_slice(line) {
            Ok(Line::Sweep(of)) if number == 1 => match difference(&of, sweep) {
                None => {}
                Some(what) => return Err(refused(&format!("results of another sweep (other {what})"))),
            },
            Ok(_) if number == 1 => return Err(refused("not a journal of a sweep")),
            Ok(Line::Columns(columns)) => known.columns = Some(columns),
            Ok(Line::Run(run, outcome)) if outcome.fits(known.columns.as_ref()) => {
                known.outcomes.insert(run, outcome);
            }
            Ok(_) => return Err(refused("out of place")),
            Err(error) => return Err(refused(&format!("not a line of a sweep's journal ({error})"))),
        }
    }
    Ok(known)
}

/// The first field in which two sweeps differ.
fn difference(one: &Value, other: &Value) -> Option<String> {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return (one != other).then(|| "everything".to_owned());
    };
    let keys = one.keys().chain(other.keys());
    keys.into_iter().find(|key| one.get(*key) != other.get(*key)).cloned()
}
