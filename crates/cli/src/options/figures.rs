//! `--figures FILE`: figures separate from the program's output.

use std::io::{self, Write, stderr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::output::{Document, Format, folder_of, print_to_stderr, temporary, width_of};

/// The option of commands that run a program and measure it.
#[derive(Debug, clap::Args)]
pub struct FiguresFile {
    /// Write the figures to this file instead of standard error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    figures: Option<PathBuf>,
}

impl FiguresFile {
    /// Whether a file was named.
    pub fn is_some(&self) -> bool {
        self.figures.is_some()
    }

    /// Refuses a file that cannot be written or is in `used`, the files that the run reads, executes or
    /// writes. To be called before the program starts.
    pub fn check<'a>(&self, used: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
        let Some(path) = &self.figures else { return Ok(()) };
        if used.into_iter().any(|other| is_same(path, other)) {
            return Err(Failure::Usage(format!(
                "--figures {}: this run reads or writes that file itself; name another one",
                path.display()
            )));
        }
        match path.metadata() {
            Ok(found) if found.is_dir() => return Err(refused(path, "is a folder")),
            Ok(found) if !found.is_file() => return Err(refused(path, "is not a regular file")),
            _ => {}
        }
        // The file itself appears only when complete.
        draft(path).map(drop)
    }

    /// Writes the figures in a format, atomically; to standard error if no file was named.
    pub fn write(&self, document: &Document, format: Format) -> Result<(), Failure> {
        let Some(path) = &self.figures else {
            print_to_stderr(&document.text(format, width_of(stderr())));
            return Ok(());
        };
        let mut file = draft(path)?;
        let written = file.write_all(document.text(format, None).as_bytes());
        written
            .and_then(|()| Ok(file.persist(path)?))
            .map(drop)
            .map_err(|error| refused(path, &format!("cannot be written ({error})")))
    }
}

/// The file to be, without its name yet.
fn draft(path: &Path) -> Result<NamedTempFile, Failure> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(refused(path, &format!("there is no folder {}; make it first", folder.display())));
    }
    temporary(path).map_err(|error| {
        refused(path, &format!("cannot be written ({}); check the folder's permissions", error.kind()))
    })
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::NotRun(format!("--figures {}: {why}", path.display()))
}

/// Whether two paths name one file, or would once created.
fn is_same(path: &Path, other: &Path) -> bool {
    let id = |path: &Path| -> io::Result<(u64, u64)> {
        let found = path.metadata()?;
        Ok((found.dev(), found.ino()))
    };
    match (id(path), id(other)) {
        (Ok(one), Ok(two)) => one == two,
        (Err(_), Err(_)) => named(path).is_some_and(|one| Some(one) == named(other)),
        _ => false,
    }
}

/// Absolute path of a file that does not exist yet.
fn named(path: &Path) -> Option<PathBuf> {
    Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn figures(path: &Path) -> FiguresFile {
        FiguresFile { figures: Some(path.to_owned()) }
    }

    #[test]
    fn figures_file_in_use_is_refused_under_any_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let [input, link, new] = ["input", "link", "new"].map(|name| folder.path().join(name));
        fs::write(&input, "input").expect("a file");
        fs::hard_link(&input, &link).expect("a link");
        let around = folder.path().join("../").join(folder.path().file_name().expect("a name")).join("new");
        for (path, used) in [(&input, &input), (&link, &input), (&new, &around)] {
            let refused = figures(path).check([used.as_path()]).expect_err("a file in use");
            assert!(matches!(refused, Failure::Usage(_)), "{refused:?}");
        }
        figures(&new).check([input.as_path()]).expect("another file");
        assert_eq!(fs::read(&input).expect("the file"), b"input");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 2, "checks leave nothing");
    }

    #[test]
    fn figures_replace_file_atomically() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("figures");
        fs::write(&path, "x".repeat(1000)).expect("a file");
        let document =
            Document { about: vec![("seed", crate::output::Cell::Whole(7))], ..Document::default() };
        figures(&path).write(&document, Format::Json).expect("a file");
        assert_eq!(fs::read_to_string(&path).expect("figures"), "{\n  \"seed\": 7\n}\n");
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
