//! A report's file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use tempfile::NamedTempFile;

use super::page::{self, Page};
use crate::failure::Failure;
use crate::output::temporary;

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

/// Whether a file is a report or empty.
fn is_page(path: &Path) -> io::Result<bool> {
    let start = page::first_line();
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found.eq_ignore_ascii_case(start.as_bytes()))
}
