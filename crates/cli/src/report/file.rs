//! A report's file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use tempfile::NamedTempFile;

use super::page::{self, Page};
use crate::failure::Failure;
use crate::output::{folder_of, temporary};

/// The option of commands that can write a report.
#[derive(Debug, clap::Args)]
pub struct ReportFile {
    /// Write a report with charts as one HTML file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
}

impl ReportFile {
    /// A report at this path.
    pub fn at(path: PathBuf) -> ReportFile {
        ReportFile { report: Some(path) }
    }

    /// The report's file, if requested.
    pub fn path(&self) -> Option<&Path> {
        self.report.as_deref()
    }

    /// Refuses another option's file for the report.
    pub fn check_differs(&self, option: &str, other: Option<&Path>) -> Result<(), Failure> {
        let Some((report, other)) = self.path().zip(other) else { return Ok(()) };
        if !is_same(report, other) {
            return Ok(());
        }
        let report = report.display();
        Err(Failure::Usage(format!("--report {report}: the same file as {option}; name another file")))
    }

    /// Starts the report, if requested.
    pub fn draft(&self) -> Result<Option<Draft<'_>>, Failure> {
        self.report.as_deref().map(Draft::create).transpose()
    }
}

/// A report to be written. Replaces an existing file only if that is a report or empty, and only by a
/// complete report.
pub struct Draft<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Draft<'a> {
    /// Creates the file, so that an unwritable one is refused before anything runs.
    fn create(path: &'a Path) -> Result<Draft<'a>, Failure> {
        let unwritable = |error: io::Error| Failure::unwritable(path.display(), &error);
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unwritable(io::Error::other("it exists and is not a regular file")));
        }
        if path.exists() && !is_page(path).map_err(unwritable)? {
            return Err(unwritable(io::Error::other("it exists and is not a report")));
        }
        Ok(Draft { path, file: temporary(path).map_err(unwritable)? })
    }

    /// Writes it.
    pub fn write(mut self, page: &Page) -> Result<(), Failure> {
        let written = self.file.write_all(page.html().as_bytes());
        written
            .and_then(|()| Ok(self.file.persist(self.path)?))
            .map_err(|error| Failure::unwritable(self.path.display(), &error))?;
        Ok(())
    }
}

/// Whether two paths lead to the same file, which may not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| {
        let in_folder = || Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
    };
    resolved(one) == resolved(other)
}

/// Whether a file is a report or empty.
fn is_page(path: &Path) -> io::Result<bool> {
    let start = page::first_line();
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found.eq_ignore_ascii_case(start.as_bytes()))
}
