//! `--out FILE`: the results of all runs in one file, and how a sweep goes on where it was interrupted.
//!
//! If shards wrote the file, `FILE.done` contains the sweep and the file's hash: a shard that starts after
//! the last finds the results complete, and takes no changed or other sweep's file for its own.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::journal::{self, Journal, Known};
use super::shard::Shard;
use crate::failure::Failure;
use crate::output::{Document, Format, temporary};

/// Where results are kept.
#[derive(Debug, clap::Args)]
pub struct ResultsFile {
    /// Write all results to FILE.csv or FILE.parquet; resumable
    ///
    /// FILE.partial has those so far; the same command goes on from there.
    ///
    /// With --shard, FILE.done marks complete results for later parts.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = results_file)]
    out: Option<PathBuf>,
}

impl ResultsFile {
    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Opens the journal of a shard, if results are kept.
    pub fn journal(&self, shard: Shard, sweep: &Value) -> Result<Option<Journal>, Failure> {
        let Some(path) = self.path() else { return Ok(None) };
        if path.exists() {
            let path = path.display();
            return Err(Failure::Usage(format!("--out {path}: it exists; remove it, or name another file")));
        }
        Journal::open(path, shard, sweep).map(Some)
    }

    /// The results in the journals of all shards, of a sweep of this many runs.
    pub fn known(&self, sweep: &Value, runs: usize) -> Result<Known, Failure> {
        let Some(path) = self.path() else { return Ok(Known::default()) };
        let mut known = journal::known(path, sweep)?;
        // A damaged journal can have others.
        known.outcomes.retain(|run, _| *run < runs);
        Ok(known)
    }

    /// Whether shards of this sweep have written the file, and it is unchanged.
    pub fn is_complete(&self, shard: Shard, sweep: &Value) -> bool {
        let Some(path) = self.path().filter(|_| shard.is_part()) else { return false };
        let done = fs::read(done(path)).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let results = fs::read(path).ok();
        done.zip(results).is_some_and(|(done, results)| done == marker(sweep, &results))
    }

    /// Writes the file and removes the journals. The document's table has a row per run.
    pub fn write(&self, document: &Document, shard: Shard, sweep: &Value) -> Result<(), Failure> {
        let Some(path) = self.path() else { return Ok(()) };
        let bytes = match is_parquet(path) {
            true => document.parquet(),
            false => document.text(Format::Csv, None).into_bytes(),
        };
        let done = done(path);
        if shard.is_part() {
            // Before the results: whoever finds those finds it, too.
            write(&done, marker(sweep, &bytes).to_string().as_bytes())?;
        } else if done.exists() {
            // Of results that were removed.
            fs::remove_file(&done).map_err(|error| Failure::unwritable(done.display(), &error))?;
        }
        write(path, &bytes)?;
        journal::remove(path)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = temporary(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok::<(), io::Error>(())
    });
    written.map_err(|error| Failure::unwritable(path.display(), &error))
}

/// The file that says which sweep shards completed.
fn done(results: &Path) -> PathBuf {
    journal::named(results, ".done")
}

/// Contents of [`done`].
fn marker(sweep: &Value, results: &[u8]) -> Value {
    json!({ "sweep": sweep, "sha256": format!("{:x}", Sha256::digest(results)) })
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "parquet")
}

fn results_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let has_format = is_parquet(&path) || path.extension().is_some_and(|end| end == "csv");
    if has_format { Ok(path) } else { Err("expected a name that ends in .csv or .parquet".to_owned()) }
}
